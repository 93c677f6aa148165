//! Measures the speed of several sequences at once, as llama-batched-bench does.
//!
//! The prompts of all sequences are processed together. Then each step generates a token for every
//! sequence.

use std::time::{Duration, Instant};

use super::{bench::Stage, random::RandomTokens, statistics::Spread};
use crate::{
    Token,
    model::{Engine, Error, Feed, Output, Role, Sequence},
    platform,
};

/// A speed test of several sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// The number of sequences.
    pub sequences: usize,
    /// The number of prompt tokens of a sequence.
    pub prompt: usize,
    /// The number of tokens that are then generated in each sequence.
    pub generation: usize,
    /// Whether the sequences share one prompt, which is processed once.
    pub shared: bool,
}

impl Test {
    /// Returns the number of prompt tokens that are processed.
    pub fn read(&self) -> usize {
        if self.shared { self.prompt } else { self.sequences * self.prompt }
    }

    /// Returns the number of tokens that are generated.
    pub fn generated(&self) -> usize {
        self.sequences * self.generation
    }
}

/// The measurement of one repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Time of prompt processing.
    pub prompt: Duration,
    /// Time of generation.
    pub generation: Duration,
    /// The bytes of keys and values of all sequences at the end.
    pub cache_bytes: usize,
}

/// The measurements of a test.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The test.
    pub test: Test,
    /// The measurement of each repetition.
    pub samples: Vec<Sample>,
    /// The peak memory of the process in bytes since the start of the test, if the system reports
    /// it.
    pub peak_memory_bytes: Option<u64>,
}

/// Runs a test `repetitions` times.
///
/// # Errors
///
/// If a sequence does not fit in the context, or all of them in the memory of the engine.
///
/// ```no_run
/// use rope_cpu::{
///     eval::batched::{Test, measure},
///     model::{Engine, Model, Options},
///     rope::{Flags, Rope},
/// };
///
/// let model = Model::open("model.gguf")?;
/// let rope = Rope::new(model.rope_plan(&Flags::default(), 1024)?);
/// let mut engine = Engine::new(&model, rope, Options::new(1024))?;
/// let test = Test { sequences: 4, prompt: 512, generation: 32, shared: false };
/// let measured = measure(&mut engine, test, 3, true, &mut |_| {})?;
/// println!("tokens per second: {:?}", measured.speed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn measure(
    engine: &mut Engine,
    test: Test,
    repetitions: usize,
    warm_up: bool,
    progress: &mut dyn FnMut(Stage),
) -> Result<Measured, Error> {
    platform::memory::reset_peak();
    let mut random = RandomTokens::new(engine.vocabulary());
    if warm_up {
        progress(Stage::WarmUp);
        run(engine, &mut random, Test { generation: test.generation.min(1), ..test })?;
    }
    let mut samples = Vec::with_capacity(repetitions);
    for number in 1..=repetitions {
        progress(Stage::Run { number, total: repetitions });
        samples.push(run(engine, &mut random, test)?);
    }
    Ok(Measured { test, samples, peak_memory_bytes: platform::memory::peak_resident() })
}

fn run(engine: &mut Engine, random: &mut RandomTokens, test: Test) -> Result<Sample, Error> {
    let Test { sequences, prompt, generation, shared } = test;
    let prompts = if shared { 1 } else { sequences };
    let prompts: Vec<_> = (0..prompts).map(|_| random.take(prompt)).collect();
    let answers: Vec<_> = (0..sequences).map(|_| random.take(generation)).collect();
    let began = Instant::now();
    let mut all: Vec<_> = prompts.iter().map(|_| engine.sequence()).collect();
    extend(engine, &mut all, prompts.iter().map(Vec::as_slice), Role::Prompt)?;
    if let (true, Some(first)) = (shared, all.first().cloned()) {
        all.resize(sequences, first);
    }
    let prompt = began.elapsed();
    for i in 0..generation {
        extend(engine, &mut all, answers.iter().map(|answer| &answer[i..=i]), Role::Answer)?;
    }
    let generation = began.elapsed() - prompt;
    Ok(Sample { prompt, generation, cache_bytes: engine.pool().used_bytes() })
}

/// Extends all sequences by their tokens in the same steps, and computes the last tokens' logits.
fn extend<'t>(
    engine: &mut Engine,
    sequences: &mut [Sequence],
    tokens: impl Iterator<Item = &'t [Token]>,
    role: Role,
) -> Result<(), Error> {
    let feeds = sequences.iter_mut().zip(tokens).map(|(sequence, tokens)| {
        let end = sequence.tokens().len() + tokens.len();
        let wanted = end.saturating_sub(1)..end;
        Feed { sequence, tokens, role, wanted, output: Output::Logits }
    });
    let mut feeds: Vec<_> = feeds.collect();
    while feeds.iter().any(|feed| !feed.tokens.is_empty()) {
        engine.step(&mut feeds, &mut |_, _, _| {})?;
    }
    Ok(())
}

impl Measured {
    /// Returns the mean time of prompt processing in seconds.
    pub fn prompt_seconds(&self) -> f64 {
        self.mean(|sample| sample.prompt)
    }

    /// Returns the mean time of generation in seconds.
    pub fn generation_seconds(&self) -> f64 {
        self.mean(|sample| sample.generation)
    }

    /// Returns prompt tokens per second; `None` without prompts.
    pub fn prompt_speed(&self) -> Option<f64> {
        speed(self.test.read(), self.prompt_seconds())
    }

    /// Returns generated tokens per second; `None` if there are none.
    pub fn generation_speed(&self) -> Option<f64> {
        speed(self.test.generated(), self.generation_seconds())
    }

    /// Returns the number of all tokens per second.
    pub fn speed(&self) -> Option<f64> {
        let seconds = self.prompt_seconds() + self.generation_seconds();
        speed(self.test.read() + self.test.generated(), seconds)
    }

    fn mean(&self, part: impl Fn(&Sample) -> Duration) -> f64 {
        let seconds: Vec<f64> = self.samples.iter().map(|s| part(s).as_secs_f64()).collect();
        Spread::of(&seconds).mean
    }
}

/// Returns the tokens per second; `None` without tokens.
fn speed(tokens: usize, seconds: f64) -> Option<f64> {
    (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
}
