//! Sparse attention: answers of long sequences attend to chosen blocks of keys.

use std::ops::ControlFlow::Continue;

use rope_cpu::{
    eval::decode::{Decoded, decode},
    kv_cache::CacheType,
    model::{Engine, Error, Options, Role, Sequence, Session, SparseAttention},
    rope::{ATTENTION_SINKS, Flags, rerope},
};

use crate::model::{
    engine::read,
    session::{How, logits, tokens, with_model},
};
use rope_cpu_testing::tiny::Tiny;

/// From 300 tokens on, the fewest blocks.
pub const FEW: SparseAttention = SparseAttention {
    mass: 0.51,
    length_min: 300,
    keys_min: 0,
    share_max: 0.4,
    drafts_only: false,
};
/// From 300 tokens on, all blocks.
pub const ALL: SparseAttention = SparseAttention { keys_min: usize::MAX, share_max: 1.0, ..FEW };

/// Returns a model with two layers that are sparse.
pub fn tiny() -> Tiny {
    Tiny { layers: 4, ..Tiny::llama() }
}

pub fn shifting() -> Flags {
    Flags { context_shift: true, ..Flags::default() }
}

/// Calls `test` with an engine.
pub fn with_engine<T>(
    tiny: &Tiny,
    how: &How,
    sparse_attention: Option<SparseAttention>,
    test: impl FnOnce(&mut Engine) -> T,
) -> T {
    with_options(tiny, how, |options| Options { sparse_attention, ..options }, test)
}

/// Calls `test` with an engine with changed options.
pub fn with_options<T>(
    tiny: &Tiny,
    how: &How,
    change: impl FnOnce(Options) -> Options,
    test: impl FnOnce(&mut Engine) -> T,
) -> T {
    with_model(&tiny.builder(), &[], how, |model, rope, options| {
        test(&mut Engine::new(model, rope, change(options)).unwrap())
    })
}

/// Calls `test` with models of several groups of heads, RoPE methods and biases, each with all cache
/// types.
pub fn each_model_and_cache(test: impl Fn(&Tiny, How)) {
    let wide = Tiny { heads: 24, kv_heads: 2, ..tiny() };
    let alone = Tiny { heads: 2, kv_heads: 2, ..tiny() };
    let sinks = Tiny { layers: 4, window: None, ..Tiny::named("gpt-oss") };
    use CacheType::{Bf16, F16, F32, Q4_0, Q5_0, Q8_0};
    let cases = [(F32, Q4_0), (F16, F16), (Q8_0, Bf16), (Q5_0, Q8_0), (Q4_0, F16)];
    for (keys, values) in cases {
        for (tiny, flags) in [
            (&tiny(), Flags::default()),
            (&tiny(), shifting()),
            (&wide, Flags::default()),
            (&alone, Flags::default()),
            (&Tiny { key_bias: 30.0, ..tiny() }, Flags::default()),
            (&sinks, Flags::default()),
        ] {
            test(tiny, How { keys, values, flags, ..How::default() });
        }
    }
}

/// Returns models with groups of several sizes, with their RoPE and cache type.
pub fn kinds() -> [(Tiny, How); 3] {
    let how = |flags, keys| How { flags, keys, ..How::default() };
    [
        (tiny(), how(Flags::default(), CacheType::F16)),
        (tiny(), how(shifting(), CacheType::Q8_0)),
        (Tiny { heads: 24, ..tiny() }, how(Flags::default(), CacheType::F32)),
    ]
}

/// Reads a prompt, then answer tokens, `together` in a step. Returns the logits of the answer.
fn answer(
    engine: &mut Engine,
    sequence: &mut Sequence,
    [prompt, answer]: [&[u32]; 2],
    together: usize,
) -> Vec<Vec<f32>> {
    let mut found = Vec::new();
    read(engine, sequence, Role::Prompt, prompt, &mut found);
    found.clear();
    for tokens in answer.chunks(together) {
        read(engine, sequence, Role::Answer, tokens, &mut found);
    }
    found
}

/// Reads 690 tokens of a prompt and 30 of an answer, which crosses a block.
fn run(tiny: &Tiny, how: &How, sparse: Option<SparseAttention>) -> Vec<Vec<f32>> {
    let all = tokens(tiny, 720);
    with_engine(tiny, how, sparse, |engine| {
        let mut sequence = engine.sequence();
        answer(engine, &mut sequence, [&all[..690], &all[690..]], 1)
    })
}

#[test]
fn all_blocks_have_the_bits_of_dense_attention() {
    each_model_and_cache(|tiny, how| {
        let (dense, sparse) = (run(tiny, &how, None), run(tiny, &how, Some(ALL)));
        assert!(dense == sparse, "{:?} {:?} {}", how.keys, how.values, tiny.architecture.name);
    });
}

