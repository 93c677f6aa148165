//! Generation of text from a prompt. Nothing is printed: each step is reported to a callback, which
//! can stop the generation.

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

/// The limits and options of an answer.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// The largest number of tokens to generate; `None` for no limit except the context.
    pub tokens_max: Option<usize>,
    /// Stop strings: the answer ends before any of these texts.
    pub stops: Vec<String>,
    /// Whether tokens that end the answer are never chosen.
    pub ignore_end: bool,
    /// Whether control tokens are reported as text.
    pub show_special: bool,
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
    /// `tokens_max` tokens were generated.
    TokensMax,
    /// The context is full.
    ContextFull,
    /// The callback stopped it.
    Caller,
}

/// A generated text, with its timings.
#[derive(Clone, Debug)]
pub struct Answer {
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
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// The number of prompt tokens that were already in the cache.
    pub reused: usize,
    /// The number of prompt tokens that were read: not all if the callback stopped it.
    pub read: usize,
    /// The time for reading the prompt.
    pub reading: Duration,
    /// The number of generated tokens.
    pub generated: usize,
    /// The number of forward passes of one token. The first generated token follows from the prompt
    /// and takes no pass; a token that ends the answer is not counted as generated, but takes one.
    pub steps: usize,
    /// The time for the steps, including sampling and reporting each token.
    pub generating: Duration,
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
}

/// Reads `prompt`, except for the prefix that is already in `session`, then generates one token at a
/// time. `on_event` is called for each step, and can stop the generation.
///
/// # Errors
/// If the prompt is empty or too long, before anything is computed, or if the model or the sampler
/// fails.
pub fn generate(
    session: &mut Session<'_>,
    tokenizer: &Tokenizer<'_>,
    sampler: &mut Sampler,
    prompt: &[Token],
    limits: &Limits,
    on_event: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> Result<Answer, Error> {
    if prompt.is_empty() {
        return Err(Error::PromptEmpty);
    }
    let shared = prompt.iter().zip(session.tokens()).take_while(|(a, b)| a == b).count();
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
    let _ = on_event(Event::Reading { done: reused, reused, total });
    let mut logits = session.extend(&prompt[reused..], &mut |progress| match progress {
        Progress::Read(read) => on_event(Event::Reading { done: reused + read, reused, total }),
        Progress::Recomputed { done, total } => on_event(Event::Recomputing { done, total }),
    })?;
    let read_all = logits.is_some();
    let reading = started.elapsed();

    let started = Instant::now();
    let mut steps = 0;
    let mut out = TextOutput::new(limits, on_event);
    let mut tokens = Vec::new();
    let mut allowed = Vec::new(); // a copy of the logits, if some are to be changed
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
            Progress::Recomputed { done, total } => {
                (out.on_event)(Event::Recomputing { done, total })
            }
        })?;
        steps += usize::from(logits.is_some());
    };
    let text = out.finish(&end);
    let generating = started.elapsed();
    let read = if read_all { total } else { session.tokens().len() }.saturating_sub(reused);
    let timings = Timings { reused, read, reading, generated: tokens.len(), steps, generating };
    Ok(Answer { text, tokens, end, timings })
}

/// The text of an answer, which is decoded, scanned for stop strings and passed to the callback.
struct TextOutput<'c> {
    stream: Stream,
    stops: Stops,
    text: String,
    on_event: &'c mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
}

impl<'c> TextOutput<'c> {
    fn new(limits: &Limits, on_event: &'c mut dyn FnMut(Event<'_>) -> ControlFlow<()>) -> Self {
        let (stream, stops) = (Stream::default(), Stops::new(&limits.stops));
        TextOutput { stream, stops, text: String::new(), on_event }
    }

    /// Adds the bytes of a token, and reports the text that they complete.
    fn push(&mut self, bytes: &[u8]) -> Option<End> {
        let released = self.stops.push(&self.stream.push(bytes));
        self.text.push_str(&released.text);
        let flow = (self.on_event)(Event::Text(&released.text));
        match released.stop {
            Some(stop) => Some(End::Stop(stop)),
            None => flow.is_break().then_some(End::Caller),
        }
    }

    /// Reports the name of a control token, which is not part of the text.
    fn show(&mut self, name: &[u8]) {
        self.flush();
        let _ = (self.on_event)(Event::Text(&String::from_utf8_lossy(name)));
    }

    /// Reports the text that is held back, unless a stop string ended the text.
    fn finish(mut self, end: &End) -> String {
        if !matches!(end, End::Stop(_)) {
            self.flush();
        }
        self.text
    }

    /// Reports the text that is held back.
    fn flush(&mut self) {
        let released = self.stops.push(&mem::take(&mut self.stream).finish());
        let mut rest = released.text;
        if released.stop.is_none() {
            rest += &self.stops.finish();
        }
        if !rest.is_empty() {
            let _ = (self.on_event)(Event::Text(&rest));
            self.text.push_str(&rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_back_text_comes_before_a_control_token() {
        let limits = Limits { stops: vec!["?ZZZ".into()], ..Limits::default() };
        let mut shown = String::new();
        let mut on_event = |event: Event<'_>| {
            if let Event::Text(text) = event {
                shown.push_str(text);
            }
            ControlFlow::Continue(())
        };
        let mut out = TextOutput::new(&limits, &mut on_event);
        out.push(b"with?");
        out.show(b"<|im_end|>");
        assert_eq!(out.finish(&End::Model), "with?");
        assert_eq!(shown, "with?<|im_end|>");
    }
}
