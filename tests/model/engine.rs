//! Several sequences in one engine: each has the bits that it has alone.

use rope_cpu::{
    kv_cache::{CacheType, Full},
    model::{Engine, Error, Feed, Options, Output, Role, Sequence},
    rope::{ATTENTION_SINKS, Flags, POLICY},
};

use crate::model::{
    position,
    session::{How, tokens, with_engine, with_model},
};
use rope_cpu_testing::{on_every_family, tiny::Tiny};

on_every_family!(sequences_are_as_alone);

/// The tokens of a sequence: prompts and answers in turn, each with its role.
type Script = Vec<(Role, Vec<u32>)>;

/// A generator of random numbers.
pub struct Random(pub u64);

impl Random {
    /// Returns a number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Returns scripts of different lengths. Some cross several grid lines and pages.
fn scripts(tiny: &Tiny) -> Vec<Script> {
    let script = |turns: &[(Role, usize)], from: usize| {
        let all = tokens(tiny, 2000);
        let mut at = from;
        let turns = turns.iter().map(|&(role, count)| {
            at += count;
            (role, all[at - count..at].to_vec())
        });
        turns.collect()
    };
    use Role::{Answer, Prompt};
    vec![
        script(&[(Prompt, 270), (Answer, 12)], 0),
        script(&[(Prompt, 40), (Answer, 30), (Prompt, 55), (Answer, 5)], 100),
        script(&[(Answer, 3), (Prompt, 90), (Answer, 20)], 300),
        script(&[(Prompt, 1), (Answer, 1), (Prompt, 2)], 500),
    ]
}

/// Reads a script into a sequence of its own, and returns the logits of each token.
fn alone(engine: &mut Engine, script: &Script) -> Vec<Vec<f32>> {
    let mut sequence = engine.sequence();
    let mut found = Vec::new();
    for (role, tokens) in script {
        read(engine, &mut sequence, *role, tokens, &mut found);
    }
    found
}

/// Reads tokens into a sequence, and adds their logits to `found`.
pub fn read(
    engine: &mut Engine,
    sequence: &mut Sequence,
    role: Role,
    mut tokens: &[u32],
    found: &mut Vec<Vec<f32>>,
) {
    while !tokens.is_empty() {
        let output = Output::Logits;
        let mut feeds =
            [Feed { sequence: &mut *sequence, tokens, role, wanted: 0..usize::MAX, output }];
        engine.step(&mut feeds, &mut |_, _, logits| found.push(logits.to_vec())).unwrap();
        let [feed] = feeds;
        tokens = feed.tokens;
    }
}

/// Reads all scripts together. In each step a random choice of the sequences takes part, with a
/// random number of tokens.
fn together(engine: &mut Engine, scripts: &[Script], seed: u64) -> Vec<Vec<Vec<f32>>> {
    let mut random = Random(seed);
    let mut sequences: Vec<_> = scripts.iter().map(|_| engine.sequence()).collect();
    let mut turns: Vec<Vec<(Role, &[u32])>> = scripts
        .iter()
        .map(|script| script.iter().rev().map(|(role, t)| (*role, &t[..])).collect())
        .collect();
    let mut found = vec![Vec::new(); scripts.len()];
    while turns.iter().any(|turns| !turns.is_empty()) {
        let mut taking_part = Vec::new();
        let mut feeds = Vec::new();
        for (i, sequence) in sequences.iter_mut().enumerate() {
            let Some(&(role, tokens)) = turns[i].last() else { continue };
            if random.below(10) < 7 {
                let count = 1 + random.below(tokens.len());
                taking_part.push((i, count));
                feeds.push(Feed {
                    sequence,
                    tokens: &tokens[..count],
                    role,
                    wanted: 0..usize::MAX,
                    output: Output::Logits,
                });
            }
        }
        engine
            .step(&mut feeds, &mut |feed, token, logits| {
                let found = &mut found[taking_part[feed].0];
                assert_eq!(found.len(), token, "logits come in order");
                found.push(logits.to_vec());
            })
            .unwrap();
        let rest: Vec<_> = feeds.iter().map(|feed| feed.tokens.len()).collect();
        for ((i, count), rest) in taking_part.into_iter().zip(rest) {
            let Some((_, tokens)) = turns[i].last_mut() else { continue };
            *tokens = &tokens[count - rest..];
            if tokens.is_empty() {
                turns[i].pop();
            }
        }
    }
    found
}

/// Checks that sequences in one engine have the bits that each has alone.
fn check(name: &str, tiny: &Tiny, how: &How) {
    let scripts = scripts(tiny);
    let wide = How { micro_batch: 512, ..how.clone() };
    let expected: Vec<_> = with_engine(tiny, &wide, |engine| {
        scripts.iter().map(|script| alone(engine, script)).collect()
    });
    with_engine(tiny, how, |engine| {
        for seed in 0..2 {
            let found = together(engine, &scripts, seed);
            for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(found.len(), expected.len(), "{name}: sequence {i}");
                let wrong = (0..found.len()).find(|&token| found[token] != expected[token]);
                assert_eq!(wrong, None, "{name}: token of sequence {i}");
            }
        }
        assert_eq!(engine.pool().used_bytes(), 0, "{name}");
    });
}

