//! Constrains answers to a grammar: a JSON schema, a regular expression, Lark or GBNF.
//!
//! A [`Constraint`] determines after each token which tokens may follow, so an answer always
//! follows the grammar. The crate `llguidance` compiles the grammars.

mod budget;
mod deadline;
mod error;
mod gbnf;
mod regex;
mod schema;
mod vocabulary;

use std::{
    fmt,
    sync::{
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use llguidance::{Matcher, api::TopLevelGrammar};
use serde_json::Value;

pub use budget::StepBudget;
pub use error::{Error, Position};
pub use vocabulary::{Vocabulary, Word};

/// A token: an index into the vocabulary.
type Token = u32;

/// Maximum bytes of a grammar.
const BYTES_MAX: usize = 256 << 10;

/// Bytes of stack for compiling a grammar. Rules refer to each other and are compiled recursively.
/// This is enough for the longest chain of rules in a grammar of [`BYTES_MAX`]. The system provides
/// only the part that is used.
const STACK_BYTES: usize = 512 << 20;

/// Default maximum time to find the next tokens: see [`Constraint::with_step_max`]. Other answers
/// wait during this time.
const STEP_MAX: Duration = Duration::from_secs(1);

/// Maximum time to compile a grammar. Compilation continues in the background after that, but the
/// grammar's limited size bounds it.
const COMPILE_MAX: Duration = Duration::from_secs(10);

/// Maximum grammars that compile at the same time, including those over their time.
const COMPILING_MAX: usize = 8;

/// The number of grammars being compiled.
static COMPILING: AtomicUsize = AtomicUsize::new(0);

/// Maximum mean time for each token, or a fifth of the longest step.
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
    /// Creates a grammar from a text. It is Lark if it starts with `%llguidance`, as in llama.cpp,
    /// or else GBNF.
    ///
    /// ```
    /// # use rope_cpu_constraint::Grammar;
    /// let grammar = Grammar::from_text(r#"root ::= "yes" | "no""#);
    /// assert!(matches!(grammar, Grammar::Gbnf(_)));
    /// ```
    pub fn from_text(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.starts_with("%llguidance") { Grammar::Lark(text) } else { Grammar::Gbnf(text) }
    }

    /// Returns the number of bytes of the text.
    ///
    /// ```
    /// # use rope_cpu_constraint::Grammar;
    /// assert_eq!(Grammar::Regex("[0-9]+".into()).len(), 6);
    /// ```
    pub fn len(&self) -> usize {
        match self {
            Grammar::JsonObject => 0,
            Grammar::JsonSchema(text)
            | Grammar::Regex(text)
            | Grammar::Lark(text)
            | Grammar::Gbnf(text) => text.len(),
        }
    }

    /// Returns whether the grammar has no text.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the JSON schema in the form that `%json` takes in a Lark grammar; `None` for a
    /// grammar that is not a schema.
    ///
    /// ```
    /// # use rope_cpu_constraint::Grammar;
    /// let schema = Grammar::JsonSchema(r#"{"type": "integer"}"#.into()).schema().unwrap()?;
    /// assert_eq!(schema["type"], "integer");
    /// assert!(Grammar::Regex("[0-9]+".into()).schema().is_none());
    /// # Ok::<(), rope_cpu_constraint::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if the schema is not JSON or has an unsupported keyword.
    pub fn schema(&self) -> Option<Result<Value, Error>> {
        match self {
            Grammar::JsonSchema(text) => Some(schema::parse(text)),
            Grammar::JsonObject => Some(Ok(schema::object())),
            Grammar::Regex(_) | Grammar::Lark(_) | Grammar::Gbnf(_) => None,
        }
    }
}

/// The state of a grammar within an answer. Clones are independent.
///
/// ```
/// use rope_cpu_constraint::{Constraint, Grammar, Vocabulary, Word};
///
/// let words = ["yes", "no", "maybe"].map(|text| Word::Text(text.as_bytes().into()));
/// let vocabulary = Vocabulary::new(words.into_iter().chain([Word::Control("<end>")]), &[3])?;
/// let mut constraint = Constraint::new(&vocabulary, &Grammar::Regex("yes|no".into()))?;
/// let mut logits = [0.0; 4];
/// constraint.restrict(&mut logits)?;
/// assert_eq!(logits, [0.0, 0.0, f32::NEG_INFINITY, f32::NEG_INFINITY]);
/// constraint.accept(1)?;
/// assert!(constraint.may_end()?);
/// # Ok::<(), rope_cpu_constraint::Error>(())
/// ```
#[derive(Clone)]
pub struct Constraint {
    matcher: Matcher,
    /// Maximum time of a step.
    step_max: Duration,
    /// Maximum time of the next step.
    time: Duration,
    /// The time that all constraints of a batch share in a step.
    budget: Option<StepBudget>,
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
    /// Returns an error if the grammar is invalid or too large, needs an unsupported feature, or
    /// takes longer than ten seconds to compile.
    pub fn new(vocabulary: &Vocabulary, grammar: &Grammar) -> Result<Self, Error> {
        let bytes = grammar.len();
        if bytes > BYTES_MAX {
            let message = format!("{bytes} bytes are too large: at most {BYTES_MAX} are permitted");
            return Err(Error::Limit(message));
        }
        compile_within(COMPILE_MAX, vocabulary, grammar)
    }

    /// Sets the maximum time of a step. The default, which is also the upper bound, is one second.
    /// A longer step fails about 20 ms later. The mean time for a token is at most 50 ms or a fifth
    /// of `step_max`.
    pub fn with_step_max(self, step_max: Duration) -> Self {
        let step_max = step_max.min(STEP_MAX);
        Constraint { step_max, time: step_max, ..self }
    }

    /// Shares each step's time with the other constraints of a batch. All together take at most the
    /// budget.
    pub fn with_budget(self, budget: StepBudget) -> Self {
        let constraint = self.with_step_max(budget.max());
        Constraint { budget: Some(budget), ..constraint }
    }

    /// Returns whether other constraints have used more than half of the step's time. If so, choose
    /// the next token in the next step, since this step may have too little time left.
    pub fn must_wait(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.left() < budget.max() / 2)
    }

    /// Sets the logits of tokens that the grammar does not allow to minus infinity.
    ///
    /// # Errors
    /// Returns an error if no token is allowed, or the grammar is too complex to find out.
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
    /// Returns an error if the grammar does not allow the token.
    pub fn accept(&mut self, token: Token) -> Result<(), Error> {
        self.time = self.step_max.min(self.time + self.mean());
        self.timed(|matcher| matcher.consume_token(token))
    }

    /// Returns whether the answer may end here.
    ///
    /// # Errors
    /// Returns an error if the grammar is too complex to find out.
    pub fn may_end(&mut self) -> Result<bool, Error> {
        self.timed(|matcher| matcher.is_accepting())
    }

    /// Returns the maximum mean time for each token.
    fn mean(&self) -> Duration {
        STEP_MEAN.min(self.step_max / 5)
    }

    /// Runs a computation within the time left for this step.
    fn timed<T, E: fmt::Display>(
        &mut self,
        step: impl FnOnce(&mut Matcher) -> Result<T, E>,
    ) -> Result<T, Error> {
        let began = Instant::now();
        // The time that other constraints left, but always enough to accept a chosen token.
        let left = self.budget.as_ref().map(|budget| budget.left().max(self.mean()));
        let limit = left.map_or(self.time, |left| self.time.min(left));
        let result = deadline::within(&mut self.matcher, limit, step).map_err(Error::in_step)?;
        let taken = began.elapsed();
        self.time = self.time.saturating_sub(taken);
        self.budget.iter().for_each(|budget| budget.spend(taken));
        result.map_err(|e| match self.matcher.is_cancelled() {
            true => Error::in_step(
                "the tokens that may follow take too long to find: simplify the grammar",
            ),
            false => Error::in_step(e),
        })
    }

    /// Returns whether the answer is complete: no token may follow.
    pub fn is_complete(&self) -> bool {
        self.matcher.is_stopped()
    }
}

