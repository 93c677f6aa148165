//! Sparse attention of prompts: groups of tokens choose the blocks of keys that they attend to.

use rope_cpu::{
    eval::decode::{Decoded, Prompts, decode},
    kv_cache::CacheType,
    model::{Engine, Error, Feed, Options, Output, Role, Sequence, SparseAttention},
    rope::{ATTENTION_SINKS, Flags},
};

use crate::model::{
    engine::read,
    session::{How, tokens, with_model},
    sparse::{each_model_and_cache, kinds, shifting, tiny, with_options},
};
use rope_cpu_testing::tiny::Tiny;

/// From 256 tokens on, about half of the blocks.
const FEW: SparseAttention =
    SparseAttention { mass: 0.9, length_min: 256, keys_min: 0, share_max: 0.6, drafts_only: false };
/// From 256 tokens on, all blocks.
const ALL: SparseAttention = SparseAttention { keys_min: usize::MAX, share_max: 1.0, ..FEW };

/// Calls `test` with an engine. In [`tiny`], groups have 64 positions.
fn with_engine<T>(
    tiny: &Tiny,
    how: &How,
    sparse_prompt: Option<SparseAttention>,
    test: impl FnOnce(&mut Engine) -> T,
) -> T {
    with_options(tiny, how, |options| Options { sparse_prompt, ..options }, test)
}

/// Reads prompts one after the other into a sequence. Returns the logits of all tokens.
fn prompts(engine: &mut Engine, sequence: &mut Sequence, pieces: &[&[u32]]) -> Vec<Vec<f32>> {
    let mut found = Vec::new();
    for piece in pieces {
        read(engine, sequence, Role::Prompt, piece, &mut found);
    }
    found
}

/// Reads 750 tokens as a prompt. Returns the logits of all of them.
fn run(tiny: &Tiny, how: &How, sparse: Option<SparseAttention>) -> Vec<Vec<f32>> {
    let all = tokens(tiny, 750);
    with_engine(tiny, how, sparse, |engine| {
        let mut sequence = engine.sequence();
        prompts(engine, &mut sequence, &[&all])
    })
}

#[test]
fn all_blocks_have_the_bits_of_dense_attention() {
    each_model_and_cache(|tiny, how| {
        let how = How { micro_batch: 200, ..how };
        let (dense, sparse) = (run(tiny, &how, None), run(tiny, &how, Some(ALL)));
        assert!(dense == sparse, "{:?} {:?} {}", how.keys, how.values, tiny.architecture.name);
    });
}

#[test]
fn few_blocks_change_logits_from_the_minimum_length_on() {
    let (tiny, how) = (tiny(), How { keys: CacheType::F16, ..How::default() });
    let (dense, sparse) = (run(&tiny, &how, None), run(&tiny, &how, Some(FEW)));
    assert!(dense[..256] == sparse[..256]);
    let differing = dense[256..].iter().zip(&sparse[256..]).filter(|(a, b)| a != b).count();
    assert!(differing > 480, "{differing} of 494");
    let all = tokens(&tiny, 750);
    with_engine(&tiny, &how, Some(FEW), |engine| {
        let mut sequence = engine.sequence();
        engine.set_dense(true);
        assert!(prompts(engine, &mut sequence, &[&all]) == dense);
        assert_eq!(engine.take_blocks_read(), [0, 0]);
        engine.set_dense(false);
        sequence.truncate(256);
        assert!(prompts(engine, &mut sequence, &[&all[256..]]) == sparse[256..]);
        let [chosen, of] = engine.take_blocks_read();
        assert!(chosen > 0 && 4 * chosen < 3 * of, "{chosen} of {of}");
    });
}

#[test]
fn bits_do_not_depend_on_threads_or_on_micro_batches() {
    for (tiny, of_kind) in kinds() {
        let how = |threads, micro_batch| How { threads, micro_batch, ..of_kind.clone() };
        let expected = run(&tiny, &how(1, 512), Some(FEW));
        // A micro-batch of 100 tokens has one group of 64, or the end of one and another.
        for (threads, micro_batch) in [(2, 512), (3, 512), (1, 64), (2, 100), (3, 301)] {
            let found = run(&tiny, &how(threads, micro_batch), Some(FEW));
            assert!(found == expected, "{threads} threads, micro-batches of {micro_batch}");
        }
    }
}

#[test]
fn bits_do_not_depend_on_other_sequences_of_a_step() {
    let tiny = tiny();
    let all = tokens(&tiny, 900);
    let how = How { micro_batch: 150, ..How::default() };
    let expected = run(&tiny, &how, Some(FEW));
    with_engine(&tiny, &how, Some(FEW), |engine| {
        let mut sequences: Vec<_> = (0..3).map(|_| engine.sequence()).collect();
        let texts = [&all[..750], &all[100..900], &all[..60]];
        let roles = [Role::Prompt, Role::Prompt, Role::Answer];
        let mut left = texts;
        let mut found = Vec::new();
        while left.iter().any(|tokens| !tokens.is_empty()) {
            // One token of an answer is before the prompts.
            let all = sequences.iter_mut().zip(left).zip(roles);
            let feeds = all.map(|((sequence, tokens), role)| Feed {
                sequence,
                tokens: if role == Role::Answer { &tokens[..tokens.len().min(1)] } else { tokens },
                role,
                wanted: 0..usize::MAX,
                output: Output::Logits,
            });
            let mut feeds: Vec<_> = feeds.collect();
            let each = &mut |feed, _, logits: &[f32]| {
                if feed == 0 {
                    found.push(logits.to_vec());
                }
            };
            engine.step(&mut feeds, each).unwrap();
            let [a, b] = [feeds[0].tokens, feeds[1].tokens];
            left = [a, b, &left[2][left[2].len().min(1)..]];
        }
        assert!(found == expected);
    });
}

