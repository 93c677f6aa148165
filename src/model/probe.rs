//! Measures how much attention the last tokens of a text pay to each of its first ones: the maximum over
//! all heads and layers, of probabilities that are averaged over neighbouring tokens.
//!
//! ```text
//! for each probed token t, layer and head:
//!     p(i)       = softmax over i < length of score(t, i)
//!     pooled(i)  = sum of p(i - 6 .. i + 6) / 13
//! maximum(t, i)  = largest pooled(i) of all layers and heads
//! ```
//! Speculative prefill chooses tokens by it: see
//! [`prefill`](crate::generate::speculation::prefill).

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Config;
use crate::platform::memory::{Refused, filled};

/// The number of neighbours on each side that probabilities are averaged with.
const NEIGHBOURS: usize = 6;

/// The attention of tokens from position `length - 1` on to the first `length` positions.
pub struct Probe {
    length: usize,
    /// The number of probed tokens.
    tokens: usize,
    maxima: Mutex<Vec<f32>>, // (tokens, length)
    /// For each KV head of a layer: (heads of its group, length).
    scores: Vec<Mutex<Vec<f32>>>,
}

impl Probe {
    /// Creates a probe of `tokens` tokens: the one at position `length - 1`, and those after it.
    ///
    /// # Errors
    /// If the system has no memory left.
    pub fn new(config: &Config, length: usize, tokens: usize) -> Result<Self, Refused> {
        let heads = config.attention_max(|attention| attention.kv_heads);
        let group = config.attention_max(|attention| attention.group());
        let scores = (0..heads).map(|_| filled(0.0, group * length).map(Mutex::new));
        Ok(Probe {
            length,
            tokens,
            maxima: Mutex::new(filled(0.0, tokens * length)?),
            scores: scores.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the number of positions that attention is measured to.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the index of the probed token at a position.
    pub fn token_at(&self, position: usize) -> Option<usize> {
        (position + 1).checked_sub(self.length).filter(|token| *token < self.tokens)
    }

    /// Returns the buffer for scores of a KV head's query heads.
    pub fn scores(&self, kv_head: usize) -> MutexGuard<'_, Vec<f32>> {
        self.scores[kv_head].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the probabilities of one head for a probed token. `scores` has its scores, and `sink` a
    /// score without a value.
    pub fn add(&self, token: usize, scores: &mut [f32], sink: Option<f32>) {
        softmax(scores, sink);
        let mut maxima = self.maxima.lock().unwrap_or_else(PoisonError::into_inner);
        let maxima = &mut maxima[token * self.length..][..self.length];
        // The sum of a window that moves over all positions, in double precision so that it does not
        // drift.
        let ahead = scores.iter().skip(NEIGHBOURS + 1).map(Some).chain(std::iter::repeat(None));
        let behind = std::iter::repeat_n(None, NEIGHBOURS).chain(scores.iter().map(Some));
        let value = |p: Option<&f32>| p.map_or(0.0, |p| f64::from(*p));
        let mut sum: f64 = scores.iter().take(NEIGHBOURS + 1).map(|p| f64::from(*p)).sum();
        for ((maximum, first), next) in maxima.iter_mut().zip(behind).zip(ahead) {
            *maximum = maximum.max((sum / (2 * NEIGHBOURS + 1) as f64) as f32);
            sum += value(next) - value(first);
        }
    }

    /// Returns the mean of the maxima of the first `tokens` probed tokens, at each position.
    pub fn into_means(self, tokens: usize) -> Vec<f32> {
        let maxima = self.maxima.into_inner().unwrap_or_else(PoisonError::into_inner);
        let count = tokens.clamp(1, self.tokens);
        let mut of_tokens = maxima.chunks_exact(self.length).take(count).map(<[f32]>::to_vec);
        let mut means = of_tokens.next().unwrap_or_default();
        for maxima in of_tokens {
            means.iter_mut().zip(maxima).for_each(|(mean, maximum)| *mean += maximum);
        }
        means.iter_mut().for_each(|mean| *mean /= count as f32);
        means
    }
}

/// Converts scores to probabilities. Some may be minus infinity.
fn softmax(scores: &mut [f32], sink: Option<f32>) {
    let largest = scores.iter().copied().chain(sink).fold(f32::MIN, f32::max);
    scores.iter_mut().for_each(|score| *score = (*score - largest).exp());
    let sum: f64 = scores.iter().map(|p| f64::from(*p)).sum();
    let sum = (sum + sink.map_or(0.0, |sink| f64::from((sink - largest).exp()))) as f32;
    if sum > 0.0 {
        scores.iter_mut().for_each(|p| *p /= sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_averaged_over_thirteen_positions() {
        let scores = |at: usize| {
            let mut scores = vec![f32::NEG_INFINITY; 40];
            scores[at] = 1.0;
            scores
        };
        let probe = |all: &[(usize, usize)]| {
            let heads = Vec::new();
            let maxima = Mutex::new(vec![0.0; 2 * 40]);
            let probe = Probe { length: 40, tokens: 2, maxima, scores: heads };
            all.iter().for_each(|(token, at)| probe.add(*token, &mut scores(*at), None));
            probe
        };
        let near = |position: usize, at: usize| position.abs_diff(at) <= NEIGHBOURS;
        for at in [0, 3, 20, 39] {
            let means = probe(&[(0, at)]).into_means(1);
            for (position, mean) in means.iter().enumerate() {
                let expected = if near(position, at) { 1.0 / 13.0 } else { 0.0 };
                assert!((mean - expected).abs() < 1e-6, "{at} {position}: {mean}");
            }
        }
        // The maximum of heads, and the mean of tokens.
        let means = probe(&[(0, 10), (0, 10), (0, 30), (1, 10)]).into_means(2);
        assert!((means[10] - 1.0 / 13.0).abs() < 1e-6 && (means[30] - 0.5 / 13.0).abs() < 1e-6);
    }

    #[test]
    fn a_sink_takes_its_share() {
        let mut scores = [0.0, 0.0, f32::NEG_INFINITY];
        softmax(&mut scores, Some(2.0f32.ln()));
        assert!(scores.iter().zip([0.25, 0.25, 0.0]).all(|(p, q)| (p - q).abs() < 1e-6));
        let mut unseen = [f32::NEG_INFINITY; 2];
        softmax(&mut unseen, None);
        assert_eq!(unseen, [0.0; 2]);
    }
}
