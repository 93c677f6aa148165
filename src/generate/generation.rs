//! Generation as a state machine. It says which tokens to compute next, and continues from their
//! logits.
//!
//! ```text
//! loop {
//!     draft(..)       adds drafts of the next tokens, once the prompt is read
//!     next(..)        the tokens that the sequence does not have, in the order of their computation
//!     compute them    Writing::push(..) with the logits of each wanted one
//!     advance(..)     removes wrong drafts from the sequence; stops if the answer has ended
//! }
//! ```
//!
//! The scheduler of [`batch`](crate::batch) runs one for each slot.

use std::{
    mem,
    ops::{ControlFlow, Range},
    time::Instant,
};

use super::{Answer, End, Error, Limits, Step, Timings, reasoning::Following};
use crate::{
    Token,
    generate::speculation::{Speculation, Target},
    model::{self, Role, Sequence},
    sample::Sampler,
    tokenizer::Tokenizer,
};

/// An answer in progress, with the tokens of its sequence.
pub(crate) struct Generation {
    /// The prompt, the tokens of the answer, and during a pass the drafts.
    tokens: Vec<Token>,
    /// The number of tokens of the prompt.
    prompt: usize,
    /// The number of drafts.
    drafts: usize,
    /// Set when the last pass chose no token, since the constraint had to wait.
    waits: bool,
    writing: Writing,
}

/// Receives the logits of a pass.
pub(crate) struct Writing {
    answer: Answer,
    reasoning: Option<Following>,
    timings: Timings,
    prompt: usize,
    started: Instant,
    generating_since: Option<Instant>,
    pass: Pass,
}

/// The result of a pass.
#[derive(Default)]
struct Pass {
    /// The number of used logits: of the last token, and of accepted drafts.
    used: usize,
    /// The tokens that follow, until the answer ends.
    tokens: Vec<Token>,
    /// Why the answer ended or failed.
    end: Option<Result<End, Error>>,
    /// Set when the pass ignores all further logits, such as logits of wrong drafts.
    closed: bool,
}

/// The tokens of a pass.
pub(crate) struct Next<'g> {
    /// The tokens.
    pub tokens: &'g [Token],
    /// Their role.
    pub role: Role,
    /// The tokens with wanted logits, as indices into the sequence: the last token and all drafts.
    pub wanted: Range<usize>,
}

/// A step of an answer, to report.
pub(crate) struct Written<'w> {
    /// The new text that is certain; it may be empty.
    pub text: String,
    /// The token; `None` at the end of an answer.
    pub token: Option<Token>,
    /// The model's end token.
    pub ending: Option<Token>,
    /// The sampler that chose the token; `None` for a forced token.
    pub sampler: Option<&'w Sampler>,
    /// The timings so far.
    pub timings: Timings,
}

impl Generation {
    /// Starts an answer to `prompt`. The sampler must have accepted the prompt.
    pub fn new(prompt: Vec<Token>, limits: Limits) -> Self {
        Generation {
            prompt: prompt.len(),
            drafts: 0,
            waits: false,
            writing: Writing {
                reasoning: limits.reasoning.as_ref().map(|reasoning| reasoning.follow()),
                answer: Answer::new(limits),
                timings: Timings::default(),
                prompt: prompt.len(),
                started: Instant::now(),
                generating_since: None,
                pass: Pass::default(),
            },
            tokens: prompt,
        }
    }

    /// Returns the prompt.
    pub fn prompt(&self) -> &[Token] {
        &self.tokens[..self.prompt]
    }

    /// Returns the tokens of the prompt and of the answer.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Returns whether the answer has a token.
    pub fn has_begun(&self) -> bool {
        self.tokens.len() > self.prompt
    }

    /// Returns the timings so far.
    pub fn timings(&self) -> &Timings {
        &self.writing.timings
    }

    /// Records that the first tokens of the prompt are computed already.
    pub fn reuse(&mut self, tokens: usize) {
        self.writing.timings.reused = tokens;
    }

    /// Records the number of prompt tokens that are left out.
    pub fn omit(&mut self, tokens: usize) {
        self.writing.timings.omitted = tokens;
    }

    /// Returns when the answer was started.
    pub fn started(&self) -> Instant {
        self.writing.started
    }

    /// Adds at most `room` drafts to the tokens to compute. `rows` is the number of rows in the
    /// pass without them. Returns the number of drafts.
    ///
    /// # Errors
    /// If a draft model or the predictor fails.
    pub fn draft(
        &mut self,
        speculation: &mut Speculation,
        rows: usize,
        room: usize,
        target: Target<'_>,
    ) -> Result<usize, model::Error> {
        let drafts = speculation.propose(rows, room, Some(target))?;
        self.tokens.extend_from_slice(drafts);
        self.drafts = drafts.len();
        Ok(drafts.len())
    }

    /// Removes the drafts of a pass that was not computed.
    pub fn drop_drafts(&mut self) {
        self.tokens.truncate(self.tokens.len() - mem::take(&mut self.drafts));
    }

    /// Returns the tokens to compute after the first `computed` ones, the prompt, and the receiver
    /// of their logits.
    pub fn next(&mut self, computed: usize) -> (Next<'_>, &[Token], &mut Writing) {
        let Generation { tokens, prompt, drafts, writing, .. } = self;
        let (prompt, end) = (&tokens[..*prompt], tokens.len());
        let (next, role) = match computed >= prompt.len() {
            true => (&tokens[computed..], Role::Answer),
            false => (&prompt[computed..], Role::Prompt),
        };
        (Next { tokens: next, role, wanted: end - 1 - *drafts..end }, prompt, writing)
    }

