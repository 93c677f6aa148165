//! Generation of text from a prompt. Nothing is printed: each step is reported to a callback, which
//! can stop the generation.

mod answer;
pub mod speculation;
mod stop;

use std::{
    ops::{AddAssign, ControlFlow},
    time::{Duration, Instant},
};

use thiserror::Error;

use crate::{
    Token,
    constraint::{self, Constraint},
    model::{self, Progress, Session},
    sample::{self, Sampler},
    tokenizer::{Tokenizer, common_prefix},
};
pub use answer::{Answer, Step};
use speculation::Speculation;
pub use stop::Stops;

/// The limits and options of an answer.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// The largest number of tokens to generate; `None` for no limit except the context.
    pub tokens_max: Option<usize>,
    /// Stop strings: the answer ends before any of these texts.
    pub stops: Stops,
    /// Whether tokens that end the answer are never chosen.
    pub ignore_end: bool,
    /// Whether control tokens are reported as text.
    pub show_special: bool,
    /// The grammar that the answer follows, at its start.
    pub constraint: Option<Constraint>,
    /// The control tokens whose names are part of the text, because they mark parts of an answer: see
    /// [`Format::markers`](crate::chat::Format::markers).
    pub preserved: Vec<Token>,
}

/// A step of the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'t> {
    /// A part of the prompt was read.
    Reading {
        /// The number of prompt tokens read so far, including reused ones.
        done: usize,
        /// The number of prompt tokens that were already in the cache.
        reused: usize,
        /// The number of prompt tokens.
        total: usize,
    },
    /// The RoPE frequencies change at this length of the sequence, so all tokens are computed again.
    Recomputing {
        /// The number of tokens computed again so far.
        done: usize,
        /// The number of tokens to compute again.
        total: usize,
    },
    /// A token was generated. Its text may be empty: incomplete characters, and text that may become
    /// a stop string, are held back.
    Text(&'t str),
}

/// The reason why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The model generated a token that ends the answer.
    Model,
    /// This stop string followed; it is not part of the text.
    Stop(String),
    /// The answer is complete: its constraint permits no further token.
    Complete,
    /// `tokens_max` tokens were generated.
    TokensMax,
    /// The context is full.
    ContextFull,
    /// The callback stopped it.
    Caller,
}

/// A generated text, with its timings.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The text.
    pub text: String,
    /// The generated tokens, including those that spell a stop string, but not one by which the
    /// model ended the answer.
    pub tokens: Vec<Token>,
    /// The reason why the answer ended.
    pub end: End,
    /// The timings.
    pub timings: Timings,
}

/// The number of tokens read and generated, and the times for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// The number of prompt tokens that were already in the cache.
    pub reused: usize,
    /// The number of prompt tokens that were read: not all if the callback stopped it.
    pub read: usize,
    /// The time for reading the prompt.
    pub reading: Duration,
    /// The number of generated tokens.
    pub generated: usize,
    /// The number of forward passes. The first generated token follows from the prompt and takes no
    /// pass; a token that ends the answer is not counted as generated, but takes one.
    pub steps: usize,
    /// The number of these passes that computed drafts: see [`speculation`].
    pub steps_with_drafts: usize,
    /// The number of drafts that were computed in these passes.
    pub drafted: usize,
    /// The number of drafts that were right, each of which has saved a pass.
    pub accepted: usize,
    /// The time for the steps, including sampling and reporting each token.
    pub generating: Duration,
}

