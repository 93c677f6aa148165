//! The embedding of a text from those of its tokens.

use std::{ops::Range, str::FromStr};

use super::Model;

/// The way from the embeddings of tokens to that of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Not at all: each token's is reported.
    None,
    /// The mean of all.
    Mean,
    /// The first.
    Cls,
    /// The last.
    Last,
}

impl Pooling {
    /// All, in the order of llama.cpp's numbers.
    pub const ALL: [Pooling; 4] = [Pooling::None, Pooling::Mean, Pooling::Cls, Pooling::Last];

    /// Returns the name, as in llama.cpp.
    pub fn name(self) -> &'static str {
        match self {
            Pooling::None => "none",
            Pooling::Mean => "mean",
            Pooling::Cls => "cls",
            Pooling::Last => "last",
        }
    }

    /// Returns the pooling that a model was trained with, [`Pooling::Mean`] if its file gives none.
    pub fn of(model: &Model) -> Self {
        let key = format!("{}.pooling_type", model.config().architecture.name);
        // The numbers are those of `enum llama_pooling_type` in llama.h.
        match model.metadata().u32(&key).ok().flatten() {
            Some(0) => Pooling::None,
            Some(2) => Pooling::Cls,
            Some(3) => Pooling::Last,
            _ => Pooling::Mean,
        }
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

/// Pools the embeddings of the tokens of a text, which come in order.
#[derive(Debug)]
pub struct Pooler {
    pooling: Pooling,
    tokens: usize,
    rows: Vec<Vec<f32>>,
    sum: Vec<f64>,
}

impl Pooler {
    /// Creates a pooler for a text of `tokens` tokens.
    pub fn new(pooling: Pooling, tokens: usize) -> Self {
        Pooler { pooling, tokens, rows: Vec::new(), sum: Vec::new() }
    }

    /// Returns the tokens whose embeddings are needed. The last one always is.
    pub fn wanted(&self) -> Range<usize> {
        match self.pooling {
            Pooling::Last => self.tokens - 1..self.tokens,
            Pooling::None | Pooling::Mean | Pooling::Cls => 0..self.tokens,
        }
    }

    /// Adds the embedding of a token. Returns whether it was the last one.
    pub fn add(&mut self, token: usize, embedding: &[f32]) -> bool {
        match self.pooling {
            Pooling::None | Pooling::Last => self.rows.push(embedding.to_vec()),
            Pooling::Cls if token == 0 => self.rows.push(embedding.to_vec()),
            Pooling::Cls => {}
            Pooling::Mean => {
                self.sum.resize(embedding.len(), 0.0);
                self.sum.iter_mut().zip(embedding).for_each(|(sum, x)| *sum += f64::from(*x));
            }
        }
        token + 1 == self.tokens
    }

    /// Returns the embedding of the text, or those of all tokens without pooling.
    pub fn finish(self) -> Vec<Vec<f32>> {
        match self.pooling {
            Pooling::Mean => {
                let mean = self.sum.iter().map(|sum| (sum / self.tokens as f64) as f32);
                vec![mean.collect()]
            }
            Pooling::None | Pooling::Cls | Pooling::Last => self.rows,
        }
    }
}

/// Returns a vector with unit length; one of zeros as it is.
pub fn normalized(vector: &[f32]) -> Vec<f32> {
    let squares: f64 = vector.iter().map(|x| f64::from(*x).powi(2)).sum();
    let scale = if squares > 0.0 { 1.0 / squares.sqrt() } else { 0.0 };
    vector.iter().map(|x| (f64::from(*x) * scale) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pooling_takes_its_tokens() {
        let rows = [[1.0, 0.0], [3.0, 2.0], [5.0, -8.0]];
        for (pooling, expected) in [
            (Pooling::None, rows.map(Vec::from).to_vec()),
            (Pooling::Mean, vec![vec![3.0, -2.0]]),
            (Pooling::Cls, vec![vec![1.0, 0.0]]),
            (Pooling::Last, vec![vec![5.0, -8.0]]),
        ] {
            let mut pooler = Pooler::new(pooling, rows.len());
            for token in pooler.wanted() {
                assert_eq!(pooler.add(token, &rows[token]), token == 2);
            }
            assert_eq!(pooler.finish(), expected, "{pooling:?}");
        }
    }

    #[test]
    fn a_normalized_vector_has_unit_length() {
        assert_eq!(normalized(&[3.0, -4.0]), [0.6, -0.8]);
        assert_eq!(normalized(&[0.0, 0.0]), [0.0, 0.0]);
    }
}
