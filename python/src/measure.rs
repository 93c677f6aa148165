//! Numbers from a model: logits, log-likelihoods, embeddings.

use std::str::FromStr;

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;
use rope_cpu::{
    Token,
    eval::{
        likelihood::Softmax,
        perplexity::{Window, Windows},
    },
    model::{Pooling, Session, TEXTS_TOGETHER, normalized},
};

use crate::{
    errors::{failed, invalid, of_model},
    model::Model,
};

/// The index, the position in its window and the log-likelihood of each scored token.
type LogLikelihoods<'py> =
    (Bound<'py, PyArray1<usize>>, Bound<'py, PyArray1<usize>>, Bound<'py, PyArray1<f64>>);

#[pymethods]
impl Model {
    /// The logits after each token: float32, (tokens, vocabulary).
    fn logits<'py>(
        &self,
        py: Python<'py>,
        tokens: Vec<Token>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let mut session = self.loaded()?.borrow()?;
        let vocabulary = session.vocabulary();
        check_length(tokens.len(), session.context())?;
        let mut logits = Vec::new();
        logits.try_reserve_exact(tokens.len() * vocabulary).map_err(failed)?;
        session.truncate(0);
        py.detach(|| read(&mut session, &tokens, 0, &mut |_, row| logits.extend_from_slice(row)))?;
        logits.into_pyarray(py).reshape([tokens.len(), vocabulary])
    }

    /// The log-likelihoods of a text in windows.
    fn log_likelihoods<'py>(
        &self,
        py: Python<'py>,
        tokens: Vec<Token>,
        window: usize,
        stride: Option<usize>,
        windows_max: Option<usize>,
    ) -> PyResult<LogLikelihoods<'py>> {
        let loaded = self.loaded()?;
        let mut session = loaded.borrow()?;
        check_length(window, session.context())?;
        let windows = match stride {
            Some(stride) => Windows::Sliding { window, stride },
            None => Windows::Halves { window },
        };
        let mut windows = windows.split(tokens.len()).map_err(invalid)?;
        windows.truncate(windows_max.unwrap_or(usize::MAX));
        let tokenizer = loaded.tokenizer()?;
        let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
        let (mut indices, mut positions, mut scores) = (Vec::new(), Vec::new(), Vec::new());
        for window in windows {
            let start = window.tokens.start;
            let scored = py.detach(|| score(&mut session, &tokens, &window, bos))?;
            for (position, score) in window.scored.zip(scored) {
                indices.push(start + position);
                positions.push(position);
                scores.push(score);
            }
        }
        Ok((indices.into_pyarray(py), positions.into_pyarray(py), scores.into_pyarray(py)))
    }

    /// The embedding of each text: float32, (width,), or (tokens, width) without pooling.
    fn embed<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<Vec<Token>>,
        pooling: Option<&str>,
        normalize: bool,
    ) -> PyResult<Vec<Bound<'py, PyArray2<f32>>>> {
        let loaded = self.loaded()?;
        let given = pooling.map(Pooling::from_str).transpose().map_err(invalid)?;
        let pooling = given.unwrap_or_else(|| Pooling::of(&loaded.model));
        if given.is_none() && pooling == Pooling::None {
            return Err(invalid(
                "the file names no pooling: choose pooling mean, cls or last, or call embed_tokens",
            ));
        }
        if pooling == Pooling::Rank {
            return Err(invalid("the model ranks documents: choose pooling mean, cls or last"));
        }
        if let Some(index) = texts.iter().position(Vec::is_empty) {
            return Err(invalid(format_args!("text {index} has no tokens: remove it")));
        }
        let mut engine = loaded.engine()?;
        let mut embeddings = Vec::with_capacity(texts.len());
        for texts in texts.chunks(TEXTS_TOGETHER) {
            let mut signals = Ok(());
            let found = py.detach(|| {
                engine.embed_while(texts, pooling, &mut || {
                    signals = Python::attach(|py| py.check_signals());
                    signals.is_ok()
                })
            });
            // Before NumPy is called, which fails while a signal waits.
            signals?;
            let found = found.map_err(of_model)?;
            for rows in found {
                let rows: Vec<_> = match normalize && pooling != Pooling::None {
                    true => rows.iter().map(|row| normalized(row)).collect(),
                    false => rows,
                };
                embeddings.push(PyArray2::from_vec2(py, &rows).map_err(failed)?);
            }
        }
        Ok(embeddings)
    }
}

/// Returns the log-likelihoods of the scored tokens of a window.
fn score(
    session: &mut Session,
    text: &[Token],
    window: &Window,
    bos: Option<Token>,
) -> PyResult<Vec<f64>> {
    let mut tokens = text[window.tokens.clone()].to_vec();
    if let (Some(bos), Some(first), true) = (bos, tokens.first_mut(), window.bos) {
        *first = bos;
    }
    let mut scores = Vec::with_capacity(window.scored.len());
    session.truncate(0);
    read(session, &tokens, window.scored.start - 1, &mut |index, logits| {
        if let Some(next) = tokens.get(index + 1) {
            let softmax = Softmax::of(logits);
            scores.push(softmax.map_or(f64::NAN, |s| -s.nll(logits[*next as usize])));
        }
    })?;
    match scores.iter().position(|score| !score.is_finite()) {
        Some(index) => {
            let token = window.tokens.start + window.scored.start + index;
            Err(failed(format_args!("the logits of token {token} of the text are not finite")))
        }
        None => Ok(scores),
    }
}

/// Reads tokens and passes the logits of each from index `from` to `each`. Ctrl-C stops it after a
/// micro-batch.
fn read(
    session: &mut Session,
    tokens: &[Token],
    from: usize,
    each: &mut dyn FnMut(usize, &[f32]),
) -> PyResult<()> {
    // The bits do not depend on how a prompt is cut.
    const TOGETHER: usize = 512;
    for start in (0..tokens.len()).step_by(TOGETHER) {
        let part = &tokens[start..tokens.len().min(start + TOGETHER)];
        let wanted = from.saturating_sub(start).min(part.len())..part.len();
        let each = &mut |index: usize, logits: &[f32]| each(start + index, logits);
        session.evaluate(part, wanted, each).map_err(of_model)?;
        Python::attach(|py| py.check_signals())?;
    }
    Ok(())
}

fn check_length(tokens: usize, context: usize) -> PyResult<()> {
    match tokens <= context {
        true => Ok(()),
        false => Err(invalid(format_args!(
            "{tokens} tokens do not fit in the context of {context}: open the model with a larger ctx"
        ))),
    }
}
