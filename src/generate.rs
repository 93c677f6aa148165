//! Generates text from a prompt. A callback receives each step, and can stop the generation.

mod answer;
mod generation;
mod reasoning;
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
    tokenizer::common_prefix,
};
pub use answer::{Answer, Step};
pub(crate) use generation::{Generation, Next, Writing, Written};
pub use reasoning::Reasoning;
use speculation::{Speculation, Target};
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

/// A step of the generation, as the callback receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'t> {
    /// Part of the prompt was processed.
    Reading {
        /// The number of prompt tokens processed so far, including reused ones.
        done: usize,
        /// The number of prompt tokens found in the cache.
        reused: usize,
        /// The number of prompt tokens.
        total: usize,
    },
    /// The RoPE frequencies change at this length, so all tokens are computed again.
    Recomputing {
        /// The number of tokens computed again so far.
        done: usize,
        /// The number of tokens to compute again.
        total: usize,
    },
    /// A token was generated. Its text may be empty: incomplete characters, and text that may
    /// become a stop string, are held back.
    Text(&'t str),
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
    /// The callback stopped it.
    Caller,
}

/// A generated text, with its timings.
#[derive(Clone, Debug)]
pub struct Generated {
    /// The text.
    pub text: String,
    /// The generated tokens, including the ones that spell a stop string, but without the model's
    /// end token.
    pub tokens: Vec<Token>,
    /// Why the answer ended.
    pub end: End,
    /// The timings.
    pub timings: Timings,
}

/// Counts and times of an answer: prompt processing, then generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// The number of prompt tokens found in the cache.
    pub reused: usize,
    /// The number of prompt tokens processed: not all if the callback stopped it.
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

/// Generates an answer to `prompt`, one token at a time. The prefix of the prompt that `session`
/// has computed already is reused. `on_event` receives each step, and can stop the generation.
///
/// # Errors
/// If the model has no tokenizer, or the prompt is empty or too long; then nothing is computed. If
/// the model, the sampler or the constraint fails.
///
/// ```no_run
/// use std::ops::ControlFlow::Continue;
///
/// use rope_cpu::{
///     generate::{Event, Limits, Stops, generate},
///     model::Model,
///     rope::Flags,
///     sample::{Sampler, Settings},
///     tokenizer::{Ends, Special},
/// };
///
/// let model = Model::open("model.gguf")?;
/// let mut session = model.session(&Flags::default(), 4096)?;
/// let mut sampler = Sampler::new(Settings::default())?;
/// let prompt = model.tokenizer()?.encode("Once upon", Special::AsText, Ends::Add);
/// let limits = Limits { tokens_max: Some(64), stops: Stops::new(["\n"]), ..Limits::default() };
/// generate(&mut session, &mut sampler, &prompt, &limits, &mut |event| {
///     if let Event::Text(text) = event {
///         print!("{text}");
///     }
///     Continue(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn generate(
    session: &mut Session,
    sampler: &mut Sampler,
    prompt: &[Token],
    limits: &Limits,
    on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<Generated, Error> {
    speculate(session, sampler, &mut Speculation::none(), prompt, limits, on_event)
}

/// Generates the same answer as [`generate`], with speculative decoding: a pass computes several
/// tokens where drafts of `speculation` are accepted.
///
/// # Errors
/// As for [`generate`], or if a draft model fails.
///
/// ```no_run
/// use std::ops::ControlFlow::Continue;
///
/// use rope_cpu::{
///     generate::{Limits, speculate, speculation::{Count, Lookup, Speculation}},
///     model::Model,
///     rope::Flags,
///     sample::{Sampler, Settings},
/// };
///
/// let model = Model::open("model.gguf")?;
/// let mut session = model.session(&Flags::default(), 4096)?;
/// let mut sampler = Sampler::new(Settings::default())?;
/// let mut drafts = Speculation::new(vec![Box::new(Lookup::default())], Count::UpTo(8));
/// let prompt = [1, 2, 3];
/// let limits = Limits::default();
/// speculate(&mut session, &mut sampler, &mut drafts, &prompt, &limits, &mut |_| Continue(()))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    let (tokens, context) = (prompt.len(), session.capacity());
    // A context that shifts accepts a long prompt: it evicts the oldest tokens.
    if tokens > context && !session.rope().plan().shifts {
        return Err(Error::PromptTooLong { tokens, context });
    }

    // The last token is always computed, for its logits.
    let reused = session.truncate(shared.min(prompt.len() - 1));
    sampler.forget();
    for &token in prompt {
        sampler.accept(token);
    }

    let total = prompt.len();
    let mut generation = Generation::new(prompt.to_vec(), limits.clone());
    generation.reuse(reused);
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
    let mut computed = read_all;
    if let Some(logits) = logits {
        let each = &mut |written: Written<'_>| on_event(Event::Text(&written.text));
        generation.writing().push(tokenizer, sampler, speculation, logits, each);
    }
    let capacity = if session.rope().plan().shifts { usize::MAX } else { session.capacity() };
    let end = loop {
        if !computed {
            break End::Caller;
        }
        if let Some(end) = generation.advance(session, capacity)? {
            break end;
        }
        let room = session.room() - 1;
        let (engine, sequence) = session.parts();
        generation.draft(speculation, 1, room, Target { engine, sequence })?;
        let (Next { tokens, .. }, _, writing) = generation.next(session.tokens().len());
        let mut recomputed = false;
        let passing = Instant::now();
        let logits = session.answer_all(tokens, &mut |progress| match progress {
            Progress::Read(_) => ControlFlow::Continue(()),
            Progress::Recomputed { done, total } => {
                recomputed = true;
                on_event(Event::Recomputing { done, total })
            }
        })?;
        let time = passing.elapsed();
        computed = logits.is_some();
        for logits in logits.into_iter().flatten() {
            let each = &mut |written: Written<'_>| on_event(Event::Text(&written.text));
            writing.push(tokenizer, sampler, speculation, logits, each);
        }
        if computed && !recomputed {
            speculation.passed(tokens.len(), time);
        }
    };
    let rest = generation.end(&end);
    if !rest.is_empty() {
        let _ = on_event(Event::Text(&rest));
    }
    let mut timings = *generation.timings();
    if !read_all {
        timings.read = session.tokens().len().saturating_sub(reused);
        timings.reading = generation.started().elapsed();
    }
    let answer = generation.answer();
    Ok(Generated { text: answer.text().into(), tokens: answer.tokens().into(), end, timings })
}