fn sequences_are_as_alone(name: &str, tiny: Tiny) {
    // LongRoPE's default policy computes a sequence again when it is longer.
    let policy = tiny.long_rope.map(|_| "position");
    let flags = Flags::default().with_some(&POLICY, policy);
    let how = How { flags, ..How::default() };
    for tiny in [tiny.clone(), tiny.in_blocks()] {
        check(name, &tiny, &how);
    }
}

#[test]
fn sequences_of_narrower_layers_are_as_alone() {
    let narrower = Tiny { narrower: 32, ..Tiny::named("llama") };
    sequences_are_as_alone("narrower layers", narrower);
}

#[test]
fn sequences_with_each_cache_type_are_as_alone() {
    for tiny in [Tiny::llama(), Tiny::gemma3()] {
        for cache in CacheType::ALL {
            let how = How { keys: cache, values: cache, micro_batch: 50, ..How::default() };
            check(cache.name(), &tiny, &how);
        }
    }
}

/// Each token has the frequencies of the length of its own sequence.
#[test]
fn sequences_of_different_effective_lengths_are_as_alone() {
    for case in position::Case::all() {
        let name = format!("{:?}", case.flags.scaling());
        check(&name, &case.tiny, &How { flags: case.flags.clone(), ..How::default() });
    }
}

#[test]
fn sequences_by_each_method_of_attention_are_as_alone() {
    for scaling in ["rerope", "leaky-rerope", "self-extend", "lm-infinite", "string", "dca"] {
        let flags = Flags::method(scaling);
        check(scaling, &Tiny::gemma3(), &How { flags, ..How::default() });
    }
    let flags = Flags::default().with(&ATTENTION_SINKS, 4);
    check("sinks", &Tiny::gemma3(), &How { flags, context: 60, ..How::default() });
    let flags = Flags { context_shift: true, ..Flags::default() };
    check("shift", &Tiny::llama(), &How { flags, context: 258, ..How::default() });
}

/// With policy `run`, a longer sequence is computed again while the others go on.
#[test]
fn recomputing_a_sequence_does_not_stop_others() {
    for case in position::Case::all() {
        let flags = case.flags.clone().with(&POLICY, "run");
        let how = How { flags, micro_batch: 64, ..How::default() };
        let all = tokens(&case.tiny, 400);
        let (long, other) = (&all[..200], &all[200..]);
        let expected = with_engine(&case.tiny, &how, |engine| {
            let mut found = Vec::new();
            let mut sequence = engine.sequence();
            read(engine, &mut sequence, Role::Prompt, &long[..90], &mut found);
            for token in long[90..].chunks(1) {
                read(engine, &mut sequence, Role::Answer, token, &mut found);
            }
            found
        });
        let other_alone = with_engine(&case.tiny, &how, |engine| {
            alone(
                engine,
                &vec![(Role::Prompt, other[..40].to_vec()), (Role::Answer, other[40..60].to_vec())],
            )
        });
        with_engine(&case.tiny, &how, |engine| {
            let (mut found, mut found_other) = (Vec::new(), Vec::new());
            let (mut sequence, mut another) = (engine.sequence(), engine.sequence());
            read(engine, &mut sequence, Role::Prompt, &long[..90], &mut found);
            read(engine, &mut another, Role::Prompt, &other[..40], &mut found_other);
            let (mut tokens, mut steps) = (&long[90..91], 0);
            let mut rest = &long[91..];
            let mut others = other[40..60].iter();
            while !tokens.is_empty() {
                let other = others.next().map(std::slice::from_ref).unwrap_or_default();
                let wanted = 0..usize::MAX;
                let mut feeds = [
                    Feed {
                        sequence: &mut sequence,
                        tokens,
                        role: Role::Answer,
                        wanted: wanted.clone(),
                        output: Output::Logits,
                    },
                    Feed {
                        sequence: &mut another,
                        tokens: other,
                        role: Role::Answer,
                        wanted,
                        output: Output::Logits,
                    },
                ];
                engine
                    .step(&mut feeds, &mut |feed, _, logits| match feed {
                        0 => found.push(logits.to_vec()),
                        _ => found_other.push(logits.to_vec()),
                    })
                    .unwrap();
                let [feed, other] = feeds;
                assert!(other.tokens.is_empty(), "the other sequence was held up");
                tokens = feed.tokens;
                steps += 1;
                if tokens.is_empty() && !rest.is_empty() {
                    (tokens, rest) = rest.split_at(1);
                }
            }
            assert!(found == expected, "{:?}", case.flags.scaling());
            assert!(found_other == other_alone, "{:?}", case.flags.scaling());
            assert!(steps > long.len() - 90, "nothing was computed again");
        });
    }
}

