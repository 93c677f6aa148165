//! Tokens that are left out of a sequence: the others have the logits of a pass that masks them.

use std::{iter::once, ops::Range};

use rope_cpu::{
    Token,
    kv_cache::CacheType,
    model::{Engine, Error, Feed, Options, Output, Role, Sequence, SparseAttention},
    rope::{ATTENTION_SINKS, Flags, LOG_N, POLICY, SCALE, dca, lm_infinite, rerope},
};

use crate::model::{
    distances::chunked,
    engine::read,
    session::{How, difference, tokens, with_engine, with_model},
};
use rope_cpu_testing::{
    on_every_family,
    reference::{Frequencies, Rules, forward, forward_by},
    tiny::Tiny,
};

on_every_family!(logits_are_those_of_a_pass_that_masks_what_is_left_out);

/// Ranges within and over pages, and blocks of products in 8 bits.
const GAPS: [Range<usize>; 5] = [5..6, 40..300, 310..342, 512..544, 600..640];

fn is_left_out(token: usize) -> bool {
    GAPS.iter().any(|gap| gap.contains(&token))
}

/// Returns the indices of the first `n` tokens that are computed.
fn computed(n: usize) -> impl Iterator<Item = usize> {
    (0..n).filter(|token| !is_left_out(*token))
}

/// Reads tokens with [`GAPS`] into a sequence, the last `answered` of them as an answer.
/// Returns the logits of the computed ones.
fn with_gaps(
    engine: &mut Engine,
    sequence: &mut Sequence,
    tokens: &[Token],
    answered: usize,
) -> Vec<Vec<f32>> {
    engine.omit(sequence, &GAPS).unwrap();
    let (prompt, answer) = tokens.split_at(tokens.len() - answered);
    let mut found = Vec::new();
    read(engine, sequence, Role::Prompt, prompt, &mut found);
    for token in answer.chunks(1) {
        read(engine, sequence, Role::Answer, token, &mut found);
    }
    assert_eq!((sequence.tokens(), sequence.positions()), (tokens, tokens.len()));
    assert_eq!(found.len(), computed(tokens.len()).count());
    found
}

/// Returns the logits of [`with_gaps`] in a new sequence.
fn from_the_start(engine: &mut Engine, tokens: &[Token], answered: usize) -> Vec<Vec<f32>> {
    let mut sequence = engine.sequence();
    with_gaps(engine, &mut sequence, tokens, answered)
}

/// Returns the logits of the computed tokens by the definition, with these distances in global layers.
fn masked(
    tiny: &Tiny,
    tokens: &[Token],
    scale: f64,
    distance: &dyn Fn(usize, usize) -> Option<f64>,
) -> Vec<Vec<f32>> {
    let frequencies = Frequencies::new(tiny, scale);
    let rules = Rules {
        place: &|i, j| Some(j).filter(|j| i == *j || !is_left_out(*j)),
        frequencies: &|_| (frequencies.global.clone(), 1.0),
        distance,
        query_scale: &|_| 1.0,
    };
    let all = forward_by(tiny, &rules, &frequencies.window, tokens);
    computed(tokens.len()).map(|token| all[token].clone()).collect()
}

