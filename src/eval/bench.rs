//! Repeats speed tests at a depth, as llama-bench does.
//!
//! The depth is filled once; every repetition removes the tokens that the previous one added.

use std::{
    ops::{ControlFlow, Range},
    time::{Duration, Instant},
};

use super::{
    cost::{Cost, Operations},
    probe::Probes,
    random::RandomTokens,
    statistics::Spread,
};
use crate::{
    Token,
    kv_cache::CacheType,
    model::{Error, Model, Options, Progress, Session},
    platform,
    rope::Rope,
};

/// A speed test: a prompt, an answer, or a prompt and then an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Prompt tokens.
    pub prompt: usize,
    /// Tokens that are then generated, one by one.
    pub generation: usize,
}

/// The times of one repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time of prompt processing.
    pub prompt: Duration,
    /// Time of generation.
    pub generation: Duration,
    /// The time from the start until the logits for the first new token were computed.
    pub first_token: Duration,
}

/// The stage of a measurement, for showing its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The depth is filled.
    Depth {
        /// The number of tokens read so far.
        done: usize,
        /// The number of tokens of the depth.
        total: usize,
    },
    /// The test is run for the first time, without being measured.
    WarmUp,
    /// The test is run and measured.
    Run {
        /// The number of the repetition, from 1.
        number: usize,
        /// The total number of repetitions.
        total: usize,
    },
}

/// The measurements of a test.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The test.
    pub test: Test,
    /// The number of tokens in the context before the test.
    pub depth: usize,
    /// The start of the test, in UTC: `2026-01-31T23:59:59Z`.
    pub began: String,
    /// The times of each repetition.
    pub samples: Vec<Sample>,
    /// The size of the KV cache after the test, in bytes.
    pub cache_bytes: usize,
    /// The peak memory of the process in bytes, with filling the depth, if the system reports it.
    pub peak_memory_bytes: Option<u64>,
}

/// A session filled up to a depth, from which tests run.
///
/// ```no_run
/// use rope_cpu::{
///     eval::bench::{Bench, Test},
///     model::{Model, Options},
///     rope::{Flags, Rope},
/// };
///
/// let model = Model::open("model.gguf")?;
/// let rope = Rope::new(model.rope_plan(&Flags::default(), 4096)?);
/// let mut bench = Bench::new(&model, rope, Options::new(4096), 0, &mut |_| {})?;
/// let measured = bench.measure(Test { prompt: 512, generation: 0 }, 5, true, &mut |_| {})?;
/// println!("tokens per second: {:?}", measured.prompt_tokens_per_second());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Bench {
    session: Session,
    micro_batch: usize,
    depth: Vec<Token>,
    random: RandomTokens,
}

impl Bench {
    /// Creates a session and fills it with `depth` tokens.
    pub fn new(
        model: &Model,
        rope: Rope,
        options: Options,
        depth: usize,
        progress: &mut dyn FnMut(Stage),
    ) -> Result<Self, Error> {
        platform::memory::reset_peak();
        let mut random = RandomTokens::new(model.config().vocabulary);
        let depth = random.take(depth);
        let micro_batch = options.micro_batch;
        let mut session = Session::new(model, rope, options)?;
        session.retain_from(depth.len());
        let mut bench = Bench { session, micro_batch, depth, random };
        bench.fill(progress)?;
        Ok(bench)
    }

    /// Runs a test `repetitions` times.
    ///
    /// # Errors
    ///
    /// If the test does not fit in the context after the depth.
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
            // One pass over the weights warms up everything.
            let prompt = test.prompt.min(self.micro_batch);
            self.run(Test { prompt, generation: test.generation.min(1) })?;
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