#[test]
fn shorter_sequences_and_dense_steps_have_the_bits_of_dense_attention() {
    let (tiny, how) = (tiny(), How::default());
    let later = SparseAttention { length_min: 720, ..FEW };
    let dense = run(&tiny, &how, None);
    assert!(run(&tiny, &how, Some(later)) == dense);
    let all = tokens(&tiny, 720);
    with_engine(&tiny, &how, Some(FEW), |engine| {
        engine.set_dense(true);
        let mut sequence = engine.sequence();
        assert!(answer(engine, &mut sequence, [&all[..690], &all[690..]], 1) == dense);
        assert_eq!(engine.take_blocks_read(), [0, 0]);
        engine.set_dense(false);
        sequence.truncate(690);
        assert!(answer(engine, &mut sequence, [&[], &all[690..]], 1) != dense);
        let [chosen, of] = engine.take_blocks_read();
        assert!(chosen > 0 && 2 * chosen < of, "{chosen} of {of}");
    });
}

#[test]
fn bits_do_not_depend_on_threads_or_on_the_rest_of_a_step() {
    for (tiny, of_kind) in kinds() {
        let how = |threads, micro_batch| How { threads, micro_batch, ..of_kind.clone() };
        let expected = run(&tiny, &how(1, 64), Some(FEW));
        for (threads, micro_batch) in [(2, 512), (4, 100)] {
            assert!(run(&tiny, &how(threads, micro_batch), Some(FEW)) == expected);
        }
        // Several tokens of the answer in a step, more than are divided into parts.
        let all = tokens(&tiny, 720);
        for together in [3, 15] {
            with_engine(&tiny, &how(2, 64), Some(FEW), |engine| {
                let mut sequence = engine.sequence();
                let text = [&all[..690], &all[690..]];
                assert!(answer(engine, &mut sequence, text, together) == expected);
            });
        }
    }
}

#[test]
fn sequences_in_a_step_have_the_bits_that_each_has_alone() {
    use rope_cpu::model::{Feed, Output};
    let (tiny, how) = (tiny(), How { threads: 3, ..How::default() });
    let all = tokens(&tiny, 1000);
    // One is sparse, one is too short, and one reads a prompt.
    let texts =
        [(&all[..690], Role::Answer), (&all[300..450], Role::Answer), (&all[..40], Role::Prompt)];
    with_engine(&tiny, &how, Some(FEW), |engine| {
        let mut sequences: Vec<_> = texts.iter().map(|_| engine.sequence()).collect();
        for (sequence, (prompt, _)) in sequences.iter_mut().zip(texts) {
            read(engine, sequence, Role::Prompt, prompt, &mut Vec::new());
        }
        let mut expected = Vec::new();
        for (sequence, (prompt, role)) in sequences.iter_mut().zip(texts) {
            let mut found = Vec::new();
            read(engine, sequence, role, &all[900..901], &mut found);
            expected.append(&mut found);
            sequence.truncate(prompt.len());
        }
        let mut found = vec![Vec::new(); 3];
        let feeds = sequences.iter_mut().zip(texts).map(|(sequence, (_, role))| Feed {
            sequence,
            tokens: &all[900..901],
            role,
            wanted: 0..usize::MAX,
            output: Output::Logits,
        });
        let mut feeds: Vec<_> = feeds.collect();
        engine.step(&mut feeds, &mut |feed, _, logits| found[feed] = logits.to_vec()).unwrap();
        assert!(found == expected);
    });
}

#[test]
fn truncated_and_forked_sequences_have_the_bits_of_new_ones() {
    let all = tokens(&tiny(), 900);
    for (flags, keys) in [(Flags::default(), CacheType::F16), (shifting(), CacheType::Q4_0)] {
        let how = How { keys, flags, ..How::default() };
        let other: Vec<_> = all[..650].iter().chain(&all[800..]).copied().collect();
        let text = [&other[..690], &other[690..]];
        let expected = with_engine(&tiny(), &how, Some(FEW), |engine| {
            let mut sequence = engine.sequence();
            answer(engine, &mut sequence, text, 1)
        });
        with_engine(&tiny(), &how, Some(FEW), |engine| {
            let mut sequence = engine.sequence();
            answer(engine, &mut sequence, [&all[..760], &all[760..790]], 1);
            // Within a block and a page, whose summaries are of other tokens.
            let mut fork = sequence.clone();
            assert_eq!(fork.truncate(650), 650);
            assert!(answer(engine, &mut fork, [&text[0][650..], text[1]], 1) == expected);
            // The original still has its own.
            let more = answer(engine, &mut sequence, [&[], &all[790..800]], 1);
            let mut new = engine.sequence();
            answer(engine, &mut new, [&all[..760], &all[760..790]], 1);
            assert!(answer(engine, &mut new, [&[], &all[790..800]], 1) == more);
        });
    }
}

