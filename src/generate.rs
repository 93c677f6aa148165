//! An answer in progress: its limits, its text, and why it ends. The scheduler of
//! [`batch`](crate::batch) computes it.

mod answer;
mod generation;
mod reasoning;
pub mod speculation;
mod stop;

use std::{ops::AddAssign, time::Duration};

use thiserror::Error;

use crate::{
    Token,
    constraint::{self, Constraint},
    model, sample,
};
pub use answer::{Answer, Step};
pub(crate) use generation::{Generation, Next, Writing, Written};
pub use reasoning::Reasoning;
pub use stop::Stops;

/// The limits and options of an answer.
///
/// ```
/// use std::time::Duration;
/// use rope_cpu::generate::{Limits, Stops};
///
/// let limits = Limits {
///     tokens_max: Some(256),
///     stops: Stops::new(["\n\n"]),
///     time_max: Some(Duration::from_secs(30)),
///     ..Limits::default()
/// };
/// ```
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Maximum tokens to generate; `None` for no limit except the context.
    pub tokens_max: Option<usize>,
    /// Stop strings: the answer stops before any of these texts.
    pub stops: Stops,
    /// Never chooses tokens that end the answer.
    pub ignore_end: bool,
    /// Reports control tokens as text.
    pub show_special: bool,
    /// The grammar that the answer follows, in its initial state.
    pub constraint: Option<Constraint>,
    /// Control tokens that are part of the text, because they mark parts of an answer: see
    /// [`Format::markers`](crate::chat::Format::markers).
    pub preserved: Vec<Token>,
    /// The limit on the reasoning before the answer.
    pub reasoning: Option<Reasoning>,
    /// Maximum time for generating. The answer then ends as with [`tokens_max`](Self::tokens_max).
    pub time_max: Option<Duration>,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The model generated a token that ends the answer.
    Model,
    /// A stop string followed. It is not part of the text.
    Stop(String),
    /// The answer is complete: its constraint allows no further token.
    Complete,
    /// The answer has `tokens_max` tokens, or reached `time_max`.
    TokensMax,
    /// The context is full.
    ContextFull,
    /// Its receiver ended it.
    Caller,
}

/// Counts and times of an answer: prompt processing, then generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// The number of prompt tokens found in the cache.
    pub reused: usize,
    /// The number of prompt tokens that speculative [`prefill`](speculation::prefill) left out.
    pub omitted: usize,
    /// The number of prompt tokens processed: not all if the receiver ended it.
    pub read: usize,
    /// The time for prompt processing.
    pub reading: Duration,
    /// The number of generated tokens.
    pub generated: usize,
    /// The number of forward passes. The first generated token needs none, since the prompt's last
    /// pass has its logits. The model's end token needs one, although it does not count as
    /// generated.
    pub steps: usize,
    /// The number of passes with drafts: see [`speculation`].
    pub steps_with_drafts: usize,
    /// The number of drafts in these passes.
    pub drafted: usize,
    /// The number of accepted drafts. Each saved a pass.
    pub accepted: usize,
    /// The time for the steps, including sampling and reporting each token.
    pub generating: Duration,
}

impl AddAssign for Timings {
    fn add_assign(&mut self, more: Self) {
        self.reused += more.reused;
        self.omitted += more.omitted;
        self.read += more.read;
        self.reading += more.reading;
        self.generated += more.generated;
        self.steps += more.steps;
        self.steps_with_drafts += more.steps_with_drafts;
        self.drafted += more.drafted;
        self.accepted += more.accepted;
        self.generating += more.generating;
    }
}

/// An error while generating.
#[derive(Debug, Error)]
pub enum Error {
    /// The prompt has no tokens.
    #[error("the prompt is empty: there is nothing to continue")]
    PromptEmpty,
    /// The prompt does not fit in the context, which does not shift. Nothing was computed.
    #[error(
        "the prompt of {tokens} tokens does not fit in the context of {context}: choose a larger \
         context with -c"
    )]
    PromptTooLong {
        /// The number of prompt tokens.
        tokens: usize,
        /// The context in positions.
        context: usize,
    },
    /// The forward pass failed.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// The sampler failed.
    #[error(transparent)]
    Sample(#[from] sample::Error),
    /// The constraint failed.
    #[error(transparent)]
    Constraint(#[from] constraint::Error),
}