    /// Removes all tokens after the depth.
    fn rewind(&mut self, progress: &mut dyn FnMut(Stage)) -> Result<(), Error> {
        // The retained keys allow truncating to the depth, so no token is computed again.
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
    /// Returns the time of each repetition in nanoseconds.
    pub fn nanoseconds(&self) -> Vec<u64> {
        self.samples.iter().map(|s| (s.prompt + s.generation).as_nanos() as u64).collect()
    }

    /// Returns the speed of each repetition: tokens of prompt and answer per second.
    pub fn tokens_per_second(&self) -> Vec<f64> {
        let tokens = (self.test.prompt + self.test.generation) as f64;
        // With a tiny model, a test may end within the resolution of the clock.
        self.nanoseconds().iter().map(|&ns| 1e9 * tokens / ns.max(1) as f64).collect()
    }

    /// Returns the mean speed of prompt processing; `None` without a prompt.
    pub fn prompt_tokens_per_second(&self) -> Option<f64> {
        self.mean_speed(self.test.prompt, |sample| sample.prompt)
    }

    /// Returns the mean speed of generation; `None` without generated tokens.
    pub fn generation_tokens_per_second(&self) -> Option<f64> {
        self.mean_speed(self.test.generation, |sample| sample.generation)
    }

    /// Returns the mean time until the first new token in seconds.
    pub fn first_token_seconds(&self) -> f64 {
        self.mean_seconds(|sample| sample.first_token)
    }

    /// Returns the bytes read per second in generation; `None` without generated tokens.
    pub fn bytes_per_second(&self, cost: &Cost, options: &Options) -> Option<f64> {
        let bytes = cost.generation_bytes(self.generated(), options.keys, options.values);
        let seconds = self.mean_seconds(|sample| sample.generation);
        (self.test.generation > 0 && seconds > 0.0).then(|| bytes / seconds)
    }

    /// Returns the share of the memory bandwidth that generation reaches. It may exceed 1 for a
    /// model that fits in the CPU caches.
    pub fn bandwidth_share(&self, cost: &Cost, options: &Options, probes: &Probes) -> Option<f64> {
        Some(self.bytes_per_second(cost, options)? / probes.read_bandwidth)
    }

    /// Returns the operations per second in prompt processing; `None` without a prompt.
    pub fn operations_per_second(&self, cost: &Cost, options: &Options) -> Option<Operations> {
        let Operations { integer, float, attention } =
            cost.prompt_operations(self.read(), options.micro_batch);
        let seconds = self.mean_seconds(|sample| sample.prompt);
        (self.test.prompt > 0 && seconds > 0.0).then(|| Operations {
            integer: integer / seconds,
            float: float / seconds,
            attention: attention / seconds,
        })
    }

    /// Returns the share of the prompt's time that its operations need at their peak speeds.
    pub fn peak_share(&self, cost: &Cost, options: &Options, probes: &Probes) -> Option<f64> {
        let Operations { integer, float, attention } = self.operations_per_second(cost, options)?;
        let with = |rows| match rows {
            CacheType::F32 => attention / 2.0 / probes.f32_fma,
            _ => attention / 2.0 / probes.int8_dot,
        };
        let products = integer / probes.int8_dot + float / probes.f32_fma;
        Some(products + with(options.keys) + with(options.values))
    }

    /// Returns the positions of the prompt.
    fn read(&self) -> Range<usize> {
        self.depth..self.depth + self.test.prompt
    }

    /// Returns the positions of the generated tokens.
    fn generated(&self) -> Range<usize> {
        let start = self.read().end;
        start..start + self.test.generation
    }

    fn mean_speed(&self, tokens: usize, part: impl Fn(&Sample) -> Duration) -> Option<f64> {
        let seconds = self.samples.iter().map(|s| part(s).as_secs_f64().max(1e-9));
        let speeds: Vec<f64> = seconds.map(|seconds| tokens as f64 / seconds).collect();
        (tokens > 0).then(|| Spread::of(&speeds).mean)
    }

    fn mean_seconds(&self, part: impl Fn(&Sample) -> Duration) -> f64 {
        let seconds: Vec<f64> = self.samples.iter().map(|s| part(s).as_secs_f64()).collect();
        Spread::of(&seconds).mean
    }
}
