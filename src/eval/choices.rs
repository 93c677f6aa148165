//! Computes the likelihood of several continuations, for questions with choices.

use thiserror::Error;

use super::likelihood::Softmax;
use crate::{
    Token,
    model::{self, Engine, Feed, Output, Role, Sequence},
    tokenizer::{Ends, Special, Tokenizer, common_prefix},
};

/// An error while scoring choices.
#[derive(Debug, Error)]
pub enum Error {
    /// The model cannot be computed.
    #[error(transparent)]
    Model(#[from] model::Error),
    /// A choice has no token, or none before it.
    #[error(
        "choice {} starts at token {start} of {tokens}: it needs a token of its own and one before it; \
         lengthen the choice or the text before it",
        choice + 1
    )]
    Start {
        /// The index of the choice.
        choice: usize,
        /// The number of tokens before the continuation.
        start: usize,
        /// The number of all tokens.
        tokens: usize,
    },
}

/// A text with a continuation to score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// The tokens of both: at least one of each.
    pub tokens: Vec<Token>,
    /// The number of tokens before the continuation.
    pub start: usize,
}

impl Continuation {
    /// Tokenizes a text and its continuation as lm-evaluation-harness does: together, with spaces
    /// at the end of the text moved to the continuation.
    pub fn new(tokenizer: &Tokenizer<'_>, text: &str, continuation: &str) -> Self {
        let kept = text.trim_end();
        let continuation = format!("{}{continuation}", &text[kept.len()..]);
        let encode = |text: &str| tokenizer.encode(text, Special::AsText, Ends::Omit);
        let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos() || kept.is_empty());
        let first: Vec<Token> =
            bos.or(tokenizer.eos().filter(|_| kept.is_empty())).into_iter().collect();
        let start = first.len() + encode(kept).len();
        let tokens = [first, encode(&format!("{kept}{continuation}"))].concat();
        Continuation { start: start.min(tokens.len()), tokens }
    }
}

/// Checks that each choice can be scored.
///
/// # Errors
/// If a choice has no token, or no token before it.
///
/// ```
/// use rope_cpu::eval::choices::{Continuation, check};
///
/// let choice = |start| Continuation { tokens: vec![7, 8, 9], start };
/// assert!(check(&[choice(1), choice(2)]).is_ok());
/// assert!(check(&[choice(0)]).is_err() && check(&[choice(3)]).is_err());
/// ```
pub fn check(choices: &[Continuation]) -> Result<(), Error> {
    let wrong = |choice: &Continuation| !(1..choice.tokens.len()).contains(&choice.start);
    match choices.iter().position(wrong) {
        None => Ok(()),
        Some(choice) => {
            let Continuation { tokens, start } = &choices[choice];
            Err(Error::Start { choice, start: *start, tokens: tokens.len() })
        }
    }
}

/// Returns the log-likelihood of each continuation, in nats; NaN if logits are not finite. `base`
/// keeps the tokens that all continuations start with, for the next call.
///
/// # Errors
/// As for [`check`], or if the model cannot be computed.
pub fn log_likelihoods(
    engine: &mut Engine,
    base: &mut Sequence,
    choices: &[Continuation],
) -> Result<Vec<f64>, Error> {
    check(choices)?;
    let Some(first) = choices.first() else { return Ok(Vec::new()) };
    // The logits of the last token before a continuation are needed.
    let shared = choices
        .iter()
        .map(|choice| common_prefix(&first.tokens, &choice.tokens).min(choice.start - 1));
    let shared = shared.min().unwrap_or_default();
    let reused = base.truncate(common_prefix(base.tokens(), &first.tokens[..shared]));
    feed(engine, &mut [base], &[(&first.tokens[reused..shared], usize::MAX)], &mut |_, _, _| {})?;

    let mut forks: Vec<Sequence> = choices.iter().map(|_| base.clone()).collect();
    let read: Vec<(&[Token], usize)> = choices
        .iter()
        .map(|choice| {
            let last = choice.tokens.len() - 1;
            (&choice.tokens[shared..last], choice.start - 1)
        })
        .collect();
    let mut sums = vec![0.0; choices.len()];
    let mut forks: Vec<&mut Sequence> = forks.iter_mut().collect();
    feed(engine, &mut forks, &read, &mut |choice, token, logits| {
        let next = logits.get(choices[choice].tokens[token + 1] as usize);
        let nll = Softmax::of(logits).zip(next).map(|(softmax, logit)| softmax.nll(*logit));
        sums[choice] -= nll.unwrap_or(f64::NAN);
    })?;
    Ok(sums)
}

/// Appends tokens to each sequence, and calls `each` with the logits of the tokens from an index on.
fn feed(
    engine: &mut Engine,
    sequences: &mut [&mut Sequence],
    tokens: &[(&[Token], usize)],
    each: &mut dyn FnMut(usize, usize, &[f32]),
) -> Result<(), model::Error> {
    let feeds = sequences.iter_mut().zip(tokens).map(|(sequence, (tokens, from))| Feed {
        sequence,
        tokens,
        role: Role::Prompt,
        wanted: *from..usize::MAX,
        output: Output::Logits,
    });
    let mut feeds: Vec<Feed<'_, '_>> = feeds.collect();
    while feeds.iter().any(|feed| !feed.tokens.is_empty()) {
        engine.step(&mut feeds, each)?;
    }
    Ok(())
}

/// Returns the index of the largest value; of equals the first.
pub fn best(values: impl Iterator<Item = f64>) -> Option<usize> {
    let largest = |best: Option<(usize, f64)>, (i, value): (usize, f64)| match best {
        Some((_, known)) if known >= value => best,
        _ => Some((i, value)),
    };
    values.enumerate().fold(None, largest).map(|(i, _)| i)
}
