//! Pooling: computes the embedding of a text from the embeddings of its tokens.

use std::{ops::Range, str::FromStr};

use rope_cpu_kernels::Cpu;

use super::Model;

/// How the embeddings of tokens become the embedding of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// No pooling: each token has its embedding.
    None,
    /// The mean of all.
    Mean,
    /// The first.
    Cls,
    /// The last.
    Last,
    /// The first token of an encoder or the last one of another model, from which a reranker computes
    /// the relevance of a document to a query.
    Rank,
}

impl Pooling {
    /// All, in the order of llama.cpp's numbers.
    pub const ALL: [Pooling; 5] =
        [Pooling::None, Pooling::Mean, Pooling::Cls, Pooling::Last, Pooling::Rank];

    /// Returns the name, as in llama.cpp.
    pub fn name(self) -> &'static str {
        match self {
            Pooling::None => "none",
            Pooling::Mean => "mean",
            Pooling::Cls => "cls",
            Pooling::Last => "last",
            Pooling::Rank => "rank",
        }
    }

    /// Returns the pooling that a model was trained with, [`Pooling::Mean`] if its file gives none.
    pub fn of(model: &Model) -> Self {
        model.config().pooling
    }

    /// Returns the pooling with a number of `enum llama_pooling_type` in llama.h.
    pub(super) fn numbered(number: i128) -> Option<Self> {
        usize::try_from(number).ok().and_then(|number| Self::ALL.get(number).copied())
    }
}

impl FromStr for Pooling {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|pooling| pooling.name() == name).ok_or_else(|| {
            format!(
                "unknown pooling {name}: choose one of {}",
                Self::ALL.map(Self::name).join(", ")
            )
        })
    }
}

/// The embeddings of tokens that make the embedding of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    All,
    Mean,
    First,
    Last,
}

/// Pools the embeddings of the tokens of a text, which come in order. [`Engine::pooler`] creates one.
///
/// [`Engine::pooler`]: super::Engine::pooler
#[derive(Debug)]
pub struct Pooler {
    model: Model,
    cpu: Cpu,
    pooling: Pooling,
    /// How embeddings of tokens are chosen for it.
    choice: Choice,
    tokens: usize,
    rows: Vec<Vec<f32>>,
    sum: Vec<f64>,
}

impl Pooler {
    /// Creates a pooler for a text of `tokens` tokens, at least 1.
    pub(super) fn new(model: Model, cpu: Cpu, pooling: Pooling, tokens: usize) -> Self {
        let choice = match pooling {
            Pooling::None => Choice::All,
            Pooling::Mean => Choice::Mean,
            Pooling::Cls => Choice::First,
            Pooling::Last => Choice::Last,
            Pooling::Rank if model.config().causal => Choice::Last,
            Pooling::Rank => Choice::First,
        };
        Pooler { model, cpu, pooling, choice, tokens, rows: Vec::new(), sum: Vec::new() }
    }

    /// Returns the tokens with embeddings that are needed, always with the last one.
    pub fn wanted(&self) -> Range<usize> {
        match self.choice {
            Choice::Last => self.tokens.saturating_sub(1)..self.tokens,
            Choice::All | Choice::Mean | Choice::First => 0..self.tokens,
        }
    }

    /// Adds the embedding of a token. Returns whether it was the last one.
    pub fn add(&mut self, token: usize, embedding: &[f32]) -> bool {
        match self.choice {
            Choice::All | Choice::Last => self.rows.push(embedding.to_vec()),
            Choice::First if token == 0 => self.rows.push(embedding.to_vec()),
            Choice::First => {}
            Choice::Mean => {
                self.sum.resize(embedding.len(), 0.0);
                self.sum.iter_mut().zip(embedding).for_each(|(sum, x)| *sum += f64::from(*x));
            }
        }
        token + 1 == self.tokens
    }

    /// Returns the embedding of the text, or of each token without pooling; of a reranker the scores
    /// of its classes, with the relevance first.
    pub fn finish(self) -> Vec<Vec<f32>> {
        let Pooler { model, cpu, pooling, choice, tokens, rows, sum } = self;
        let rows = match choice {
            Choice::Mean => vec![sum.iter().map(|sum| (sum / tokens as f64) as f32).collect()],
            Choice::All | Choice::First | Choice::Last => rows,
        };
        rows.into_iter().map(|row| model.after_pooling(cpu, pooling, row)).collect()
    }
}

/// Returns a vector with unit length; one of zeros as it is.
///
/// ```
/// assert_eq!(rope_cpu::model::normalized(&[3.0, 4.0]), [0.6, 0.8]);
/// ```
pub fn normalized(vector: &[f32]) -> Vec<f32> {
    let squares: f64 = vector.iter().map(|x| f64::from(*x).powi(2)).sum();
    let scale = if squares > 0.0 { 1.0 / squares.sqrt() } else { 0.0 };
    vector.iter().map(|x| (f64::from(*x) * scale) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normalized_vector_has_unit_length() {
        assert_eq!(normalized(&[3.0, -4.0]), [0.6, -0.8]);
        assert_eq!(normalized(&[0.0, 0.0]), [0.0, 0.0]);
    }
}