/// Counts a grammar being compiled.
struct Compiling;

impl Drop for Compiling {
    fn drop(&mut self) {
        COMPILING.fetch_sub(1, Relaxed);
    }
}

/// Compiles a grammar, or gives up after [`COMPILE_MAX`].
fn compile_within(
    limit: Duration,
    vocabulary: &Vocabulary,
    grammar: &Grammar,
) -> Result<Constraint, Error> {
    let failed = |reason: String| Error::Limit(format!("cannot be compiled: {reason}"));
    let (others, compiling) = (COMPILING.fetch_add(1, Relaxed), Compiling);
    if others >= COMPILING_MAX {
        return Err(failed(format!("{others} others are being compiled: try again later")));
    }
    let (sender, compiled) = mpsc::channel();
    let (vocabulary, grammar) = (vocabulary.clone(), grammar.clone());
    let compile = move || {
        let _compiling = compiling;
        // Fails if the caller has given up.
        let _ = sender.send(compile(&vocabulary, &grammar));
    };
    let thread = thread::Builder::new().name("grammar".into()).stack_size(STACK_BYTES);
    thread.spawn(compile).map_err(|e| failed(e.to_string()))?;
    compiled.recv_timeout(limit).unwrap_or_else(|e| {
        Err(failed(match e {
            RecvTimeoutError::Timeout => {
                format!("it takes longer than {} s: simplify it", limit.as_secs())
            }
            RecvTimeoutError::Disconnected => {
                "the compiler failed, which is a bug: please report it with the grammar".into()
            }
        }))
    })
}