impl AddAssign for Timings {
    fn add_assign(&mut self, more: Self) {
        self.reused += more.reused;
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
    /// The prompt does not fit in the context. Nothing was computed.
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

/// Reads `prompt`, except for the prefix that is already in `session`, then generates one token at a
/// time. `on_event` is called for each step, and can stop the generation.
///
/// # Errors
/// If the model has no tokenizer, or the prompt is empty or too long, before anything is computed, or
/// if the model, the sampler or the constraint fails.
pub fn generate(
    session: &mut Session,
    sampler: &mut Sampler,
    prompt: &[Token],
    limits: &Limits,
    on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<Generated, Error> {
    speculate(session, sampler, &mut Speculation::none(), prompt, limits, on_event)
}

/// Generates like [`generate`], with the same result, but computes several tokens in a pass where drafts of
/// `speculation` are right.
///
/// # Errors
/// As for [`generate`], or if a draft model fails.
pub fn speculate(
    session: &mut Session,
    sampler: &mut Sampler,
    speculation: &mut Speculation,
    prompt: &[Token],
    limits: &Limits,
    on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<Generated, Error> {
    let model = session.model().clone();
    let tokenizer = model.tokenizer()?;
    if prompt.is_empty() {
        return Err(Error::PromptEmpty);
    }
    let shared = common_prefix(prompt, session.tokens());
    // In a context that shifts, only the tokens that are not yet read must fit.
    let already_read = if session.rope().plan().shifts { shared } else { 0 };
    let (tokens, context) = (prompt.len() - already_read, session.capacity());
    if tokens > context {
        return Err(Error::PromptTooLong { tokens, context });
    }

    // The last token is always read, since the logits follow from it.
    let reused = session.truncate(shared.min(prompt.len() - 1));
    sampler.forget();
    for &token in prompt {
        sampler.accept(token);
    }

    let started = Instant::now();
    let total = prompt.len();
    let mut stopped = false;
    let _ = on_event(Event::Reading { done: reused, reused, total });
    speculation.begin(prompt, &mut || {
        let flow = on_event(Event::Reading { done: reused, reused, total });
        stopped = flow.is_break();
        flow
    })?;
    let logits = match stopped {
        true => None,
        false => session.extend(&prompt[reused..], &mut |progress| match progress {
            Progress::Read(read) => on_event(Event::Reading { done: reused + read, reused, total }),
            Progress::Recomputed { done, total } => on_event(Event::Recomputing { done, total }),
        })?,
    };
    let read_all = logits.is_some();
    let reading = started.elapsed();

    let started = Instant::now();
    let (mut steps, mut steps_with_drafts, mut drafted, mut accepted) = (0, 0, 0, 0);
    let answer = Answer::new(limits.clone());
    let mut writing = Writing { answer, used: 0, tokenizer, sampler, speculation, on_event };
    let mut next = writing.choose(logits.into_iter())?;
    let mut fed = Vec::new();
    let end = loop {
        let token = match next {
            ControlFlow::Break(end) => break end,
            ControlFlow::Continue(_) if session.full() => break writing.end(End::ContextFull),
            ControlFlow::Continue(token) => token,
        };
        let drafts = writing.speculation.propose(1, session.room() - 1)?;
        fed.clear();
        fed.push(token);
        fed.extend_from_slice(drafts);

        let (before, mut recomputed) = (session.tokens().len(), false);
        let passing = Instant::now();
        let logits = session.answer_all(&fed, &mut |progress| match progress {
            Progress::Read(_) => ControlFlow::Continue(()),
            Progress::Recomputed { done, total } => {
                recomputed = true;
                (writing.on_event)(Event::Recomputing { done, total })
            }
        })?;
        let time = passing.elapsed();
        let Some(chosen) = logits.map(|logits| writing.choose(logits)) else {
            break writing.end(End::Caller);
        };
        session.truncate(before + writing.used);
        next = chosen?;
        if !recomputed {
            writing.speculation.passed(fed.len(), time);
        }
        steps += 1;
        steps_with_drafts += usize::from(fed.len() > 1);
        drafted += fed.len() - 1;
        accepted += writing.used - 1;
    };
    let generating = started.elapsed();
    let read = if read_all { total } else { session.tokens().len() }.saturating_sub(reused);
    let answer = writing.answer;
    let generated = answer.tokens().len();
    let timings = Timings {
        reused,
        read,
        reading,
        generated,
        steps,
        steps_with_drafts,
        drafted,
        accepted,
        generating,
    };
    Ok(Generated { text: answer.text().into(), tokens: answer.tokens().into(), end, timings })
}

/// An answer that is being written, with what chooses its tokens.
struct Writing<'w> {
    answer: Answer,
    /// The number of logits that the last choice used.
    used: usize,
    tokenizer: &'w Tokenizer<'w>,
    sampler: &'w mut Sampler,
    speculation: &'w mut Speculation,
    on_event: &'w mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
}

impl Writing<'_> {
    /// Chooses tokens by the logits of the last token and of drafts, as long as the drafts are right.
    /// Returns the last token, whose logits are not among them. Without logits, the caller has stopped.
    fn choose<'l>(
        &mut self,
        logits: impl Iterator<Item = &'l [f32]>,
    ) -> Result<ControlFlow<End, Token>, Error> {
        self.used = 0;
        for logits in logits {
            self.used += 1;
            let step = self.answer.push(self.tokenizer, self.sampler, logits)?;
            let stopped = (self.on_event)(Event::Text(&step.text)).is_break();
            match step.next {
                ControlFlow::Continue(_) if stopped => break,
                ControlFlow::Continue(token) if self.speculation.accept(token) => {}
                next => return Ok(next),
            }
        }
        Ok(ControlFlow::Break(self.end(End::Caller)))
    }

    /// Ends the answer, with the text that was held back.
    fn end(&mut self, end: End) -> End {
        let step = self.answer.end(end.clone());
        let _ = (self.on_event)(Event::Text(&step.text));
        end
    }
}
