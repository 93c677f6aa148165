//! An answer as a state machine: you push logits, and it returns tokens and text.

use std::{mem, ops::ControlFlow};

use super::{End, Error, Limits, stop::Scanner};
use crate::{
    Token,
    constraint::Constraint,
    sample::Sampler,
    tokenizer::{Stream, Tokenizer},
};

/// An answer that is being generated. Use it if [`Scheduler`](crate::batch::Scheduler) does not fit, for
/// example to choose some tokens yourself.
///
/// You compute the logits of each token with a [`Session`](crate::model::Session), or with many
/// sequences in one [`Engine`](crate::model::Engine). You can end the answer at any step.
///
/// ```no_run
/// use std::ops::ControlFlow;
/// use rope_cpu::{generate::{Answer, Limits}, model::Model, rope::Flags, sample::{Sampler, Settings}};
///
/// let model = Model::open("model.gguf")?;
/// let tokenizer = model.tokenizer()?;
/// let mut session = model.session(&Flags::default(), 4096)?;
/// let mut sampler = Sampler::new(Settings::default())?;
/// let mut answer = Answer::new(Limits { tokens_max: Some(64), ..Limits::default() });
/// let prompt = tokenizer.encode_chat("Once upon");
/// prompt.iter().for_each(|token| sampler.accept(*token));
///
/// let keep_going = &mut |_| ControlFlow::Continue(());
/// let mut logits = session.extend(&prompt, keep_going)?;
/// while let Some(found) = logits {
///     let step = answer.push(tokenizer, &mut sampler, found)?;
///     print!("{}", step.text);
///     logits = match step.next {
///         ControlFlow::Continue(token) => session.answer(token, keep_going)?,
///         ControlFlow::Break(_) => None,
///     };
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Answer {
    limits: Limits,
    stream: Stream,
    stops: Scanner,
    text: String,
    tokens: Vec<Token>,
    /// The model's end token, which is not part of the answer.
    ending: Option<Token>,
    /// Set while the constraint does not apply.
    free: bool,
    /// A copy of the logits to modify.
    allowed: Vec<f32>,
}

/// The result of the logits of one token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The new text that is certain. It may be empty: incomplete characters, and text that may
    /// become a stop string, are held back.
    pub text: String,
    /// The token to compute next, or why the answer ends.
    pub next: ControlFlow<End, Token>,
}

impl Answer {
    /// Creates an answer without tokens. The sampler must have accepted the prompt:
    /// [`Sampler::accept`].
    pub fn new(limits: Limits) -> Self {
        Answer {
            stops: Scanner::new(limits.stops.clone()),
            limits,
            stream: Stream::default(),
            text: String::new(),
            tokens: Vec::new(),
            ending: None,
            free: false,
            allowed: Vec::new(),
        }
    }

    /// Returns whether the constraint must wait for the next step of the batch.
    pub(super) fn must_wait(&self) -> bool {
        let constraint = self.limits.constraint.as_ref();
        !self.free && constraint.is_some_and(Constraint::must_wait)
    }

    /// Returns the limits.
    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the text so far, without names of control tokens.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the tokens so far, including the ones that spell a stop string, but without the
    /// model's end token.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Sets whether the next tokens are free of the constraint, such as reasoning. The constraint
    /// starts with the first token that is not free.
    pub fn set_free(&mut self, free: bool) {
        self.free = free;
    }

    /// Returns whether the tokens so far end with a complete character.
    pub fn is_whole(&self) -> bool {
        self.stream.is_whole()
    }

    /// Chooses the next token from the logits of the last one.
    ///
    /// # Errors
    /// If the sampler finds no token, or the constraint fails.
    pub fn push(
        &mut self,
        tokenizer: &Tokenizer<'_>,
        sampler: &mut Sampler,
        logits: &[f32],
    ) -> Result<Step, Error> {
        if self.full() {
            return Ok(self.end(End::TokensMax));
        }
        let token = sampler.choose(self.allowed(tokenizer, logits)?)?;
        self.take(tokenizer, sampler, token)
    }

