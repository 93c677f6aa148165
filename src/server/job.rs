//! A request for one answer, and the reports on its progress.

use std::time::Duration;

use rope_cpu::{
    Token,
    generate::{End, Limits, Timings},
    model::Pooling,
    sample::{Probabilities, Settings},
};
use tokio::sync::mpsc::UnboundedSender;

use super::{adapters::Scales, error::ApiError, reasoning::Reasoning};

/// A request for one answer.
///
/// The answer is abandoned when the receiver of its updates is dropped.
pub struct Job {
    /// The tokens of the prompt; at least one.
    pub prompt: Vec<Token>,
    /// The settings of the sampler.
    pub sampling: Settings,
    /// The limits of the answer.
    pub limits: Limits,
    /// The form of the answer's reasoning; `None` if it has none.
    pub reasoning: Option<Reasoning>,
    /// The slot to use; `None` for any.
    pub slot: Option<usize>,
    /// Whether tokens that are in the cache already are reused.
    pub reuse: bool,
    /// The most drafts in a pass; `None` for as many as pay.
    pub drafts_max: Option<usize>,
    /// Whether a sequence was loaded from the cache on disk for it.
    pub restored: bool,
    /// The probabilities that are reported with each token.
    pub probabilities: Option<Wanted>,
    /// The pooling of the text's embedding, which is then all that is computed.
    pub pooling: Option<Pooling>,
    /// The scale of each adapter.
    pub adapter_scales: Scales,
    /// The longest time for generating, after which the answer ends as by its largest number of tokens.
    pub time_max: Option<Duration>,
    /// The index of the answer among those of its request.
    pub index: usize,
    /// The receiver of updates, with the index.
    pub updates: UnboundedSender<(usize, Update)>,
}

impl Job {
    /// Sends an update. That nobody receives it is seen before the next step.
    pub fn report(&self, update: Update) {
        let _ = self.updates.send((self.index, update));
    }
}

/// The probabilities that are reported with each token.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The number of most likely tokens.
    pub top: usize,
    /// Whether the probabilities are those after all samplers.
    pub after_sampling: bool,
    /// Whether the probabilities of the prompt's tokens are reported as well. The whole prompt must
    /// be computed for that: see [`Job::reuse`].
    pub of_prompt: bool,
    /// Whether the probability of the token that ends the answer is reported as well.
    pub of_end: bool,
}

/// A report of the scheduler on an answer.
#[derive(Debug)]
pub enum Update {
    /// A slot has begun to read the prompt.
    Started {
        /// The seed of the sampler.
        seed: u32,
    },
    /// A part of the prompt was read.
    Read(Reading),
    /// The probabilities of the prompt's next token, from the second one on.
    Prompt(Probabilities),
    /// A token was generated.
    Generated(Generated),
    /// The embedding of the text, or those of its tokens, was computed.
    Embedded(Vec<Vec<f32>>),
    /// The answer ended.
    Ended(Outcome),
    /// The answer failed.
    Failed(ApiError),
}

/// The progress of reading a prompt.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The number of tokens of the prompt.
    pub total: usize,
    /// The number of tokens that were in the cache already.
    pub cached: usize,
    /// The number of tokens processed, those in the cache included.
    pub processed: usize,
    /// The time since the slot began to read.
    pub elapsed: Duration,
}

/// A step of an answer.
#[derive(Debug, Default)]
pub struct Generated {
    /// The text that is certain now; it may be empty.
    pub text: String,
    /// The token; `None` at the end of an answer.
    pub token: Option<Token>,
    /// The probabilities, if they are wanted.
    pub probabilities: Option<Probabilities>,
    /// The timings so far.
    pub timings: Timings,
}

/// The end of an answer.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// The timings.
    pub timings: Timings,
    /// The place of the reused tokens: none, slot, memory or disk.
    pub source: &'static str,
    /// The slot.
    pub slot: usize,
    /// The number of tokens of the sequence: those of the prompt and of the answer.
    pub sequence_tokens: usize,
    /// Whether tokens were evicted from the context.
    pub evicted: bool,
}
