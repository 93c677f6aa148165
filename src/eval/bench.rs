//! Tests repeated at a depth, as llama-bench does them.
//!
//! The depth is filled once; every repetition forgets what the one before it added.

use std::{
    ops::{ControlFlow, Range},
    time::{Duration, Instant},
};

use super::{
    probe::Probes,
    random::RandomTokens,
    statistics::Spread,
    work::{Operations, Work},
};
use crate::{
    Token,
    model::{Error, Model, Options, Progress, Session},
    platform,
    rope::Rope,
};

/// What is measured together: a prompt, an answer, or one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Tokens that are read.
    pub prompt: usize,
    /// Tokens that are then written, one by one.
    pub generation: usize,
}

/// How long one repetition took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Reading the prompt.
    pub prompt: Duration,
    /// Writing.
    pub generation: Duration,
    /// From the start until the logits for the first new token were there.
    pub first_token: Duration,
}

/// What is being done, for those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The depth is filled.
    Depth {
        /// Tokens that are there.
        done: usize,
        /// Tokens that are to be.
        total: usize,
    },
    /// The test is run for the first time, and not counted.
    WarmUp,
    /// The test is run.
    Run {
        /// Which repetition, from 1.
        number: usize,
        /// Of how many.
        total: usize,
    },
}

/// What a test came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The test.
    pub test: Test,
    /// Tokens that were there before it.
    pub depth: usize,
    /// When it began, in UTC: `2026-01-31T23:59:59Z`.
    pub began: String,
    /// One for each repetition.
    pub samples: Vec<Sample>,
    /// Bytes that the cache held after it.
    pub cache_bytes: usize,
    /// The most memory that the process has held since the depth began to be filled, where the
    /// system tells.
    pub peak_memory_bytes: Option<u64>,
}

/// A session with a number of tokens in it, on top of which tests run.
pub struct Bench<'m> {
    session: Session<'m>,
    depth: Vec<Token>,
    random: RandomTokens,
}

impl<'m> Bench<'m> {
    /// Fills a session with `depth` tokens.
    pub fn new(
        model: &'m Model<'m>,
        rope: Rope,
        options: Options,
        depth: usize,
        progress: &mut dyn FnMut(Stage),
    ) -> Result<Self, Error> {
        platform::memory::reset_peak();
        let mut random = RandomTokens::new(model.config.vocabulary);
        let depth = random.take(depth);
        let mut session = Session::new(model, rope, options)?;
        session.retain_from(depth.len());
        let mut bench = Bench { session, depth, random };
        bench.fill(progress)?;
        Ok(bench)
    }

    /// Runs a test `repetitions` times.
    ///
    /// # Errors
    /// If it does not fit in the context behind the depth.
    pub fn measure(
        &mut self,
        test: Test,
        repetitions: usize,
        warm_up: bool,
        progress: &mut dyn FnMut(Stage),
    ) -> Result<Measured, Error> {
        let began = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        if warm_up {
            progress(Stage::WarmUp);
            self.run(Test { generation: test.generation.min(1), ..test })?;
        }
        let mut samples = Vec::with_capacity(repetitions);
        for number in 1..=repetitions {
            self.rewind(progress)?;
            progress(Stage::Run { number, total: repetitions });
            samples.push(self.run(test)?);
        }
        let measured = Measured {
            test,
            depth: self.depth.len(),
            began,
            samples,
            cache_bytes: self.session.cache_bytes(),
            peak_memory_bytes: platform::memory::peak_resident(),
        };
        self.rewind(progress)?;
        Ok(measured)
    }

    /// Forgets all that came after the depth.
    fn rewind(&mut self, progress: &mut dyn FnMut(Stage)) -> Result<(), Error> {
        // What is held can always be truncated to, so this fills nothing again.
        self.session.truncate(self.depth.len());
        self.fill(progress)
    }

