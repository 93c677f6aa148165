//! The loop from a prompt to text. It prints nothing: whoever calls it is told of every step, and
//! may stop it there.

mod stop;

use std::{
    mem,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use thiserror::Error;

use crate::{
    Token,
    model::{self, Progress, Session},
    sample::{self, Sampler},
    tokenizer::{Stream, Tokenizer},
};
use stop::Stops;

/// What ends an answer, besides the model, the context and the caller.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// The most tokens to write; `None` for as many as the context has room for.
    pub tokens_max: Option<usize>,
    /// Texts before which the answer ends.
    pub stops: Vec<String>,
    /// Never choose a token that ends the answer.
    pub ignore_end: bool,
    /// Write control tokens out as text.
    pub show_special: bool,
}

/// One step, as the caller is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'t> {
    /// Some of the prompt was read.
    Reading {
        /// Tokens of the prompt that are read so far, those reused included.
        done: usize,
        /// Tokens of the prompt that did not have to be read again.
        reused: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// The sequence has become so long that it has other RoPE frequencies: what was read, and written,
    /// is read again.
    Again {
        /// Tokens read again so far.
        done: usize,
        /// All that are to be.
        total: usize,
    },
    /// A token was written. Its text may be empty: characters and stop strings wait until they are
    /// complete.
    Text(&'t str),
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The model ended it.
    Model,
    /// A stop string followed, which is not part of the text.
    Stop(String),
    /// `tokens_max` were written.
    TokensMax,
    /// The context is full.
    ContextFull,
    /// The caller stopped it.
    Caller,
}

/// What was written, and how long it took.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The text.
    pub text: String,
    /// The tokens written, without one by which the model ended. Those that spell a stop string
    /// are among them.
    pub tokens: Vec<Token>,
    /// Why it ended.
    pub end: End,
    /// How long it took.
    pub timings: Timings,
}

/// How many tokens were computed, and how long that took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// Tokens of the prompt that were there from before.
    pub reused: usize,
    /// Tokens of the prompt that were read, which is not all of them where the caller stopped it.
    pub read: usize,
    /// The time for these.
    pub reading: Duration,
    /// Tokens that were written.
    pub written: usize,
    /// Tokens that were read one by one while writing. The first one written follows from the prompt
    /// and takes no step; the one that ends an answer is not written and takes one.
    pub steps: usize,
    /// The time for the steps, with choosing and writing each token.
    pub writing: Duration,
}

/// Why nothing can be written.
#[derive(Debug, Error)]
pub enum Error {
    /// There is nothing to go on from.
    #[error("the prompt is empty: there is nothing to continue")]
    PromptEmpty,
    /// The context has no room for the prompt. Nothing was computed.
    #[error(
        "the prompt has {tokens} tokens, more than the context of {context} has room for: \
         choose a larger one with -c"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// Positions of the context.
        context: usize,
    },
    /// The forward pass failed.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// No token could be chosen.
    #[error(transparent)]
    Sample(#[from] sample::Error),
}