#[test]
fn prompts_may_be_cut_between_groups() {
    let (tiny, how) = (tiny(), How { keys: CacheType::F16, ..How::default() });
    let all = tokens(&tiny, 750);
    let expected = run(&tiny, &how, Some(FEW));
    let cut = |at: usize| {
        with_engine(&tiny, &how, Some(FEW), |engine| {
            let mut sequence = engine.sequence();
            prompts(engine, &mut sequence, &[&all[..at], &all[at..]])
        })
    };
    // Below the minimum length nothing is chosen.
    for at in [100, 256, 448] {
        assert!(cut(at) == expected, "{at}");
    }
    // Each piece of a group chooses for itself, always in the same way.
    let within = cut(660);
    assert!(within[..640] == expected[..640] && within != expected);
    assert!(within == cut(660));
}

#[test]
fn truncated_and_forked_sequences_have_the_bits_of_new_ones() {
    let all = tokens(&tiny(), 900);
    // The fork differs from 650 on, within a block and a group. Groups choose from 704 on.
    let later = SparseAttention { length_min: 700, ..FEW };
    let other: Vec<_> = all[..650].iter().chain(&all[700..]).copied().collect();
    for (flags, keys) in [(Flags::default(), CacheType::F16), (shifting(), CacheType::Q4_0)] {
        let how = How { keys, flags, ..How::default() };
        let new = |text: &[u32]| {
            with_engine(&tiny(), &how, Some(later), |engine| {
                let mut sequence = engine.sequence();
                prompts(engine, &mut sequence, &[text])
            })
        };
        let (expected, of_other) = (new(&all), new(&other));
        assert!(expected[800] != of_other[800]);
        with_engine(&tiny(), &how, Some(later), |engine| {
            let mut sequence = engine.sequence();
            prompts(engine, &mut sequence, &[&all[..832]]);
            let mut fork = sequence.clone();
            assert_eq!(fork.truncate(650), 650);
            assert!(prompts(engine, &mut fork, &[&other[650..]]) == of_other[650..]);
            // The original still has its own.
            assert!(prompts(engine, &mut sequence, &[&all[832..]]) == expected[832..]);
        });
    }
}

#[test]
fn a_file_has_the_keys_of_one_share() {
    let (tiny, how) = (tiny(), How::default());
    let written = |sparse, length| {
        with_engine(&tiny, &how, sparse, |engine| {
            let mut sequence = engine.sequence();
            prompts(engine, &mut sequence, &[&tokens(&tiny, length)]);
            let mut file = Vec::new();
            assert_eq!(engine.save(&sequence, 7, length, &mut file).unwrap(), length);
            file
        })
    };
    let restored = |sparse, file: &[u8]| {
        with_engine(&tiny, &how, sparse, |engine| {
            let mut sequence = engine.sequence();
            let found = engine.restore(&mut sequence, 7, file, file.len() as u64);
            found.map_err(|e| e.to_string())
        })
    };
    let all = [None, Some(FEW), Some(ALL)];
    for (i, sparse) in all.into_iter().enumerate() {
        let long = written(sparse, 300);
        for (j, other) in all.into_iter().enumerate() {
            match restored(other, &long) {
                Ok(()) => assert_eq!(i, j),
                Err(error) => {
                    assert!(i != j && error.contains("another `sparse_prompt`"), "{error}")
                }
            }
        }
        // So far attention is dense.
        assert_eq!(restored(None, &written(sparse, 256)), Ok(()));
    }
}

#[test]
fn what_cannot_be_sparse_is_refused_by_name() {
    let refused = |tiny: &Tiny, flags, sparse| {
        let how = How { flags, context: 320, ..How::default() };
        with_model(&tiny.builder(), &[], &how, |model, rope, options| {
            let options = Options { sparse_prompt: Some(sparse), ..options };
            Engine::new(model, rope, options).err()
        })
    };
    let error = refused(&tiny(), Flags::default(), SparseAttention { mass: 1.0, ..FEW }).unwrap();
    assert!(error.to_string().starts_with("`sparse_prompt` is 1: must be"), "{error}");
    let sinks = Flags::default().with(&ATTENTION_SINKS, 4);
    assert!(matches!(refused(&tiny(), sinks, FEW), Some(Error::SparseMethod { .. })));
}

#[test]
fn comparing_all_blocks_with_dense_attention_finds_no_difference() {
    let (tiny, how) = (tiny(), How { micro_batch: 128, ..How::default() });
    let text = tokens(&tiny, 700);
    let compared = |sparse| {
        let mut decoded = Decoded::default();
        with_engine(&tiny, &how, None, |base| {
            with_engine(&tiny, &how, Some(sparse), |other| {
                decode([base, other], &text, 20, &mut decoded, &mut |_| ()).unwrap();
            });
        });
        assert_eq!((decoded.divergence.count(), decoded.blocks), (20, [0, 0]));
        let Prompts { seconds, sparse_seconds, .. } = decoded.prompts;
        assert!((0..2).all(|i| 0.0 < sparse_seconds[i] && sparse_seconds[i] < seconds[i]));
        decoded
    };
    let kl = |decoded: &Decoded| decoded.divergence.kl_quantiles().at(1.0);
    let all = compared(ALL);
    // Log-probabilities of magnitude below 16 are rounded to 2^-20, and weighted with a sum of 1.
    assert!(kl(&all).abs() <= 1.0 / f64::from(1 << 19), "{}", kl(&all));
    assert_eq!(all.prompts.share_read(), Some(1.0));
    let few = compared(FEW);
    assert!(few.prompts.share_read().unwrap() < 0.75 && kl(&few) > 1e-5, "{}", kl(&few));
}