#[test]
fn restored_sequences_summarize_their_keys_again() {
    let tiny = tiny();
    let all = tokens(&tiny, 740);
    for (flags, keys) in [(Flags::default(), CacheType::Q8_0), (shifting(), CacheType::F16)] {
        let how = How { flags, keys, ..How::default() };
        let with_session = |test: &mut dyn FnMut(&mut Session)| {
            with_model(&tiny.builder(), &[], &how, |model, rope, options| {
                let options = Options { sparse_attention: Some(FEW), ..options };
                test(&mut Session::new(model, rope, options).unwrap());
            });
        };
        let more = |session: &mut Session| -> Vec<Vec<f32>> {
            let go_on = &mut |_| Continue(());
            let of = |&token| session.answer(token, go_on).unwrap().unwrap().to_vec();
            all[700..].iter().map(of).collect()
        };
        let (mut file, mut expected) = (Vec::new(), Vec::new());
        with_session(&mut |session| {
            logits(session, &all[..700]);
            assert_eq!(session.save(5, 700, &mut file).unwrap(), 700);
            expected = more(session);
        });
        with_session(&mut |session| {
            logits(session, &all[300..]);
            session.restore(5, &file[..], file.len() as u64).unwrap();
            assert!(more(session) == expected, "{keys:?}");
        });
    }
}

#[test]
fn what_cannot_be_sparse_is_refused_by_name() {
    let refused = |tiny: &Tiny, flags, sparse| {
        let how = How { flags, context: 320, ..How::default() };
        with_model(&tiny.builder(), &[], &how, |model, rope, options| {
            let options = Options { sparse_attention: Some(sparse), ..options };
            Engine::new(model, rope, options).err()
        })
    };
    let plain = Flags::default;
    for mass in [0.5, 1.0, 0.0, f32::NAN] {
        let sparse = SparseAttention { mass, ..FEW };
        assert!(matches!(refused(&tiny(), plain(), sparse), Some(Error::SparseMass { .. })));
    }
    let share = SparseAttention { share_max: 1.5, ..FEW };
    assert!(matches!(refused(&tiny(), plain(), share), Some(Error::SparseShare { .. })));
    for flags in [
        plain().with(&ATTENTION_SINKS, 4),
        Flags::method("rerope").with(&rerope::WINDOW, 40),
        Flags::method("dca"),
        Flags::method("dynamic"),
    ] {
        assert!(matches!(refused(&tiny(), flags, FEW), Some(Error::SparseMethod { .. })));
    }
    for tiny in [Tiny::llama(), Tiny { layers: 4, ..Tiny::latent() }] {
        let error = refused(&tiny, plain(), FEW).unwrap();
        assert!(error.to_string().starts_with("`sparse_attention` has no effect"), "{error}");
    }
    // Layers with a window stay dense, beside others.
    assert!(refused(&Tiny { layers: 6, ..Tiny::gemma3() }, plain(), FEW).is_none());
}

#[test]
fn pages_with_summaries_count_their_memory() {
    let how = How { keys: CacheType::F16, values: CacheType::F16, ..How::default() };
    let used = |sparse| {
        with_engine(&tiny(), &how, sparse, |engine| {
            let mut sequence = engine.sequence();
            read(engine, &mut sequence, Role::Prompt, &tokens(&tiny(), 600), &mut Vec::new());
            engine.pool().used_bytes()
        })
    };
    // Three pages in two of four layers, two KV heads of 32 elements with padding.
    assert_eq!(used(Some(FEW)) - used(None), 3 * 2 * 8 * 2 * (2 * 32 * 2));
}

#[test]
fn comparing_all_blocks_with_dense_attention_finds_no_difference() {
    let (tiny, how) = (tiny(), How::default());
    let text = tokens(&tiny, 400);
    let with_engines = |sparse, test: &mut dyn FnMut([&mut Engine; 2])| {
        with_engine(&tiny, &how, None, |base| {
            with_engine(&tiny, &how, sparse, |other| test([base, other]));
        });
    };
    let compared = |sparse| {
        let mut decoded = Decoded::default();
        let mut steps = 0;
        with_engines(sparse, &mut |engines| {
            decode(engines, &text, 60, &mut decoded, &mut |done| steps = done).unwrap();
        });
        assert_eq!((steps, decoded.divergence.count(), decoded.seconds.len()), (60, 60, 60));
        decoded
    };
    // Log-probabilities of magnitude below 16 are rounded to 2^-20, and weighted with a sum of 1.
    let kl = |decoded: &Decoded| decoded.divergence.kl_quantiles().at(1.0);
    for (sparse, share) in [(Some(ALL), Some(1.0)), (None, None)] {
        let all = compared(sparse);
        assert_eq!((all.share_read(), all.divergence.same_top().value), (share, 1.0));
        assert!(kl(&all).abs() <= 1.0 / f64::from(1 << 19), "{}", kl(&all));
    }
    let few = compared(Some(FEW));
    assert!(few.share_read().unwrap() < 0.6 && kl(&few) > 1e-4, "{few:?}");
    with_engines(None, &mut |engines| {
        let short = decode(engines, &text[..61], 60, &mut Decoded::default(), &mut |_| ());
        assert!(short.unwrap_err().to_string().contains("61 tokens, and 62 are needed"));
    });
}