fn compile(vocabulary: &Vocabulary, grammar: &Grammar) -> Result<Constraint, Error> {
    let in_grammar = |e| match (grammar, Error::in_grammar(e)) {
        (Grammar::Lark(_), error) => error,
        // The position is in a translation of the schema.
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
    // A Lark grammar may itself request that keywords be skipped (`lenient`).
    if !matches!(grammar, Grammar::Lark(_))
        && let warnings @ [_, ..] = &matcher.grammar_warnings()[..]
    {
        return Err(Error::invalid(None, warnings.join("; ")));
    }
    // Some valid grammars allow nothing, for example a rule that only refers to itself.
    let (step_max, time) = (STEP_MAX, STEP_MAX);
    let mut constraint = Constraint { matcher, step_max, time, budget: None };
    match constraint.timed(|matcher| matcher.compute_mask()) {
        Ok(_) => Ok(constraint.with_step_max(STEP_MAX)),
        Err(Error::Step(reason)) => {
            Err(Error::in_grammar(format_args!("no answer can begin: {reason}")))
        }
        Err(e) => Err(e),
    }
}

/// Returns the position of llguidance's error in a schema.
fn place_of_error(vocabulary: &Vocabulary, text: &str) -> Option<Position> {
    let error = |schema: &Value| {
        let grammar = TopLevelGrammar::from_json_schema(schema.clone());
        vocabulary.factory().create_parser(grammar).err().map(Error::in_grammar)
    };
    Some(Position::Pointer(schema::of_error(schema::parse(text).ok()?, error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiling_ends_after_its_time_and_with_too_many_others() {
        let words = ["a", "b", "c"].map(|text| Word::Text(text.as_bytes().into()));
        let vocabulary = Vocabulary::new(words, &[]).unwrap();
        let grammar = Grammar::Regex("[a-z]+".into());
        let compile = |limit| compile_within(limit, &vocabulary, &grammar);
        // A thread that starts immediately may finish in no time.
        let error = (0..1_000).find_map(|_| compile(Duration::ZERO).err()).unwrap();
        assert!(error.to_string().contains("longer than 0 s"), "{error}");
        let others: Vec<_> = (0..COMPILING_MAX)
            .map(|_| {
                COMPILING.fetch_add(1, Relaxed);
                Compiling
            })
            .collect();
        let error = compile(COMPILE_MAX).unwrap_err();
        assert!(error.to_string().contains("others are being compiled"), "{error}");
        drop(others);
        compile(COMPILE_MAX).unwrap();
    }
}