    /// Continues after a pass, in a context of `capacity` tokens: truncates wrong drafts from the
    /// sequence. If the answer has ended, returns why.
    ///
    /// # Errors
    /// If the sampler or the constraint has failed.
    pub fn advance(
        &mut self,
        sequence: &mut Sequence,
        capacity: usize,
    ) -> Result<Option<End>, Error> {
        self.drop_drafts();
        let Generation { tokens, writing, .. } = self;
        let Pass { used, tokens: chosen, end, closed } = mem::take(&mut writing.pass);
        self.waits = used == 0 && closed;
        if self.waits {
            // The last token is computed again.
            sequence.truncate(tokens.len() - 1);
        }
        if used == 0 {
            return Ok(None);
        }
        if tokens.len() > self.prompt {
            let drafted = sequence.tokens().len() - tokens.len();
            let timings = &mut writing.timings;
            timings.steps += 1;
            timings.steps_with_drafts += usize::from(drafted > 0);
            timings.drafted += drafted;
            timings.accepted += used - 1;
        }
        sequence.truncate(tokens.len() - 1 + used);
        if let Some(end) = end {
            return end.map(Some);
        }
        if tokens.len() + chosen.len() > capacity {
            return Ok(Some(End::ContextFull));
        }
        if writing.out_of_time() {
            return Ok(Some(End::TokensMax));
        }
        tokens.extend(chosen);
        Ok(None)
    }

    /// Returns whether the last pass chose no token, since the constraint had to wait.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Returns whether the answer has a constraint.
    pub fn is_constrained(&self) -> bool {
        self.writing.answer.limits().constraint.is_some()
    }

    /// Ends the answer. Returns the held-back text.
    pub fn end(&mut self, end: &End) -> String {
        match end {
            // Text after a stop string is dropped.
            End::Stop(_) => String::new(),
            _ => self.writing.answer.end(end.clone()).text,
        }
    }
}

impl Writing {
    /// Starts to generate. Returns `false` if generation has started already.
    pub fn begin(&mut self) -> bool {
        let first = self.generating_since.is_none();
        if first {
            let now = Instant::now();
            self.generating_since = Some(now);
            self.timings.read = self.prompt - self.timings.reused - self.timings.omitted;
            self.timings.reading = now - self.started;
        }
        first
    }

    /// Returns the timings so far.
    pub fn timings(&self) -> &Timings {
        &self.timings
    }

    /// Ends the answer after the prompt, for requests without logits, such as embeddings.
    pub fn end_of_prompt(&mut self) {
        self.begin();
        (self.pass.used, self.pass.end) = (1, Some(Ok(End::Model)));
    }

    /// Returns whether the next token must wait for another pass, because other constraints have
    /// used up the time. The rest of this pass is then ignored.
    pub fn must_wait(&mut self) -> bool {
        self.pass.closed |= self.answer.must_wait();
        self.pass.closed
    }

    /// Takes the logits of a wanted token, in order, and chooses the next one, unless it is a wrong
    /// draft. `each` receives each step of the answer, and can end it.
    pub fn push(
        &mut self,
        tokenizer: &Tokenizer<'_>,
        sampler: &mut Sampler,
        speculation: &mut Speculation,
        logits: &[f32],
        each: &mut dyn FnMut(Written<'_>) -> ControlFlow<()>,
    ) {
        if self.pass.closed {
            return;
        }
        self.begin();
        self.pass.used += 1;
        let forced = match &self.reasoning {
            Some(reasoning) if !self.answer.full() => reasoning.prepare(&mut self.answer),
            _ => Vec::new(),
        };
        if forced.is_empty() {
            let before = self.answer.tokens().len();
            let step = self.answer.push(tokenizer, sampler, logits);
            self.pass.closed = !self.follow(step, before, Some(sampler), speculation, each);
            return;
        }
        // The sampler did not choose the drafts after a forced token.
        self.pass.closed = true;
        for token in forced {
            let before = self.answer.tokens().len();
            let step = self.answer.take(tokenizer, sampler, token);
            self.follow(step, before, None, speculation, each);
            if self.pass.end.is_some() {
                return;
            }
        }
    }

    /// Continues after a step of the answer, which had `before` tokens before it. Returns whether
    /// the new token matches the next draft.
    fn follow(
        &mut self,
        step: Result<Step, Error>,
        before: usize,
        sampler: Option<&Sampler>,
        speculation: &mut Speculation,
        each: &mut dyn FnMut(Written<'_>) -> ControlFlow<()>,
    ) -> bool {
        let Step { text, next } = match step {
            Ok(step) => step,
            Err(e) => {
                self.pass.end = Some(Err(e));
                return false;
            }
        };
        if let Some(reasoning) = &mut self.reasoning {
            reasoning.push(&text);
        }
        self.timings.generated = self.answer.tokens().len();
        self.timings.generating =
            self.generating_since.map(|since| since.elapsed()).unwrap_or_default();
        let (token, ending) = (self.answer.tokens().get(before).copied(), self.answer.ending());
        let flow = each(Written { text, token, ending, sampler, timings: self.timings });
        match next {
            ControlFlow::Break(end) => self.pass.end = Some(Ok(end)),
            ControlFlow::Continue(_) if flow.is_break() => self.pass.end = Some(Ok(End::Caller)),
            ControlFlow::Continue(token) => {
                self.pass.tokens.push(token);
                return speculation.accept(token);
            }
        }
        false
    }

    /// Returns whether generation has reached its maximum time.
    fn out_of_time(&self) -> bool {
        let since = self.generating_since.zip(self.answer.limits().time_max);
        since.is_some_and(|(since, max)| since.elapsed() >= max)
    }
}
