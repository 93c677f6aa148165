//! Measures speed against depth: an answer and a prompt at every step through a context.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use super::{cost::Cost, random::RandomTokens};
use crate::model::{Error, Options, Session};

/// The work at each depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Prompt tokens at each depth. They lead to the next depth.
    pub prompt: usize,
    /// Tokens that are generated at each depth and then removed.
    pub generation: usize,
    /// Whether to compute a token first that is not measured.
    pub warm_up: bool,
}

impl Settings {
    /// Returns the number of tokens that must fit in the context after a depth.
    pub fn longest(&self) -> usize {
        self.prompt.max(self.generation)
    }
}

/// The measurements at one depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The number of tokens before the measurement.
    pub depth: usize,
    /// Prompt tokens.
    pub prompt: usize,
    /// Generated tokens.
    pub generation: usize,
    /// Time of prompt processing.
    pub prompt_time: Duration,
    /// Time of generation.
    pub generation_time: Duration,
    /// The size of the KV cache at the end, in bytes.
    pub cache_bytes: usize,
}

/// Measures at every depth, from the length of `session` to the end of the context. Each point is
/// passed to `each`, which may stop the sweep.
///
/// # Errors
///
/// Returns an error if the model cannot be computed.
///
/// ```no_run
/// use std::ops::ControlFlow::Continue;
///
/// use rope_cpu::{eval::sweep::{Settings, sweep}, model::Model, rope::Flags};
///
/// let mut session = Model::open("model.gguf")?.session(&Flags::default(), 4096)?;
/// let settings = Settings { prompt: 512, generation: 32, warm_up: true };
/// sweep(&mut session, settings, &mut |point| {
///     println!("{}: {} tokens per second", point.depth, point.generation_per_second());
///     Continue(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sweep(
    session: &mut Session,
    settings: Settings,
    each: &mut dyn FnMut(Point) -> ControlFlow<()>,
) -> Result<(), Error> {
    let Settings { prompt, generation, warm_up } = settings;
    let mut random = RandomTokens::new(session.vocabulary());
    let go_on = &mut |_| ControlFlow::Continue(());
    let mut depth = session.tokens().len();
    if warm_up && depth < session.context() {
        session.retain_from(depth);
        session.extend(&random.take(1), go_on)?;
        session.truncate(depth);
    }
    while depth + settings.longest() <= session.context() {
        session.retain_from(depth);
        let tokens = random.take(generation);
        let began = Instant::now();
        for token in tokens {
            session.answer(token, go_on)?;
        }
        let generation_time = began.elapsed();

        session.truncate(depth);
        session.retain_from(depth + prompt);
        let tokens = random.take(prompt);
        let began = Instant::now();
        session.extend(&tokens, go_on)?;
        let prompt_time = began.elapsed();

        let cache_bytes = session.cache_bytes();
        let point = Point { depth, prompt, generation, prompt_time, generation_time, cache_bytes };
        if each(point).is_break() {
            break;
        }
        depth += prompt;
    }
    Ok(())
}

impl Point {
    /// Returns prompt tokens per second.
    pub fn prompt_per_second(&self) -> f64 {
        rate(self.prompt, self.prompt_time)
    }

    /// Returns generated tokens per second.
    pub fn generation_per_second(&self) -> f64 {
        rate(self.generation, self.generation_time)
    }

    /// Returns the upper bound of generated tokens per second: if only reading memory took time, at
    /// `read_bandwidth` bytes per second.
    pub fn generation_limit(&self, cost: &Cost, options: &Options, read_bandwidth: f64) -> f64 {
        let positions = self.depth..self.depth + self.generation;
        let bytes = cost.generation_bytes(positions, options.keys, options.values);
        self.generation as f64 * read_bandwidth / bytes
    }
}

fn rate(tokens: usize, time: Duration) -> f64 {
    // A tiny model may be done within the resolution of the clock.
    tokens as f64 / time.max(Duration::from_nanos(1)).as_secs_f64()
}
