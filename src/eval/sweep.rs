//! Speed against depth: at every step through a context, an answer and a prompt.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use super::{random::RandomTokens, work::Work};
use crate::model::{Error, Model, Options, Session};

/// What is done at each depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Tokens that are read at each depth, which leads to the next one.
    pub prompt: usize,
    /// Tokens that are written at each depth, and forgotten.
    pub generation: usize,
    /// Whether to compute something first that does not count.
    pub warm_up: bool,
}

impl Settings {
    /// Tokens for which there must be room behind a depth.
    pub fn longest(&self) -> usize {
        self.prompt.max(self.generation)
    }
}

/// What one depth came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Tokens that were there.
    pub depth: usize,
    /// Tokens that were read.
    pub prompt: usize,
    /// Tokens that were written.
    pub generation: usize,
    /// How long reading took.
    pub prompt_time: Duration,
    /// How long writing took.
    pub generation_time: Duration,
    /// Bytes that the cache held in the end.
    pub cache_bytes: usize,
}

/// Measures at every depth from that of `session` on, for as long as there is room, and hands each
/// point to `each`, which may stop it.
///
/// # Errors
/// If the model cannot be computed.
pub fn sweep(
    session: &mut Session<'_>,
    model: &Model<'_>,
    settings: Settings,
    each: &mut dyn FnMut(Point) -> ControlFlow<()>,
) -> Result<(), Error> {
    let Settings { prompt, generation, warm_up } = settings;
    let mut random = RandomTokens::new(model.config.vocabulary);
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
    /// Tokens read in a second.
    pub fn prompt_per_second(&self) -> f64 {
        rate(self.prompt, self.prompt_time)
    }

    /// Tokens written in a second.
    pub fn generation_per_second(&self) -> f64 {
        rate(self.generation, self.generation_time)
    }

    /// Tokens that could be written in a second if nothing but reading bytes took time, where
    /// `read_bandwidth` of them are read in a second.
    pub fn generation_limit(&self, work: &Work, options: &Options, read_bandwidth: f64) -> f64 {
        let positions = self.depth..self.depth + self.generation;
        let bytes = work.generation_bytes(positions, options.keys, options.values);
        self.generation as f64 * read_bandwidth / bytes
    }
}

fn rate(tokens: usize, time: Duration) -> f64 {
    // A tiny model may be done within the resolution of the clock.
    tokens as f64 / time.max(Duration::from_nanos(1)).as_secs_f64()
}
