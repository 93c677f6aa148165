//! Answers in the form that a grammar gives: JSON by a schema, a regular expression, Lark or GBNF.
//!
//! A [`Constraint`] determines after each token which tokens may follow, so that no answer leaves the
//! grammar. The grammars are compiled by `llguidance`.

mod deadline;
mod error;
mod gbnf;
mod regex;
mod schema;
mod vocabulary;

use std::{
    fmt, thread,
    time::{Duration, Instant},
};

use llguidance::{Matcher, api::TopLevelGrammar};
use serde_json::Value;

pub use error::{Error, Position};
pub use vocabulary::Vocabulary;

use crate::Token;

/// The largest grammar in bytes.
const BYTES_MAX: usize = 256 << 10;

/// The stack in bytes on which grammars are compiled. Rules refer to each other, and are compiled
/// recursively: this is enough for the longest chain in a grammar of [`BYTES_MAX`]. The system provides only
/// what is used.
const STACK_BYTES: usize = 512 << 20;

/// The longest time for the tokens that may follow next, unless [`Constraint::with_step_max`] sets another:
/// answers of others wait for it.
const STEP_MAX: Duration = Duration::from_secs(1);

/// The longest time for each token in the long run, or a fifth of the longest step.
const STEP_MEAN: Duration = Duration::from_millis(50);

/// The text of a grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grammar {
    /// A JSON schema.
    JsonSchema(String),
    /// Any JSON object.
    JsonObject,
    /// A regular expression for the whole answer, in the syntax of Rust's `regex`.
    Regex(String),
    /// A grammar in llguidance's variant of Lark, with the rule `start` for the whole answer.
    Lark(String),
    /// A grammar in llama.cpp's GBNF, with the rule `root` for the whole answer.
    Gbnf(String),
}

impl Grammar {
    /// Creates a grammar from a text in Lark, if it begins with `%llguidance` as in llama.cpp, or else
    /// in GBNF.
    pub fn from_text(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.starts_with("%llguidance") { Grammar::Lark(text) } else { Grammar::Gbnf(text) }
    }
}

/// The state of a grammar within an answer. A clone continues independently.
#[derive(Clone)]
pub struct Constraint {
    matcher: Matcher,
    /// The longest time for a step.
    step_max: Duration,
    /// The longest time for the next step.
    time: Duration,
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Constraint").finish_non_exhaustive()
    }
}

