//! Runs the model on windows and scores their tokens. Windows that are shorter than the micro-batch
//! share one.

use std::ops::ControlFlow;

use super::{Error, Window};
use crate::{
    Token,
    eval::likelihood::Softmax,
    model::{Engine, Feed, Output, Role},
};

/// Maximum windows that share a micro-batch: each takes at least a page of the KV cache.
const WINDOWS_MAX: usize = 8;

/// A scored token.
pub struct ScoredToken<'s> {
    /// The position in the window.
    pub position: usize,
    /// The negative log-likelihood.
    pub nll: f64,
    /// The softmax of the logits.
    pub softmax: &'s Softmax,
    /// The logits for the position.
    pub logits: &'s [f32],
}

/// A function that is called with the index of a window and each of its scored tokens, then with
/// `None`, window after window.
pub type OnScored<'e> = &'e mut dyn FnMut(usize, Option<ScoredToken<'_>>) -> Result<(), Error>;

/// Returns the number of windows of `window` tokens that are processed together in micro-batches of
/// this size. Prompts are limited by computation, so a full micro-batch is the fastest.
pub fn side_by_side(window: usize, micro_batch: usize) -> usize {
    (micro_batch / window.max(1)).clamp(1, WINDOWS_MAX)
}

/// A function that is called after each step with the tokens of the window that have been read, and
/// may stop the scoring.
pub type OnRead<'e> = &'e mut dyn FnMut(usize) -> ControlFlow<()>;

/// Reads each window of a text into a new sequence and passes its scored tokens to `each`. Calls
/// `read` after each step of a group of windows.
///
/// # Errors
///
/// Returns an error if the model cannot be computed, logits are not finite, or `read` stops the
/// scoring, and passes on the errors of `each`.
pub fn score(
    engine: &mut Engine,
    text: &[Token],
    windows: &[Window],
    bos: Option<Token>,
    read: OnRead<'_>,
    each: OnScored<'_>,
) -> Result<(), Error> {
    let longest = windows.iter().map(|window| window.tokens.len()).max().unwrap_or(0);
    let together = side_by_side(longest, engine.options().micro_batch);
    for (i, group) in windows.chunks(together).enumerate() {
        let each = &mut |index, token: Option<ScoredToken<'_>>| each(i * together + index, token);
        score_together(engine, text, group, bos, read, each)?;
    }
    Ok(())
}

/// Processes windows together. The indices passed to `each` are indices into `windows`.
fn score_together(
    engine: &mut Engine,
    text: &[Token],
    windows: &[Window],
    bos: Option<Token>,
    on_read: OnRead<'_>,
    each: OnScored<'_>,
) -> Result<(), Error> {
    let read: Vec<_> = windows.iter().map(|window| read_tokens(text, window, bos)).collect();
    let mut sequences: Vec<_> = windows.iter().map(|_| engine.sequence()).collect();
    let feeds = sequences.iter_mut().zip(&read).zip(windows).map(|((sequence, tokens), window)| {
        // The logits after a token are for the next token.
        let wanted = window.scored.start - 1..window.scored.end - 1;
        Feed { sequence, tokens, role: Role::Prompt, wanted, output: Output::Logits }
    });
    let mut feeds: Vec<_> = feeds.collect();
    let mut ended = 0;
    while feeds.iter().any(|feed| !feed.tokens.is_empty()) {
        let mut result = Ok(());
        engine.step(&mut feeds, &mut |index, before, logits| {
            let mut score = || {
                (ended..index).try_for_each(|ended| each(ended, None))?;
                ended = index;
                let position = before + 1;
                let softmax = Softmax::of(logits);
                let nll = softmax.map(|s| s.nll(logits[read[index][position] as usize]));
                match (&softmax, nll) {
                    (Some(softmax), Some(nll)) if nll.is_finite() => {
                        each(index, Some(ScoredToken { position, nll, softmax, logits }))
                    }
                    _ => Err(Error::NotFinite(windows[index].tokens.start + position)),
                }
            };
            if result.is_ok() {
                result = score();
            }
        })?;
        result?;
        let left = feeds.first().map_or(0, |feed| feed.tokens.len());
        if on_read(read.first().map_or(0, Vec::len) - left).is_break() {
            return Err(Error::Stopped);
        }
    }
    (ended..windows.len()).try_for_each(|ended| each(ended, None))
}

/// Returns the tokens of a window as the model reads them.
fn read_tokens(text: &[Token], window: &Window, bos: Option<Token>) -> Vec<Token> {
    let mut tokens = text[window.tokens.clone()].to_vec();
    if let (Some(bos), Some(first), true) = (bos, tokens.first_mut(), window.bos) {
        *first = bos;
    }
    tokens
}
