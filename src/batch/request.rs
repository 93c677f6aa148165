//! A request for one answer, and the reports on its progress.

use std::{sync::Arc, time::Duration};

use crate::{
    Token,
    generate::{End, Limits, Timings},
    model::Pooling,
    sample::{Probabilities, Settings},
};

use super::{Error, status::Place};

/// The scale of each of a model's adapters.
pub type Scales = Arc<[f32]>;

/// A request for one answer.
///
/// ```
/// use rope_cpu::{batch::{Request, Wanted}, generate::{Limits, Stops}};
///
/// let limits = Limits { tokens_max: Some(64), stops: Stops::new(["\n"]), ..Limits::default() };
/// let probabilities = Wanted { top: 5, after_sampling: false, of_prompt: false, of_end: false };
/// let request = Request { limits, probabilities: Some(probabilities), ..Request::new(vec![1, 2, 3]) };
/// assert!(request.reuse && request.slot.is_none());
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    /// The tokens of the prompt: at least one, fewer than the context.
    pub prompt: Vec<Token>,
    /// The settings of the sampler.
    pub sampling: Settings,
    /// The limits of the answer.
    pub limits: Limits,
    /// The slot to use; `None` for any.
    pub slot: Option<usize>,
    /// Whether cached tokens may be reused.
    pub reuse: bool,
    /// Whether a slot's tokens are also reused where a new computation would give other bits: after a
    /// context shift, and before frequencies that change with the length. The answer then depends on
    /// the history of the sequence.
    pub inexact: bool,
    /// Maximum drafts in a pass; `None` chooses the number that pays.
    pub drafts_max: Option<usize>,
    /// The probabilities to report with each token.
    pub probabilities: Option<Wanted>,
    /// If set, computes only the text's embedding, with this pooling.
    pub pooling: Option<Pooling>,
    /// The scale of each adapter; `None` for the scales that the model was opened with.
    pub adapter_scales: Option<Scales>,
    /// The number of first tokens that a context shift keeps; `None` for those of the sequence that
    /// the request continues, and else none.
    pub keep: Option<usize>,
    /// The position that later prompts may return to, also in layers with a sliding window: see
    /// [`Sequence::retain_from`](crate::model::Sequence::retain_from).
    pub retain_from: Option<usize>,
    /// The owner of the request's tokens. A request reuses cached tokens of the same owner only. So
    /// nobody can infer from the time of an answer what others have sent.
    pub owner: u64,
}

impl Request {
    /// Creates a request with default settings: any slot, reuse of cached tokens, and no limit
    /// except the context.
    pub fn new(prompt: Vec<Token>) -> Self {
        Request {
            prompt,
            sampling: Settings::default(),
            limits: Limits::default(),
            slot: None,
            reuse: true,
            inexact: false,
            drafts_max: None,
            probabilities: None,
            pooling: None,
            adapter_scales: None,
            keep: None,
            retain_from: None,
            owner: 0,
        }
    }
}

/// Receives the updates of one answer. Any closure that takes an [`Update`] is a reply.
///
/// ```
/// use std::sync::mpsc::{SyncSender, sync_channel};
/// use rope_cpu::batch::{Reply, Update};
///
/// /// Stops the answer once the receiver is gone.
/// struct Channel(Option<SyncSender<Update>>);
///
/// impl Reply for Channel {
///     fn update(&mut self, update: Update) {
///         self.0.take_if(|sender| sender.try_send(update).is_err());
///     }
///
///     fn is_closed(&self) -> bool {
///         self.0.is_none()
///     }
/// }
///
/// let (sender, receiver) = sync_channel(1024);
/// let reply = Channel(Some(sender));
/// assert!(!reply.is_closed());
/// ```
pub trait Reply: Send {
    /// Takes an update. The scheduler calls it between and within steps, so it must not block.
    fn update(&mut self, update: Update);

    /// Returns whether the receiver has room for more updates. While it returns `false`, the answer
    /// pauses and keeps its slot.
    fn is_ready(&self) -> bool {
        true
    }

    /// Returns whether the receiver wants no more. The scheduler then ends the answer before the next
    /// step, with [`End::Caller`].
    fn is_closed(&self) -> bool {
        false
    }
}

impl<F: FnMut(Update) + Send> Reply for F {
    fn update(&mut self, update: Update) {
        self(update);
    }
}