#[test]
fn forks_share_their_prefix_and_are_as_alone() {
    for tiny in [Tiny::llama(), Tiny::gemma3()] {
        let all = tokens(&tiny, 700);
        let script = |i: usize| -> Script {
            let answer = all[400 + 50 * i..440 + 50 * i].to_vec();
            vec![(Role::Prompt, all[..300].to_vec()), (Role::Answer, answer)]
        };
        let expected: Vec<_> = with_engine(&tiny, &How::default(), |engine| {
            (0..4).map(|i| alone(engine, &script(i))).collect()
        });
        with_engine(&tiny, &How::default(), |engine| {
            let mut first = engine.sequence();
            let mut found = vec![Vec::new(); 4];
            let page = engine.pool().page_bytes();
            read(engine, &mut first, Role::Prompt, &all[..300], &mut found[0]);
            let used = engine.pool().used_bytes();
            let mut forks: Vec<_> = (0..4).map(|_| first.clone()).collect();
            drop(first);
            assert_eq!(engine.pool().used_bytes(), used);
            for (i, fork) in forks.iter_mut().enumerate() {
                found[i] = found[0][..300].to_vec();
                read(engine, fork, Role::Answer, &script(i)[1].1, &mut found[i]);
            }
            assert!(found == expected);
            // Of each of the three other forks, only the last page of every layer is its own.
            let layers = tiny.layers;
            assert_eq!(engine.pool().used_bytes(), used + 3 * layers * page);
        });
    }
}

#[test]
fn what_cannot_be_computed_is_an_error_with_the_values() {
    let tiny = Tiny::llama();
    let how = How { context: 100, ..How::default() };
    with_engine(&tiny, &how, |engine| {
        let (mut one, mut two) = (engine.sequence(), engine.sequence());
        let step =
            |engine: &mut Engine, one: &mut Sequence, two: &mut Sequence, tokens: [&[u32]; 2]| {
                let [a, b] = tokens;
                let mut feeds = [
                    Feed {
                        sequence: one,
                        tokens: a,
                        role: Role::Prompt,
                        wanted: 0..0,
                        output: Output::Logits,
                    },
                    Feed {
                        sequence: two,
                        tokens: b,
                        role: Role::Prompt,
                        wanted: 0..0,
                        output: Output::Logits,
                    },
                ];
                engine.step(&mut feeds, &mut |_, _, _| {})
            };
        step(engine, &mut one, &mut two, [&[1, 2, 3], &[4]]).unwrap();
        let error = step(engine, &mut one, &mut two, [&[1], &[50]]).unwrap_err();
        assert!(matches!(error, Error::Token { token: 50, vocabulary: 50 }), "{error}");
        let error = step(engine, &mut one, &mut two, [&[0; 98], &[1]]).unwrap_err();
        assert!(matches!(error, Error::ContextFull { context: 100, used: 3, more: 98 }), "{error}");
        let mut foreign = with_engine(&tiny, &how, |other| other.sequence());
        let error = step(engine, &mut one, &mut foreign, [&[1], &[1]]).unwrap_err();
        assert!(matches!(error, Error::ForeignSequence { feed: 1 }), "{error}");
        // Nothing was computed.
        assert_eq!((one.tokens(), two.tokens()), (&[1, 2, 3][..], &[4][..]));
        step(engine, &mut one, &mut two, [&[], &[]]).unwrap();
    });
}

#[test]
fn a_full_pool_stops_the_sequence_that_cannot_grow() {
    let tiny = Tiny::llama();
    let all = tokens(&tiny, 700);
    let expected = with_engine(&tiny, &How::default(), |engine| {
        alone(engine, &vec![(Role::Prompt, all[..300].to_vec())])
    });
    let page = with_engine(&tiny, &How::default(), |engine| engine.pool().page_bytes());
    // Three pages of each layer.
    let limit = 3 * tiny.layers * page;
    with_model(&tiny.builder(), &[], &How::default(), |model, rope, options| {
        let options = Options { cache_bytes: limit, ..options };
        let engine = &mut Engine::new(model, rope, options).unwrap();
        let (mut one, mut two) = (engine.sequence(), engine.sequence());
        let mut found = Vec::new();
        read(engine, &mut one, Role::Prompt, &all[..256], &mut Vec::new());
        read(engine, &mut two, Role::Prompt, &all[..250], &mut found);
        // One page of each layer is left, for the first of the two.
        let mut feeds =
            [(&mut one, &all[256..266]), (&mut two, &all[250..260])].map(|(sequence, tokens)| {
                Feed { sequence, tokens, role: Role::Prompt, wanted: 0..0, output: Output::Logits }
            });
        let error = engine.step(&mut feeds, &mut |_, _, _| {}).unwrap_err();
        assert!(
            matches!(error, Error::PoolFull { feed: 1, full: Full::Limit { limit: l, .. } } if l == limit)
        );
        assert!(feeds.iter().all(|feed| feed.tokens.len() == 10), "tokens were lost");
        drop(one);
        read(engine, &mut two, Role::Prompt, &all[250..300], &mut found);
        assert!(found == expected);
    });
}
