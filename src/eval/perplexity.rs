//! The perplexity of a text: e to the mean negative log-likelihood of its tokens, each given those
//! before it in its window.

pub mod windows;

use std::{
    io::{self, Write},
    num::NonZeroUsize,
    ops::Range,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    likelihood::{Softmax, Sums},
    logits_file,
};
use crate::{
    Token,
    model::{self, Session},
};

pub use windows::{Window, Windows};

/// Why there is no perplexity.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Error {
    #[error(transparent)]
    Model(#[from] model::Error),
    #[error(
        "the text has {tokens} tokens, and {needed} are needed for windows of {window}: choose \
         a longer text or a smaller window"
    )]
    ShortText { tokens: usize, window: usize, needed: usize },
    #[error("a window of {window} tokens has none to score: choose one of {least} or more")]
    Window { window: usize, least: usize },
    #[error("a stride of {stride} in windows of {window}: choose one from 1 to {most}")]
    Stride { stride: usize, window: usize, most: usize },
    #[error("the logits of token {0} of the text are not finite")]
    NotFinite(usize),
    #[error(transparent)]
    LogitsFile(#[from] logits_file::Error),
    #[error("log-probabilities are saved of windows side by side alone")]
    SaveWindows,
    #[error("its vocabulary has {file} tokens, and that of the model {model}")]
    Vocabulary { file: usize, model: usize },
    #[error(transparent)]
    Save(io::Error),
    #[error(transparent)]
    Show(io::Error),
}

/// What is scored, and how.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How the text is cut.
    pub windows: Windows,
    /// At most so many windows; `None` for all.
    pub windows_max: Option<usize>,
    /// The token that takes the place of a window's first, if the vocabulary adds one.
    pub bos: Option<Token>,
    /// How many positions of a window share a bucket; `None` for no buckets.
    pub bucket: Option<NonZeroUsize>,
}

/// A text that was scored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    /// Windows that were read.
    pub windows: usize,
    /// The negative log-likelihoods of all tokens that were scored.
    pub all: Sums,
    /// The same by the position in the window; those without tokens are left out.
    pub buckets: Vec<Bucket>,
}

/// Positions of a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Which.
    pub positions: Range<usize>,
    /// The negative log-likelihoods of the tokens there.
    pub nll: Sums,
}

/// What is known after a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Which window, from 1.
    pub number: usize,
    /// Of how many.
    pub total: usize,
    /// The token of the text with which it begins.
    pub start: usize,
    /// The negative log-likelihoods until then.
    pub so_far: Sums,
}

/// Scores a text whose tokens are `tokens` with a session that may hold anything, and hands a
/// point after each window to `each`. With `save`, log-probabilities go into that file of
/// llama-perplexity's, for which the windows must be [`Windows::Halves`].
///
/// # Errors
/// See [`Windows::over`]; logits that are not finite, and what `save` or `each` fails with.
pub fn perplexity(
    session: &mut Session<'_>,
    tokens: &[Token],
    settings: Settings,
    save: Option<&mut dyn Write>,
    each: &mut dyn FnMut(Point) -> io::Result<()>,
) -> Result<Scored, Error> {
    let Settings { windows, windows_max, bos, bucket } = settings;
    let window = windows.window();
    let mut cut = windows.over(tokens.len())?;
    cut.truncate(windows_max.unwrap_or(usize::MAX));
    let mut save = match (save, windows) {
        (None, _) => None,
        (Some(out), Windows::Halves { window }) => {
            let vocabulary = session.vocabulary();
            let read = &tokens[..cut.len() * window];
            Some(logits_file::Writer::new(out, window, vocabulary, read).map_err(Error::Save)?)
        }
        (Some(_), _) => return Err(Error::SaveWindows),
    };

    let total = cut.len();
    let mut all = Sums::default();
    let mut buckets = vec![Sums::default(); bucket.map_or(0, |width| window.div_ceil(width.get()))];
    for (number, part) in (1..).zip(cut) {
        score(session, tokens, &part, bos, &mut |position, nll, softmax, logits| {
            all.add(nll);
            if let Some(width) = bucket {
                buckets[position / width].add(nll);
            }
            match &mut save {
                Some(file) => file.row(logits, softmax).map_err(Error::Save),
                None => Ok(()),
            }
        })?;
        let start = part.tokens.start;
        each(Point { number, total, start, so_far: all }).map_err(Error::Show)?;
    }
    let width = bucket.map_or(1, NonZeroUsize::get);
    let positions = |i: usize| i * width..((i + 1) * width).min(window);
    let buckets = buckets.into_iter().enumerate();
    let buckets = buckets.map(|(i, nll)| Bucket { positions: positions(i), nll });
    let buckets = buckets.filter(|bucket| bucket.nll.count > 0).collect();
    Ok(Scored { windows: total, all, buckets })
}

/// What becomes of a scored token: its position in the window, its negative log-likelihood, and
/// the logits it was judged by.
type Each<'e> = &'e mut dyn FnMut(usize, f64, &Softmax, &[f32]) -> Result<(), Error>;

/// Reads a window from an empty cache and hands each token that is scored to `each`.
pub(super) fn score(
    session: &mut Session<'_>,
    text: &[Token],
    window: &Window,
    bos: Option<Token>,
    each: Each<'_>,
) -> Result<(), Error> {
    let mut tokens = text[window.tokens.clone()].to_vec();
    if let (Some(bos), Some(first), true) = (bos, tokens.first_mut(), window.bos) {
        *first = bos;
    }
    // The logits that follow a token are about the next one.
    let Range { start, end } = window.scored;
    let mut result = Ok(());
    session.truncate(0);
    session.evaluate(&tokens, start - 1..end - 1, &mut |before, logits| {
        if result.is_err() {
            return;
        }
        let position = before + 1;
        let softmax = Softmax::of(logits);
        let nll = softmax.map(|s| s.nll(logits[tokens[position] as usize]));
        result = match (softmax, nll) {
            (Some(softmax), Some(nll)) if nll.is_finite() => each(position, nll, &softmax, logits),
            _ => Err(Error::NotFinite(window.tokens.start + position)),
        };
    })?;
    result
}
