//! Random operations on sequences of one engine, compared with sequences that are computed from
//! their tokens each time.

use rope_cpu::{
    model::{Engine, Feed, Output, Role, Sequence},
    rope::Flags,
};

use crate::model::{
    engine::{Random, read},
    position,
    session::{How, with_engine},
};
use rope_cpu_testing::tiny::Tiny;

const CONTEXT: usize = 600;
const OPERATIONS: usize = 60;
const MODEL: u128 = 1;

/// A sequence, and all its tokens with their roles.
struct Pair {
    sequence: Sequence,
    history: Vec<(Role, u32)>,
}

/// Returns the logits of the last `count` tokens of a history, computed by a sequence of its own.
fn naive(engine: &mut Engine, history: &[(Role, u32)], count: usize) -> Vec<Vec<f32>> {
    let mut sequence = engine.sequence();
    let mut found = Vec::new();
    for run in history.chunk_by(|(a, _), (b, _)| a == b) {
        let tokens: Vec<_> = run.iter().map(|(_, token)| *token).collect();
        read(engine, &mut sequence, run[0].0, &tokens, &mut found);
    }
    found.split_off(found.len() - count)
}

struct Operations<'t> {
    tiny: &'t Tiny,
    engine: &'t mut Engine,
    /// Another engine, for the naive sequences.
    alone: &'t mut Engine,
    shifts: bool,
    random: Random,
    pairs: Vec<Pair>,
    log: Vec<String>,
}

impl Operations<'_> {
    fn run(&mut self) {
        for _ in 0..OPERATIONS {
            let any = self.random.below(self.pairs.len().max(1));
            match self.random.below(12) {
                _ if self.pairs.is_empty() => self.create(),
                0 if self.pairs.len() < 5 => self.create(),
                1 | 2 if self.pairs.len() < 5 => self.fork(any),
                3 => self.truncate(any),
                4 => self.save_and_restore(any),
                5 => {
                    self.log.push(format!("drop {any}"));
                    self.pairs.swap_remove(any);
                }
                _ => self.feed(),
            }
            for Pair { sequence, history } in &self.pairs {
                let tokens: Vec<_> = history.iter().map(|(_, token)| *token).collect();
                assert_eq!(sequence.tokens(), tokens, "{:?}", self.log);
            }
        }
        self.pairs.clear();
        assert_eq!(self.engine.pool().used_bytes(), 0);
    }

    fn create(&mut self) {
        self.log.push("create".into());
        self.pairs.push(Pair { sequence: self.engine.sequence(), history: Vec::new() });
    }

    fn fork(&mut self, i: usize) {
        self.log.push(format!("fork {i}"));
        let Pair { sequence, history } = &self.pairs[i];
        self.pairs.push(Pair { sequence: sequence.clone(), history: history.clone() });
    }

    fn truncate(&mut self, i: usize) {
        let Pair { sequence, history } = &mut self.pairs[i];
        // After a shift, the rest has also been computed from evicted tokens.
        if self.shifts && history.len() > CONTEXT {
            return;
        }
        let len = self.random.below(history.len() + 1);
        self.log.push(format!("truncate {i} to {len}"));
        history.truncate(sequence.truncate(len));
    }

    fn save_and_restore(&mut self, i: usize) {
        let Pair { sequence, history } = &mut self.pairs[i];
        let len = self.random.below(history.len() + 1);
        self.log.push(format!("save {len} of {i}"));
        let mut file = Vec::new();
        let saved = self.engine.save(sequence, MODEL, len, &mut file).unwrap();
        *sequence = self.engine.sequence();
        let size = file.len() as u64;
        self.engine.restore(sequence, MODEL, &file[..], size).unwrap();
        history.truncate(saved);
    }

    /// Feeds some of the sequences in one step, and compares the logits.
    fn feed(&mut self) {
        let mut inputs = Vec::new();
        for Pair { history, .. } in &self.pairs {
            let role = if self.random.below(2) == 0 { Role::Prompt } else { Role::Answer };
            let most = if role == Role::Prompt { 80 } else { 3 };
            let count = match self.random.below(3) {
                0 => 0,
                _ if self.shifts => 1 + self.random.below(most),
                _ => (1 + self.random.below(most)).min(CONTEXT - history.len()),
            };
            let token = |_| self.random.below(self.tiny.vocabulary) as u32;
            inputs.push((role, (0..count).map(token).collect::<Vec<_>>()));
        }
        let counts: Vec<_> = inputs.iter().map(|(_, tokens)| tokens.len()).collect();
        self.log.push(format!("feed {counts:?}"));
        let pairs = self.pairs.iter_mut().zip(&inputs);
        let mut feeds: Vec<_> = pairs
            .map(|(pair, (role, tokens))| Feed {
                sequence: &mut pair.sequence,
                tokens,
                role: *role,
                wanted: 0..usize::MAX,
                output: Output::Logits,
            })
            .collect();
        let mut found = vec![Vec::new(); feeds.len()];
        let each = &mut |feed: usize, _, logits: &[f32]| found[feed].push(logits.to_vec());
        self.engine.step(&mut feeds, each).unwrap();
        let rest: Vec<_> = feeds.iter().map(|feed| feed.tokens.len()).collect();
        for (i, (pair, (role, tokens))) in self.pairs.iter_mut().zip(&inputs).enumerate() {
            let computed = tokens.len() - rest[i];
            pair.history.extend(tokens[..computed].iter().map(|token| (*role, *token)));
            let expected = naive(self.alone, &pair.history, computed);
            assert!(found[i] == expected, "sequence {i} after {:?}", self.log);
        }
    }
}

fn check(tiny: &Tiny, flags: Flags) {
    let shifts = flags.context_shift;
    let how = How { flags, context: CONTEXT, ..How::default() };
    let wide = How { micro_batch: 512, threads: 1, ..how.clone() };
    for seed in 0..3 {
        with_engine(tiny, &how, |engine| {
            with_engine(tiny, &wide, |alone| {
                let (random, pairs, log) = (Random(seed), Vec::new(), Vec::new());
                Operations { tiny, engine, alone, shifts, random, pairs, log }.run();
            });
        });
    }
}

#[test]
fn sequences_with_rotated_keys_are_as_computed_from_their_tokens() {
    check(&Tiny::llama(), Flags::default());
    check(&Tiny::latent(), Flags::default());
}

#[test]
fn sequences_with_windows_are_as_computed_from_their_tokens() {
    let shared = Tiny { layers: 5, shared_kv: 2, ..Tiny::gemma3() };
    for tiny in [Tiny::gemma3(), Tiny::mixed(), shared] {
        check(&tiny, Flags::default());
    }
}

#[test]
fn sequences_of_different_frequencies_are_as_computed_from_their_tokens() {
    let case = &position::Case::all()[0];
    check(&case.tiny, case.flags.clone());
}

#[test]
fn sequences_that_shift_are_as_computed_from_their_tokens() {
    for tiny in [Tiny::llama(), Tiny::mixed()] {
        check(&tiny, Flags { context_shift: true, ..Flags::default() });
    }
}
