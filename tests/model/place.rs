//! Parts of a text that another sequence has computed at other positions.

use rope_cpu::{
    kv_cache::CacheType,
    model::{Engine, Error, Role, Sequence},
    rope::{ATTENTION_SINKS, Flags},
};

use crate::model::{
    engine::read,
    session::{How, tokens, with_engine},
};
use rope_cpu_testing::tiny::Tiny;

fn how(keys: CacheType) -> How {
    let flags = Flags { context_shift: true, ..Flags::default() };
    How { keys, values: keys, flags, ..How::default() }
}

/// Reads tokens, and returns the logits of each.
fn logits(engine: &mut Engine, sequence: &mut Sequence, tokens: &[u32]) -> Vec<Vec<f32>> {
    let mut found = Vec::new();
    read(engine, sequence, Role::Prompt, tokens, &mut found);
    found
}

/// Returns the logits of the last tokens of a text with a part that was moved, and of the same text
/// computed. The part has other positions within a page.
fn after_a_part(engine: &mut Engine, all: &[u32]) -> [Vec<Vec<f32>>; 2] {
    let text = [&all[700..800], &all[30..560], &all[800..840]].concat();
    let mut computed = engine.sequence();
    let expected = logits(engine, &mut computed, &text);
    let (mut source, mut sequence) = (engine.sequence(), engine.sequence());
    logits(engine, &mut source, &all[..600]);
    logits(engine, &mut sequence, &text[..100]);
    let before = engine.pool().used_bytes();
    assert!(engine.place(&mut sequence, &source, 30..560).unwrap());
    assert!(sequence.tokens() == &text[..630] && engine.pool().used_bytes() > before);
    let found = logits(engine, &mut sequence, &text[630..]);
    [found, expected[630..].to_vec()]
}

/// In the first layer, keys and values depend on their tokens alone.
#[test]
fn a_part_in_one_layer_has_the_bits_that_it_has_anywhere() {
    let one = Tiny { layers: 1, ..Tiny::llama() };
    let all = tokens(&one, 840);
    for keys in [CacheType::F32, CacheType::F16, CacheType::Q8_0, CacheType::Q4_0] {
        let [found, expected] = with_engine(&one, &how(keys), |engine| after_a_part(engine, &all));
        assert!(found == expected, "{keys:?}");
    }
    let biased = Tiny { key_bias: 30.0, ..one };
    let [found, expected] =
        with_engine(&biased, &how(CacheType::Q8_0), |engine| after_a_part(engine, &all));
    assert!(found == expected);
    // Later layers depend on the text before.
    let [found, expected] =
        with_engine(&Tiny::llama(), &how(CacheType::F32), |engine| after_a_part(engine, &all));
    assert!(found != expected);
}

#[test]
fn a_part_in_its_own_place_changes_no_bits() {
    let tiny = Tiny::llama();
    let all = tokens(&tiny, 700);
    for flags in [Flags { context_shift: true, ..Flags::default() }, Flags::method("dynamic")] {
        with_engine(&tiny, &How { flags, ..How::default() }, |engine| {
            let (mut source, mut sequence) = (engine.sequence(), engine.sequence());
            let expected = logits(engine, &mut source, &all);
            logits(engine, &mut sequence, &all[..100]);
            assert!(engine.place(&mut sequence, &source, 100..650).unwrap());
            assert!(logits(engine, &mut sequence, &all[650..]) == expected[650..]);
        });
    }
}

#[test]
fn what_was_placed_is_not_saved() {
    let tiny = Tiny::llama();
    let all = tokens(&tiny, 700);
    with_engine(&tiny, &how(CacheType::F16), |engine| {
        let (mut source, mut sequence) = (engine.sequence(), engine.sequence());
        logits(engine, &mut source, &all[..300]);
        logits(engine, &mut sequence, &all[300..400]);
        engine.place(&mut sequence, &source, 0..300).unwrap();
        logits(engine, &mut sequence, &all[400..410]);
        let saved = |sequence: &Sequence| engine.save(sequence, 1, 410, &mut Vec::new()).unwrap();
        assert_eq!(saved(&sequence), 100);
        assert_eq!((sequence.truncate(100), saved(&sequence)), (100, 100));
        logits(engine, &mut sequence, &all[400..410]);
        let saved = engine.save(&sequence, 1, 410, &mut Vec::new()).unwrap();
        assert_eq!(saved, 110);
    });
}

#[test]
fn without_room_nothing_is_placed() {
    let tiny = Tiny::llama();
    let all = tokens(&tiny, 700);
    with_engine(&tiny, &How { context: 600, ..how(CacheType::F16) }, |engine| {
        let (mut source, mut sequence) = (engine.sequence(), engine.sequence());
        logits(engine, &mut source, &all[..500]);
        logits(engine, &mut sequence, &all[500..]);
        assert!(!engine.place(&mut sequence, &source, 0..500).unwrap());
        assert_eq!(sequence.tokens().len(), 200);
        // The start of the source has left the context.
        logits(engine, &mut source, &all);
        assert!(source.take_evicted().is_some());
        assert!(!engine.place(&mut sequence, &source, 0..10).unwrap());
    });
}

#[test]
fn models_and_methods_that_cannot_move_parts_are_refused() {
    let error = |tiny: &Tiny, flags: Flags| {
        with_engine(tiny, &How { flags, ..How::default() }, |engine| {
            let (mut one, other) = (engine.sequence(), engine.sequence());
            engine.place(&mut one, &other, 0..0).unwrap_err()
        })
    };
    let shifting = || Flags { context_shift: true, ..Flags::default() };
    for flags in [Flags::default(), Flags::default().with(&ATTENTION_SINKS, 4)] {
        assert!(matches!(error(&Tiny::llama(), flags), Error::PlacedMethod));
    }
    for tiny in [Tiny::gemma3(), Tiny::named("qwen35")] {
        assert!(matches!(error(&tiny, shifting()), Error::PlacedLayers { .. }));
    }
    with_engine(&Tiny::llama(), &how(CacheType::F16), |engine| {
        let mut one = engine.sequence();
        with_engine(&Tiny::llama(), &how(CacheType::F16), |other| {
            let placed = engine.place(&mut one, &other.sequence(), 0..0);
            assert!(matches!(placed, Err(Error::ForeignSequence { feed: 1 })));
        });
    });
}