fn logits_are_those_of_a_pass_that_masks_what_is_left_out(name: &str, tiny: Tiny) {
    let tokens = tokens(&tiny, 700);
    // The definition here is without the scaling that files of some families ask for.
    let scaled = tiny.long_rope.is_some() || tiny.temperature.is_some() || tiny.score_weight != 0.0;
    if scaled || tiny.turning.is_some() {
        return;
    }
    let checked = with_engine(&tiny, &How::default(), |engine| engine.check_omit());
    if let Err(error) = checked {
        assert!(matches!(error, Error::OmittedLayers { .. }), "{name}: {error}");
        return;
    }
    let plain = |i: usize, j: usize| Some(i as f64 - j as f64);
    let dense = with_engine(&tiny, &How::default(), |engine| {
        let (mut sequence, mut found) = (engine.sequence(), Vec::new());
        read(engine, &mut sequence, Role::Prompt, &tokens, &mut found);
        found
    });
    let frequencies = Frequencies::new(&tiny, 1.0);
    let definition = forward(&tiny, &frequencies, &tokens);
    let expected = masked(&tiny, &tokens, 1.0, &plain);
    // Rounding errors are as large as without gaps.
    let bound = 3.0 * difference(&definition, &dense) + 2e-4;
    for (micro_batch, answered) in [(64, 0), (512, 0), (7, 60)] {
        let how = How { micro_batch, ..How::default() };
        let found = with_engine(&tiny, &how, |engine| from_the_start(engine, &tokens, answered));
        let apart = difference(&expected, &found);
        assert!(apart < bound, "{name}, {micro_batch}: {apart} of {bound}");
    }
    // The masks matter.
    let all: Vec<_> = computed(700).map(|token| dense[token].clone()).collect();
    let apart = difference(&all, &expected);
    assert!(tiny.window.is_some() || apart > 10.0 * bound, "{name}: {apart} of {bound}");
}