    /// Continues with a token of your choice. For example, you can force the tokens that end
    /// reasoning.
    ///
    /// # Errors
    /// If the answer's constraint does not allow the token.
    pub fn take(
        &mut self,
        tokenizer: &Tokenizer<'_>,
        sampler: &mut Sampler,
        token: Token,
    ) -> Result<Step, Error> {
        sampler.accept(token);
        let ends = tokenizer.is_end_of_generation(token);
        let complete = match &mut self.limits.constraint {
            Some(constraint) if !ends && !self.free => {
                constraint.accept(token)?;
                constraint.is_complete()
            }
            _ => false,
        };
        let piece = tokenizer.piece(token, self.limits.preserved.contains(&token));
        let mut text = String::new();
        if self.limits.show_special && piece.is_empty() {
            // A control token's name is shown, but is not part of the text.
            text = self.flush();
            text += &String::from_utf8_lossy(&tokenizer.piece(token, true));
        }
        let released = self.stops.push(&self.stream.push(&piece));
        self.text += &released.text;
        text += &released.text;
        if ends {
            self.ending = Some(token);
            return Ok(self.end_after(text, End::Model));
        }
        self.tokens.push(token);
        Ok(match released.stop {
            Some(stop) => Step { text, next: ControlFlow::Break(End::Stop(stop)) },
            None if complete => self.end_after(text, End::Complete),
            None if self.full() => self.end_after(text, End::TokensMax),
            None => Step { text, next: ControlFlow::Continue(token) },
        })
    }

    /// Returns the model's end token, which is not in [`Answer::tokens`].
    pub fn ending(&self) -> Option<Token> {
        self.ending
    }

    /// Ends the answer, and returns the held-back text.
    pub fn end(&mut self, end: End) -> Step {
        self.end_after(String::new(), end)
    }

    fn end_after(&mut self, text: String, end: End) -> Step {
        Step { text: text + &self.flush(), next: ControlFlow::Break(end) }
    }

    /// Returns whether the answer has its maximum tokens.
    pub(super) fn full(&self) -> bool {
        self.limits.tokens_max.is_some_and(|max| self.tokens.len() >= max)
    }

    /// Returns the logits without tokens that the constraint excludes, and without ignored end
    /// tokens.
    fn allowed<'l>(
        &'l mut self,
        tokenizer: &Tokenizer<'_>,
        logits: &'l [f32],
    ) -> Result<&'l [f32], Error> {
        let Answer { limits: Limits { constraint, ignore_end, .. }, allowed, free, .. } = self;
        let constraint = constraint.as_mut().filter(|_| !*free);
        if constraint.is_none() && !*ignore_end {
            return Ok(logits);
        }
        allowed.clear();
        allowed.extend_from_slice(logits);
        if let Some(constraint) = constraint {
            constraint.restrict(allowed)?;
        }
        if *ignore_end {
            for token in tokenizer.end_of_generation() {
                if let Some(logit) = allowed.get_mut(token as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
        Ok(allowed)
    }

    /// Adds the held-back text to the text, and returns it.
    fn flush(&mut self) -> String {
        let released = self.stops.push(&mem::take(&mut self.stream).finish());
        let mut rest = released.text;
        if released.stop.is_none() {
            rest += &self.stops.finish();
        }
        self.text += &rest;
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Stops;

    #[test]
    fn text_that_may_become_a_stop_string_is_held_back_until_the_end() {
        let stops = Stops::new(["?ZZZ"]);
        let mut answer = Answer::new(Limits { stops, ..Limits::default() });
        let released = answer.stops.push(&answer.stream.push(b"with?"));
        answer.text += &released.text;
        assert_eq!(answer.text(), "with");
        let step = answer.end(End::Caller);
        assert_eq!(step, Step { text: "?".into(), next: ControlFlow::Break(End::Caller) });
        assert_eq!(answer.text(), "with?");
    }
}
