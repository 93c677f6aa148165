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
    /// The number of prompt tokens that are read at each depth. They lead to the next depth.
    pub prompt: usize,
    /// The number of tokens that are generated at each depth and then removed.
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
    /// The number of prompt tokens read.
    pub prompt: usize,
    /// The number of tokens generated.
    pub generation: usize,
    /// The time for reading the prompt.
    pub prompt_time: Duration,
    /// The time for generating.
    pub generation_time: Duration,
    /// The size of the KV cache at the end, in bytes.
    pub cache_bytes: usize,
}

/// Measures at every depth from that of `session` on, up to the end of the context. Each point is
/// passed to `each`, which may stop the sweep.
///
/// # Errors
///
/// Returns an error if the model cannot be computed.
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
    /// Returns the number of prompt tokens read per second.
    pub fn prompt_per_second(&self) -> f64 {
        rate(self.prompt, self.prompt_time)
    }

    /// Returns the number of tokens generated per second.
    pub fn generation_per_second(&self) -> f64 {
        rate(self.generation, self.generation_time)
    }

    /// Returns the number of tokens per second that could be generated if only reading memory took
    /// time, at `read_bandwidth` bytes per second.
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