    fn fill(&mut self, progress: &mut dyn FnMut(Stage)) -> Result<(), Error> {
        let there = self.session.tokens().len();
        let total = self.depth.len();
        if there == total {
            return Ok(());
        }
        progress(Stage::Depth { done: there, total });
        self.session.extend(&self.depth[there..], &mut |step| {
            if let Progress::Read(done) = step {
                progress(Stage::Depth { done: there + done, total });
            }
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    fn run(&mut self, test: Test) -> Result<Sample, Error> {
        let prompt = self.random.take(test.prompt);
        let generation = self.random.take(test.generation);
        let go_on = &mut |_| ControlFlow::Continue(());
        let began = Instant::now();
        if !prompt.is_empty() {
            self.session.extend(&prompt, go_on)?;
        }
        let prompt_took = began.elapsed();
        let mut first_token = (!prompt.is_empty()).then_some(prompt_took);
        for token in generation {
            self.session.answer(token, go_on)?;
            first_token.get_or_insert_with(|| began.elapsed());
        }
        let generation = match test.generation {
            0 => Duration::ZERO,
            _ => began.elapsed() - prompt_took,
        };
        Ok(Sample {
            prompt: if prompt.is_empty() { Duration::ZERO } else { prompt_took },
            generation,
            first_token: first_token.unwrap_or_default(),
        })
    }
}

impl Measured {
    /// The time of each repetition in nanoseconds.
    pub fn nanoseconds(&self) -> Vec<u64> {
        self.samples.iter().map(|s| (s.prompt + s.generation).as_nanos() as u64).collect()
    }

    /// The speed of each repetition: tokens read and written by the time of both.
    pub fn tokens_per_second(&self) -> Vec<f64> {
        let tokens = (self.test.prompt + self.test.generation) as f64;
        // A test of nothing but a tiny model may end within the resolution of the clock.
        self.nanoseconds().iter().map(|&ns| 1e9 * tokens / ns.max(1) as f64).collect()
    }

    /// The mean time until the first new token, in seconds.
    pub fn first_token_seconds(&self) -> f64 {
        self.mean_seconds(|sample| sample.first_token)
    }

    /// Bytes read for the answer in a second, if there is one.
    pub fn bytes_per_second(&self, work: &Work, options: &Options) -> Option<f64> {
        let bytes = work.generation_bytes(self.generated(), options.keys, options.values);
        let seconds = self.mean_seconds(|sample| sample.generation);
        (self.test.generation > 0 && seconds > 0.0).then(|| bytes / seconds)
    }

    /// The share of the bandwidth of memory that this is. It may be more than 1 for a model that
    /// fits in the caches.
    pub fn bandwidth_share(&self, work: &Work, options: &Options, probes: &Probes) -> Option<f64> {
        Some(self.bytes_per_second(work, options)? / probes.read_bandwidth)
    }

    /// Operations done for the prompt in a second, if there is one.
    pub fn operations_per_second(&self, work: &Work) -> Option<Operations> {
        let Operations { integer, float } = work.prompt_operations(self.read());
        let seconds = self.mean_seconds(|sample| sample.prompt);
        (self.test.prompt > 0 && seconds > 0.0)
            .then(|| Operations { integer: integer / seconds, float: float / seconds })
    }

    /// The share of the time of the prompt that these operations take where each kind of them runs
    /// as fast as it can.
    pub fn peak_share(&self, work: &Work, probes: &Probes) -> Option<f64> {
        let Operations { integer, float } = self.operations_per_second(work)?;
        Some(integer / probes.int8_dot + float / probes.f32_fma)
    }

    /// The positions of the prompt.
    fn read(&self) -> Range<usize> {
        self.depth..self.depth + self.test.prompt
    }

    /// The positions of the answer.
    fn generated(&self) -> Range<usize> {
        let start = self.read().end;
        start..start + self.test.generation
    }

    fn mean_seconds(&self, part: impl Fn(&Sample) -> Duration) -> f64 {
        let seconds: Vec<f64> = self.samples.iter().map(|s| part(s).as_secs_f64()).collect();
        Spread::of(&seconds).mean
    }
}