#[test]
fn methods_see_the_distances_of_the_whole_text() {
    let tiny = Tiny::llama();
    let tokens = tokens(&tiny, 700);
    let near = |i: usize, j: usize, window: usize| (i - j).min(window) as f64;
    let rerope = Flags::method("rerope").with(&rerope::WINDOW, 290);
    let infinite =
        Flags::method("lm-infinite").with(&lm_infinite::GLOBAL, 50).with(&lm_infinite::LOCAL, 280);
    let dca = Flags::method("dca").with(&dca::CHUNK_SIZE, 300).with(&dca::LOCAL_SIZE, 200);
    let linear = Flags::method("linear").with(&SCALE, 2.0);
    type Distance<'d> = &'d dyn Fn(usize, usize) -> Option<f64>;
    let of_dca = |i, j| Some(chunked(300, 200, i, j));
    let of_infinite = |i: usize, j: usize| match i - j {
        d if d < 280 => Some(d as f64),
        _ if j < 50 => Some(280.0),
        _ => None,
    };
    let cases: [(Flags, f64, Distance<'_>); 4] = [
        (rerope.with(&LOG_N, false), 1.0, &|i, j| Some(near(i, j, 290))),
        (infinite, 1.0, &of_infinite),
        (dca, 1.0, &of_dca),
        (linear, 2.0, &|i, j| Some((i - j) as f64)),
    ];
    for (flags, scale, distance) in cases {
        let expected = masked(&tiny, &tokens, scale, distance);
        let name = format!("{:?}", flags.scaling());
        let how = How { flags, ..How::default() };
        for answered in [0, 50] {
            let found =
                with_engine(&tiny, &how, |engine| from_the_start(engine, &tokens, answered));
            let apart = difference(&expected, &found);
            assert!(apart < 4e-4, "{name}: {apart}");
        }
    }
}

/// Pages are used again, with keys and values of other sequences at the positions that are left out.
#[test]
fn bits_depend_on_nothing_that_is_left_out() {
    for tiny in [Tiny::llama(), Tiny::gemma3(), Tiny { key_bias: 30.0, ..Tiny::llama() }] {
        // Long enough for products in 8 bits behind pages without their first keys.
        let tokens = tokens(&tiny, 1200);
        for keys in [CacheType::F32, CacheType::F16, CacheType::Q8_0, CacheType::Q4_0] {
            let read = |micro_batch, threads, fills: bool| {
                let how = How { micro_batch, threads, keys, values: keys, ..How::default() };
                with_engine(&tiny, &how, |engine| {
                    if fills {
                        let mut found = Vec::new();
                        let other: Vec<_> = tokens.iter().rev().copied().collect();
                        for _ in 0..2 {
                            let mut other_sequence = engine.sequence();
                            read(engine, &mut other_sequence, Role::Prompt, &other, &mut found);
                        }
                    }
                    let gaps: Vec<_> = GAPS.into_iter().chain(once(768..800)).collect();
                    let mut sequence = engine.sequence();
                    engine.omit(&mut sequence, &gaps).unwrap();
                    let mut found = Vec::new();
                    read(engine, &mut sequence, Role::Prompt, &tokens, &mut found);
                    found
                })
            };
            let expected = read(64, 1, false);
            for (micro_batch, threads, fills) in [(64, 1, true), (7, 1, true), (512, 2, false)] {
                let found = read(micro_batch, threads, fills);
                assert!(found == expected, "{keys:?}, {micro_batch}, {fills}");
            }
        }
    }
}

#[test]
fn a_sequence_without_gaps_has_the_bits_of_a_dense_one() {
    let tiny = Tiny::llama();
    let tokens = tokens(&tiny, 700);
    with_engine(&tiny, &How { keys: CacheType::F16, ..How::default() }, |engine| {
        let logits = |engine: &mut Engine, sequence: &mut Sequence, tokens: &[Token]| {
            let mut found = Vec::new();
            read(engine, sequence, Role::Prompt, tokens, &mut found);
            found
        };
        let mut sequence = engine.sequence();
        let expected = logits(engine, &mut sequence, &tokens);
        let mut sequence = engine.sequence();
        engine.omit(&mut sequence, &[]).unwrap();
        assert!(logits(engine, &mut sequence, &tokens) == expected);
        // A sequence forgets gaps that it has not reached, or has been truncated before.
        let mut sequence = engine.sequence();
        engine.omit(&mut sequence, &GAPS).unwrap();
        engine.omit(&mut sequence, &[]).unwrap();
        logits(engine, &mut sequence, &tokens[..5]);
        engine.omit(&mut sequence, &GAPS).unwrap();
        logits(engine, &mut sequence, &tokens[5..]);
        assert_eq!(
            (sequence.first_omitted(), sequence.omitted()),
            (Some(5), 1 + 260 + 32 + 32 + 40)
        );
        assert_eq!(sequence.truncate(5), 5);
        assert_eq!((sequence.first_omitted(), sequence.omitted()), (None, 0));
        assert!(logits(engine, &mut sequence, &tokens[5..]) == expected[5..]);
    });
}

#[test]
fn drafts_behind_gaps_can_be_removed() {
    for tiny in [Tiny::llama(), Tiny::gemma3()] {
        let tokens = tokens(&tiny, 720);
        with_engine(&tiny, &How::default(), |engine| {
            let mut sequence = engine.sequence();
            let expected = with_gaps(engine, &mut sequence, &tokens[..710], 8);
            let mut sequence = engine.sequence();
            with_gaps(engine, &mut sequence, &tokens[..702], 0);
            let mut found = Vec::new();
            read(engine, &mut sequence, Role::Answer, &tokens[702..703], &mut found);
            read(engine, &mut sequence, Role::Answer, &tokens[705..715], &mut found);
            assert_eq!(sequence.truncate(703), 703);
            found.truncate(1);
            for token in tokens[703..710].chunks(1) {
                read(engine, &mut sequence, Role::Answer, token, &mut found);
            }
            assert!(found == expected[expected.len() - 8..]);
        });
    }
}

#[test]
fn only_what_precedes_the_first_gap_is_reused_or_saved() {
    let tiny = Tiny::llama();
    let tokens = tokens(&tiny, 700);
    with_engine(&tiny, &How::default(), |engine| {
        let mut sequence = engine.sequence();
        engine.omit(&mut sequence, &[64..96, 200..300]).unwrap();
        read(engine, &mut sequence, Role::Prompt, &tokens, &mut Vec::new());
        for len in [700, 250, 100, 64] {
            assert_eq!(engine.reusable(&sequence, len, 900), 64);
        }
        assert_eq!(engine.reusable(&sequence, 40, 900), 40);
        let mut file = Vec::new();
        assert_eq!(engine.save(&sequence, 1, 700, &mut file).unwrap(), 64);
        let clone = &mut sequence.clone();
        assert_eq!((engine.reuse(clone, 700, 900), clone.first_omitted()), (64, None));
    });
}

/// A feed may end within a gap, or have nothing else.
#[test]
fn feeds_may_end_anywhere() {
    let tiny = Tiny::llama();
    let tokens = tokens(&tiny, 700);
    with_engine(&tiny, &How::default(), |engine| {
        let expected = from_the_start(engine, &tokens, 0);
        let mut sequence = engine.sequence();
        engine.omit(&mut sequence, &GAPS).unwrap();
        let mut found = Vec::new();
        for part in [0..3, 3..100, 100..280, 280..305, 305..600, 600..610, 610..700] {
            read(engine, &mut sequence, Role::Prompt, &tokens[part], &mut found);
        }
        assert!(found == expected);
        assert_eq!(sequence.truncate(690), 690);
        // Two sequences in one step, and outputs of some tokens only.
        let (mut one, mut two) = (engine.sequence(), engine.sequence());
        engine.omit(&mut one, &GAPS).unwrap();
        let output = Output::Logits;
        let feed = |sequence, wanted| Feed {
            sequence,
            tokens: &tokens,
            role: Role::Prompt,
            wanted,
            output,
        };
        let mut feeds = [feed(&mut one, 290..310), feed(&mut two, 0..0)];
        let mut wanted = Vec::new();
        while feeds.iter().any(|feed| !feed.tokens.is_empty()) {
            let each = &mut |feed: usize, token: usize, logits: &[f32]| {
                wanted.push((feed, token, logits.to_vec()));
            };
            engine.step(&mut feeds, each).unwrap();
        }
        let indices: Vec<_> = wanted.iter().map(|(feed, token, _)| (*feed, *token)).collect();
        assert_eq!(indices, (300..310).map(|token| (0, token)).collect::<Vec<_>>());
        let before = computed(300).count();
        assert!(wanted.iter().zip(&expected[before..]).all(|((.., found), all)| found == all));
    });
}

#[test]
fn what_cannot_leave_out_tokens_is_refused() {
    let error = |tiny: &Tiny, flags: Flags, change: &dyn Fn(&mut Options)| {
        with_model(
            &tiny.builder(),
            &[],
            &How { flags, ..How::default() },
            |model, rope, options| {
                let mut options = options;
                change(&mut options);
                let engine = Engine::new(model, rope, options).unwrap();
                engine.omit(&mut engine.sequence(), &[]).unwrap_err().to_string()
            },
        )
    };
    let none = |_: &mut Options| {};
    let llama = Tiny::llama();
    let shifts = Flags { context_shift: true, ..Flags::default() };
    for (tiny, flags, expected) in [
        (Tiny::named("qwen35"), Flags::default(), "a state of all tokens"),
        (llama.clone(), shifts, "shifts or rolls"),
        (llama.clone(), Flags::default().with(&ATTENTION_SINKS, 4), "shifts or rolls"),
        (llama.clone(), Flags::method("dynamic-linear").with(&POLICY, "run"), "follow the length"),
    ] {
        let found = error(&tiny, flags, &none);
        assert!(found.contains(expected), "{found}");
    }
    let sparse = |options: &mut Options| options.sparse_attention = Some(SparseAttention::new(0.9));
    let layers = Tiny { layers: 3, ..llama.clone() };
    assert!(error(&layers, Flags::default(), &sparse).contains("sparse attention"));
    with_engine(&llama, &How::default(), |engine| {
        let mut sequence = engine.sequence();
        read(engine, &mut sequence, Role::Prompt, &tokens(&llama, 20), &mut Vec::new());
        let pairs = [&[30..40, 39..50][..], &[40..50, 30..35]];
        for ranges in [10..30, 30..30, 4000..4097].chunks(1).chain(pairs) {
            let refused = engine.omit(&mut sequence, ranges);
            assert!(matches!(refused, Err(Error::OmittedRange { .. })), "{ranges:?}");
        }
        with_engine(&llama, &How::default(), |other| {
            let refused = other.omit(&mut sequence, &[]);
            assert!(matches!(refused, Err(Error::ForeignSequence { feed: 0 })));
        });
    });
}