/// A request in the scheduler.
pub(super) struct Job {
    pub request: Request,
    pub reply: Box<dyn Reply>,
    /// The number of its request. Answers that were submitted together share it.
    pub group: u64,
    /// The number of answers submitted before it.
    pub arrival: u64,
    /// Its place in the queue, shared with the requests submitted with it; `None` once it has a
    /// slot.
    pub place: Option<Arc<Place>>,
    /// The scale of each adapter.
    pub scales: Scales,
    /// Whether the disk cache has loaded a sequence for it.
    pub restored: bool,
    /// The files that were loaded for parts of its prompt.
    pub loaded: Vec<String>,
    /// Whether no other file has a part of its prompt.
    pub searched: bool,
}

impl Job {
    /// Returns whether cached tokens can be reused. They cannot if the outputs of all tokens are
    /// requested.
    pub fn reuses(&self) -> bool {
        let Request { reuse, pooling, probabilities, .. } = &self.request;
        *reuse && pooling.is_none() && !probabilities.is_some_and(|wanted| wanted.of_prompt)
    }

    /// Ends the answer if its receiver wants no more. Returns whether it did.
    pub fn end_abandoned(&mut self) -> bool {
        let closed = self.reply.is_closed();
        if closed {
            let outcome = Outcome::outside_slots(Timings::default(), self.request.sampling.drawn);
            self.reply.update(Update::Ended(outcome));
        }
        closed
    }
}

impl Outcome {
    /// Returns the outcome of an answer that its receiver ended while it was in no slot.
    pub(super) fn outside_slots(timings: Timings, drawn: u64) -> Self {
        Outcome {
            end: End::Caller,
            timings,
            source: "none",
            slot: 0,
            sequence_tokens: 0,
            evicted: 0,
            recomputed: 0,
            drawn,
        }
    }
}

/// The probabilities to report with each token.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Maximum tokens to report, most likely first.
    pub top: usize,
    /// Reports the probabilities after all samplers.
    pub after_sampling: bool,
    /// Reports the probabilities of the prompt's tokens as well. This computes the whole prompt:
    /// see [`Request::reuse`].
    pub of_prompt: bool,
    /// Reports the probability of the token that ends the answer as well.
    pub of_end: bool,
}

/// A report of the scheduler on an answer.
#[derive(Debug)]
pub enum Update {
    /// A slot has started to process the prompt.
    Started {
        /// The seed of the sampler.
        seed: u32,
    },
    /// Part of the prompt was processed.
    Read(Reading),
    /// Earlier tokens are computed again, because a longer sequence has other RoPE frequencies.
    Recomputing {
        /// The number of tokens.
        tokens: usize,
    },
    /// The probabilities of the prompt's next token, starting with the second one.
    Prompt(Probabilities),
    /// A token was generated, or the answer ended with some held-back text.
    Generated(Generated),
    /// The embedding of the text, or the embeddings of its tokens.
    Embedded(Vec<Vec<f32>>),
    /// The answer ended.
    Ended(Outcome),
    /// The answer failed.
    Failed(Error),
}

/// The progress of prompt processing.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The number of tokens of the prompt.
    pub total: usize,
    /// The number of tokens found in the cache.
    pub cached: usize,
    /// The number of tokens processed, including cached ones.
    pub processed: usize,
    /// The time since the slot started the prompt.
    pub elapsed: Duration,
}

/// The result of one step of an answer.
#[derive(Debug, Default)]
pub struct Generated {
    /// The new text that is certain; it may be empty.
    pub text: String,
    /// The token; `None` at the end of an answer.
    pub token: Option<Token>,
    /// The probabilities, if requested.
    pub probabilities: Option<Probabilities>,
    /// The timings so far.
    pub timings: Timings,
}

/// How an answer ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// The timings.
    pub timings: Timings,
    /// The origin of the reused tokens: none, slot, memory or disk.
    pub source: &'static str,
    /// The slot.
    pub slot: usize,
    /// The number of tokens of the prompt and of the answer.
    pub sequence_tokens: usize,
    /// The number of tokens evicted from the context.
    pub evicted: usize,
    /// The number of tokens computed again.
    pub recomputed: usize,
    /// How many random numbers have been drawn from the seed: see [`Settings::drawn`].
    pub drawn: u64,
}