impl Constraint {
    /// Compiles a grammar for the start of an answer.
    ///
    /// # Errors
    /// Returns an error if the grammar is invalid, is too large, or needs what is not supported.
    pub fn new(vocabulary: &Vocabulary, grammar: &Grammar) -> Result<Self, Error> {
        let bytes = match grammar {
            Grammar::JsonObject => 0,
            Grammar::JsonSchema(text)
            | Grammar::Regex(text)
            | Grammar::Lark(text)
            | Grammar::Gbnf(text) => text.len(),
        };
        if bytes > BYTES_MAX {
            let message = format!("{bytes} bytes are too large: at most {BYTES_MAX} are permitted");
            return Err(Error::invalid(None, message));
        }
        let compiled = thread::scope(|scope| {
            let compile = || compile(vocabulary, grammar);
            thread::Builder::new()
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, compile)?
                .join()
                .map_err(|_| std::io::Error::other("it was not expected"))
        });
        compiled.unwrap_or_else(|e| Err(Error::invalid(None, format!("cannot be compiled: {e}"))))
    }

    /// Sets the longest time for a step, at most a second, which is the default. A step that takes longer
    /// is an error, some 20 ms later. In the long run, a token takes at most 50 ms or a fifth of `step_max`.
    pub fn with_step_max(self, step_max: Duration) -> Self {
        let step_max = step_max.min(STEP_MAX);
        Constraint { step_max, time: step_max, ..self }
    }

    /// Sets the logits of tokens that the grammar does not permit next to minus infinity.
    ///
    /// # Errors
    /// Returns an error if no token is permitted, or the grammar is too complex to find out.
    pub fn restrict(&mut self, logits: &mut [f32]) -> Result<(), Error> {
        let permitted = self.timed(|matcher| matcher.compute_mask())?;
        let words = permitted.as_slice().iter().copied().chain(std::iter::repeat(0));
        for (logits, word) in logits.chunks_mut(32).zip(words) {
            for (bit, logit) in logits.iter_mut().enumerate() {
                if word >> bit & 1 == 0 {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
        Ok(())
    }

    /// Adds a token to the answer.
    ///
    /// # Errors
    /// Returns an error if the grammar does not permit the token.
    pub fn accept(&mut self, token: Token) -> Result<(), Error> {
        self.time = self.step_max.min(self.time + STEP_MEAN.min(self.step_max / 5));
        self.timed(|matcher| matcher.consume_token(token))
    }

    /// Returns whether the answer may end here.
    ///
    /// # Errors
    /// Returns an error if the grammar is too complex to find out.
    pub fn may_end(&mut self) -> Result<bool, Error> {
        self.timed(|matcher| matcher.is_accepting())
    }

    /// Takes a step in the time that is left for it.
    fn timed<T, E: fmt::Display>(
        &mut self,
        step: impl FnOnce(&mut Matcher) -> Result<T, E>,
    ) -> Result<T, Error> {
        let began = Instant::now();
        let result =
            deadline::within(&mut self.matcher, self.time, step).map_err(Error::in_step)?;
        self.time = self.time.saturating_sub(began.elapsed());
        result.map_err(|e| match self.matcher.is_cancelled() {
            true => Error::in_step(
                "the tokens that may follow take too long to find: simplify the grammar",
            ),
            false => Error::in_step(e),
        })
    }

    /// Returns whether the answer ends here, since no token may follow.
    pub fn is_complete(&self) -> bool {
        self.matcher.is_stopped()
    }
}

fn compile(vocabulary: &Vocabulary, grammar: &Grammar) -> Result<Constraint, Error> {
    let in_grammar = |e| match (grammar, Error::in_grammar(e)) {
        (Grammar::Lark(_), error) => error,
        // The position is in a translation.
        (Grammar::JsonSchema(text), Error::Invalid { message, .. }) => {
            Error::invalid(place_of_error(vocabulary, text), message)
        }
        (_, Error::Invalid { message, .. }) => Error::invalid(None, message),
        (_, error) => error,
    };
    let top_level = match grammar {
        Grammar::JsonSchema(text) => TopLevelGrammar::from_json_schema(schema::parse(text)?),
        Grammar::JsonObject => TopLevelGrammar::from_json_schema(schema::object()),
        Grammar::Regex(text) => TopLevelGrammar::from_lark(regex::to_lark(text)?),
        Grammar::Lark(text) => TopLevelGrammar::from_lark(text.clone()),
        Grammar::Gbnf(text) => TopLevelGrammar::from_lark(gbnf::to_lark(text, vocabulary.trie())?),
    };
    let parser = vocabulary.factory().create_parser(top_level).map_err(in_grammar)?;
    let mut matcher = Matcher::new(Ok(parser)).into_cancellable();
    if let warnings @ [_, ..] = &matcher.grammar_warnings()[..] {
        return Err(Error::invalid(None, warnings.join("; ")));
    }
    // A rule that only refers to itself, for example, is valid but permits nothing.
    let mut constraint = Constraint { matcher, step_max: STEP_MAX, time: STEP_MAX };
    match constraint.timed(|matcher| matcher.compute_mask()) {
        Ok(_) => Ok(constraint.with_step_max(STEP_MAX)),
        Err(Error::Step(reason)) => {
            Err(Error::in_grammar(format_args!("no answer can begin: {reason}")))
        }
        Err(e) => Err(e),
    }
}

/// Returns the place of llguidance's error in a schema.
fn place_of_error(vocabulary: &Vocabulary, text: &str) -> Option<Position> {
    let error = |schema: &Value| {
        let grammar = TopLevelGrammar::from_json_schema(schema.clone());
        vocabulary.factory().create_parser(grammar).err().map(Error::in_grammar)
    };
    Some(Position::Pointer(schema::of_error(schema::parse(text).ok()?, error)))
}
