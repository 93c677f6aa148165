//! The tests that the options select.

use super::{
    Args,
    lists::{self, Pair},
};
use crate::cli::error::Error;
use rope_cpu::eval::{batched, bench};

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
    /// If there are no tests.
    pub fn of(args: &Args) -> Result<Self, Error> {
        let prompts = lists::all(&args.n_prompt, 512);
        let generations = lists::all(&args.n_gen, 128);
        let tests = match args.n_parallel.is_empty() {
            true => Tests::Single(single(&prompts, &generations, &args.prompt_gen)),
            false => {
                let sequences = lists::all(&args.n_parallel, 1);
                Tests::Batched(batched(&prompts, &generations, &sequences, args.shared_prompt))
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

    /// Returns the most tokens that a test adds to a sequence.
    pub fn longest(&self) -> usize {
        let longest = match self {
            Tests::Single(tests) => tests.iter().map(|t| t.prompt + t.generation).max(),
            Tests::Batched(tests) => tests.iter().map(|t| t.prompt + t.generation).max(),
        };
        longest.unwrap_or(0)
    }
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
