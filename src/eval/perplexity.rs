//! The perplexity of a text: e to the mean negative log-likelihood of its tokens, each given the
//! tokens before it in its window.

mod score;
pub mod windows;

use std::{
    io::{self, Write},
    num::NonZeroUsize,
    ops::{ControlFlow, Range},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{likelihood::Sums, logits_file};
use crate::{
    Token, imatrix,
    model::{self, Engine},
};

pub(super) use score::score;
pub use score::side_by_side;
pub use windows::{Window, Windows};

/// An error while computing a perplexity.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages explain the variants")]
pub enum Error {
    #[error(transparent)]
    Model(#[from] model::Error),
    #[error(
        "the text has {tokens} tokens, and {needed} are needed for windows of {window}: choose \
         a longer text or a smaller window"
    )]
    ShortText { tokens: usize, window: usize, needed: usize },
    #[error("a window of {window} tokens has none to score: choose at least {least}")]
    Window { window: usize, least: usize },
    #[error("a stride of {stride} in windows of {window}: it must be from 1 to {most}")]
    Stride { stride: usize, window: usize, most: usize },
    #[error("the logits of token {0} of the text are not finite")]
    NotFinite(usize),
    #[error(transparent)]
    LogitsFile(#[from] logits_file::Error),
    #[error(transparent)]
    Importance(#[from] imatrix::Error),
    #[error("log-probabilities can only be saved for adjacent windows, without a stride")]
    SaveWindows,
    #[error("its vocabulary has {file} tokens, but the model has {model}")]
    Vocabulary { file: usize, model: usize },
    #[error(transparent)]
    Save(io::Error),
    #[error(transparent)]
    Show(io::Error),
    #[error("the caller stopped the scoring")]
    Stopped,
}

/// The settings of the scoring.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How the text is split into windows.
    pub windows: Windows,
    /// The maximum number of windows; `None` for all.
    pub windows_max: Option<usize>,
    /// The BOS token that replaces the first token of a window, if the vocabulary adds one.
    pub bos: Option<Token>,
    /// The number of positions of a window that share a bucket; `None` for no buckets.
    pub bucket: Option<NonZeroUsize>,
}

/// The scores of a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    /// The number of windows.
    pub windows: usize,
    /// The negative log-likelihoods of all scored tokens.
    pub all: Sums,
    /// The negative log-likelihoods by position in the window. Buckets without tokens are left out.
    pub buckets: Vec<Bucket>,
}

/// The scores of a range of positions in the windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// The positions.
    pub positions: Range<usize>,
    /// The negative log-likelihoods of the tokens at these positions.
    pub nll: Sums,
}

/// The scores after a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The number of the window, from 1.
    pub number: usize,
    /// The total number of windows.
    pub total: usize,
    /// The number of windows that were processed together, including this one.
    pub together: usize,
    /// The index in the text of the window's first token.
    pub start: usize,
    /// The negative log-likelihoods up to the end of this window.
    pub so_far: Sums,
}

/// Scores the text `tokens`. A point is passed to `each` after each window.
///
/// With `save`, it writes the log-probabilities as a file of llama-perplexity. The windows must
/// then be [`Windows::Halves`].
///
/// # Errors
///
/// Returns the errors of [`Windows::split`], [`Error::NotFinite`] if logits are not finite, and the
/// errors of `save` and `each`.
///
/// ```no_run
/// use rope_cpu::{
///     eval::perplexity::{Settings, Windows, perplexity},
///     model::{Engine, Model, Options},
///     rope::{Flags, Rope},
///     tokenizer::{Ends, Special},
/// };
///
/// let model = Model::open("model.gguf")?;
/// let rope = Rope::new(model.rope_plan(&Flags::default(), 512)?);
/// let mut engine = Engine::new(&model, rope, Options::new(512))?;
/// let text = std::fs::read_to_string("text.txt")?;
/// let tokens = model.tokenizer()?.encode(text, Special::AsText, Ends::Omit);
/// let windows = Windows::Halves { window: 512 };
/// let settings = Settings { windows, windows_max: None, bos: None, bucket: None };
/// let scored = perplexity(&mut engine, &tokens, settings, None, &mut |_| Ok(()))?;
/// println!("perplexity {}", scored.all.perplexity().value);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn perplexity(
    engine: &mut Engine,
    tokens: &[Token],
    settings: Settings,
    save: Option<&mut dyn Write>,
    each: &mut dyn FnMut(Point) -> io::Result<()>,
) -> Result<Scored, Error> {
    let read = &mut |_| ControlFlow::Continue(());
    perplexity_while(engine, tokens, settings, save, read, each)
}

/// Scores a text like [`perplexity`]. Calls `read` after each step with the number of tokens of the
/// current window that have been read.
///
/// # Errors
///
/// As for [`perplexity`], and [`Error::Stopped`] if `read` returns `Break`.
pub fn perplexity_while(
    engine: &mut Engine,
    tokens: &[Token],
    settings: Settings,
    save: Option<&mut dyn Write>,
    read: &mut dyn FnMut(usize) -> ControlFlow<()>,
    each: &mut dyn FnMut(Point) -> io::Result<()>,
) -> Result<Scored, Error> {
    let Settings { windows, windows_max, bos, bucket } = settings;
    let window = windows.window();
    let mut cut = windows.split(tokens.len())?;
    cut.truncate(windows_max.unwrap_or(usize::MAX));
    let mut save = match (save, windows) {
        (None, _) => None,
        (Some(out), Windows::Halves { window }) => {
            let vocabulary = engine.vocabulary();
            let covered = &tokens[..cut.len() * window];
            Some(logits_file::Writer::new(out, window, vocabulary, covered).map_err(Error::Save)?)
        }
        (Some(_), _) => return Err(Error::SaveWindows),
    };

    let total = cut.len();
    let mut all = Sums::default();
    let mut buckets = vec![Sums::default(); bucket.map_or(0, |width| window.div_ceil(width.get()))];
    let together = side_by_side(window, engine.options().micro_batch).min(total);
    score(engine, tokens, &cut, bos, read, &mut |index, token| {
        let Some(token) = token else {
            let (number, start) = (index + 1, cut[index].tokens.start);
            let point = Point { number, total, together, start, so_far: all };
            return each(point).map_err(Error::Show);
        };
        all.add(token.nll);
        if let Some(width) = bucket {
            buckets[token.position / width].add(token.nll);
        }
        match &mut save {
            Some(file) => file.row(token.logits, token.softmax).map_err(Error::Save),
            None => Ok(()),
        }
    })?;
    let width = bucket.map_or(1, NonZeroUsize::get);
    let positions = |i: usize| i * width..((i + 1) * width).min(window);
    let buckets = buckets.into_iter().enumerate();
    let buckets = buckets.map(|(i, nll)| Bucket { positions: positions(i), nll });
    let buckets = buckets.filter(|bucket| bucket.nll.count > 0).collect();
    Ok(Scored { windows: total, all, buckets })
}
