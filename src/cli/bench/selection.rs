//! The tests that the options select.

use super::{
    Args,
    batched::positions,
    lists::{self, Pair},
};
use crate::cli::{error::Error, note};
use rope_cpu::{
    eval::{batched, bench},
    platform::processors::plural,
};

/// The tests of each model in each setting.
pub enum Tests {
    /// Tests of one sequence, as in llama-bench.
    Single(Vec<bench::Test>),
    /// Tests of several sequences, as in llama-batched-bench.
    Batched(Vec<batched::Test>),
}

impl Tests {
    /// Returns the tests, in the order of llama-bench or of llama-batched-bench.
    ///
    /// # Errors
    /// If there are no tests, or if all need a larger context.
    pub fn of(args: &Args) -> Result<Self, Error> {
        let prompts = lists::all(&args.n_prompt, 512);
        let generations = lists::all(&args.n_gen, 128);
        let tests = match args.n_parallel.is_empty() {
            true => Tests::Single(single(&prompts, &generations, &args.prompt_gen)),
            false => {
                let sequences = lists::all(&args.n_parallel, 1);
                let tests = batched(&prompts, &generations, &sequences, args.shared_prompt);
                Tests::Batched(within(args.context.unwrap_or(usize::MAX), tests)?)
            }
        };
        match tests.len() {
            0 => Err(Error::usage(
                "there is nothing to measure: give -p, -n or -pg a number above 0",
            )),
            _ => Ok(tests),
        }
    }

    /// Returns the number of tests.
    pub fn len(&self) -> usize {
        match self {
            Tests::Single(tests) => tests.len(),
            Tests::Batched(tests) => tests.len(),
        }
    }

    /// Returns the maximum number of tokens that a test adds to a sequence.
    pub fn longest(&self) -> usize {
        let longest = match self {
            Tests::Single(tests) => tests.iter().map(|t| t.prompt + t.generation).max(),
            Tests::Batched(tests) => tests.iter().map(|t| t.prompt + t.generation).max(),
        };
        longest.unwrap_or(0)
    }
}

/// Returns the tests that need at most `context` tokens in all sequences. A note counts the others.
fn within(context: usize, tests: Vec<batched::Test>) -> Result<Vec<batched::Test>, Error> {
    let all = tests.len();
    let least = tests.iter().map(positions).min().unwrap_or(0);
    let fitting: Vec<_> = tests.into_iter().filter(|test| positions(test) <= context).collect();
    match all - fitting.len() {
        0 => {}
        skipped if skipped < all => note(format_args!(
            "note: skipped {} of {all}, with more tokens than --ctx {context}",
            plural(skipped, "test")
        )),
        _ => {
            return Err(Error::usage(format_args!(
                "--ctx {context}: the smallest test has {least} tokens in all sequences; give at \
                 least that"
            )));
        }
    }
    Ok(fitting)
}

fn single(prompts: &[usize], generations: &[usize], pairs: &[Pair]) -> Vec<bench::Test> {
    let prompts = prompts.iter().map(|&prompt| (prompt, 0));
    let generations = generations.iter().map(|&generation| (0, generation));
    let pairs = pairs.iter().map(|&Pair(prompt, generation)| (prompt, generation));
    let tests = prompts.chain(generations).chain(pairs);
    let tests = tests.map(|(prompt, generation)| bench::Test { prompt, generation });
    tests.filter(|test| test.prompt + test.generation > 0).collect()
}

fn batched(
    prompts: &[usize],
    generations: &[usize],
    sequences: &[usize],
    shared: bool,
) -> Vec<batched::Test> {
    let mut tests = Vec::new();
    for &prompt in prompts {
        for &generation in generations {
            if prompt + generation > 0 {
                tests.extend(sequences.iter().map(|&sequences| batched::Test {
                    sequences,
                    prompt,
                    generation,
                    shared,
                }));
            }
        }
    }
    tests
}