/// Reads `prompt`, except for what `session` has read already, then writes what follows, one token
/// at a time. `each` is told of every step and may stop it.
///
/// # Errors
/// A prompt that is empty or too long, before anything is computed, and failures on the way.
pub fn generate(
    session: &mut Session<'_>,
    tokenizer: &Tokenizer<'_>,
    sampler: &mut Sampler,
    prompt: &[Token],
    limits: &Limits,
    each: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<Answer, Error> {
    if prompt.is_empty() {
        return Err(Error::PromptEmpty);
    }
    let shared = prompt.iter().zip(session.tokens()).take_while(|(a, b)| a == b).count();
    // What was read before a context shifts is no matter.
    let there = if session.rope().plan().shifts { shared } else { 0 };
    let (tokens, context) = (prompt.len() - there, session.capacity());
    if tokens > context {
        return Err(Error::PromptTooLong { tokens, context });
    }

    // The last token is read in any case, since the logits follow from it.
    let reused = session.truncate(shared.min(prompt.len() - 1));
    sampler.forget();
    for &token in prompt {
        sampler.accept(token);
    }

    let started = Instant::now();
    let total = prompt.len();
    let _ = each(Event::Reading { done: reused, reused, total });
    let mut logits = session.extend(&prompt[reused..], &mut |progress| match progress {
        Progress::Read(read) => each(Event::Reading { done: reused + read, reused, total }),
        Progress::Recomputed { done, total } => each(Event::Again { done, total }),
    })?;
    let read_all = logits.is_some();
    let reading = started.elapsed();

    let started = Instant::now();
    let mut steps = 0;
    let mut out = Out::new(limits, each);
    let mut tokens = Vec::new();
    let mut allowed = Vec::new(); // logits, if some are to be changed
    let end = loop {
        let Some(now) = logits else { break End::Caller };
        if limits.tokens_max == Some(tokens.len()) {
            break End::TokensMax;
        }
        let token = if limits.ignore_end {
            allowed.clear();
            allowed.extend_from_slice(now);
            for token in tokenizer.end_of_generation() {
                if let Some(logit) = allowed.get_mut(token as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
            sampler.choose(&allowed)?
        } else {
            sampler.choose(now)?
        };
        sampler.accept(token);
        let ends = tokenizer.is_end_of_generation(token);
        let piece = tokenizer.piece(token, false);
        if limits.show_special && piece.is_empty() {
            out.show(&tokenizer.piece(token, true));
        }
        let end = out.push(&piece);
        if ends {
            break End::Model;
        }
        tokens.push(token);
        if let Some(end) = end {
            break end;
        }
        if limits.tokens_max == Some(tokens.len()) {
            break End::TokensMax;
        }
        if session.full() {
            break End::ContextFull;
        }
        logits = session.answer(token, &mut |progress| match progress {
            Progress::Read(_) => ControlFlow::Continue(()),
            Progress::Recomputed { done, total } => (out.each)(Event::Again { done, total }),
        })?;
        steps += usize::from(logits.is_some());
    };
    let text = out.finish(&end);
    let writing = started.elapsed();
    let read = if read_all { total } else { session.tokens().len() }.saturating_sub(reused);
    let timings = Timings { reused, read, reading, written: tokens.len(), steps, writing };
    Ok(Answer { text, tokens, end, timings })
}

/// Text on its way to the caller.
struct Out<'c> {
    stream: Stream,
    stops: Stops,
    text: String,
    each: &'c mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
}

impl<'c> Out<'c> {
    fn new(limits: &Limits, each: &'c mut dyn FnMut(Event<'_>) -> ControlFlow<()>) -> Self {
        let (stream, stops) = (Stream::default(), Stops::new(&limits.stops));
        Out { stream, stops, text: String::new(), each }
    }

    /// Passes on what the bytes of a token complete.
    fn push(&mut self, bytes: &[u8]) -> Option<End> {
        let passed = self.stops.push(&self.stream.push(bytes));
        self.text.push_str(&passed.text);
        let flow = (self.each)(Event::Text(&passed.text));
        match passed.stop {
            Some(stop) => Some(End::Stop(stop)),
            None => flow.is_break().then_some(End::Caller),
        }
    }

    /// Shows the name of a control token, which is not part of the text.
    fn show(&mut self, name: &[u8]) {
        self.pass_on();
        let _ = (self.each)(Event::Text(&String::from_utf8_lossy(name)));
    }

    /// Passes on what was held back, unless a stop string ended the text.
    fn finish(mut self, end: &End) -> String {
        if !matches!(end, End::Stop(_)) {
            self.pass_on();
        }
        self.text
    }

    /// Passes on what waits for more.
    fn pass_on(&mut self) {
        let passed = self.stops.push(&mem::take(&mut self.stream).finish());
        let mut rest = passed.text;
        if passed.stop.is_none() {
            rest += &self.stops.finish();
        }
        if !rest.is_empty() {
            let _ = (self.each)(Event::Text(&rest));
            self.text.push_str(&rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stop_string_holds_back_comes_before_a_control_token() {
        let limits = Limits { stops: vec!["?ZZZ".into()], ..Limits::default() };
        let mut shown = String::new();
        let mut each = |event: Event<'_>| {
            if let Event::Text(text) = event {
                shown.push_str(text);
            }
            ControlFlow::Continue(())
        };
        let mut out = Out::new(&limits, &mut each);
        out.push(b"with?");
        out.show(b"<|im_end|>");
        assert_eq!(out.finish(&End::Model), "with?");
        assert_eq!(shown, "with?<|im_end|>");
    }
}
