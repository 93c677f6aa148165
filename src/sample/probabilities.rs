//! Probabilities of tokens, reported with an answer.

use super::Candidate;
use crate::Token;

/// The probabilities of a generated token and of the most likely alternatives.
///
/// ```
/// use rope_cpu::sample::Probabilities;
///
/// let probabilities = Probabilities::of_logits(&[0.0, 2.0, 1.0], 2, 1);
/// assert_eq!(probabilities.chosen.token, 2);
/// assert_eq!(probabilities.top[0].token, 1);
/// assert!(probabilities.top[0].value > probabilities.chosen.value);
/// ```
#[derive(Clone, Debug)]
pub struct Probabilities {
    /// The generated token.
    pub chosen: Likelihood,
    /// The likeliest tokens, in descending order.
    pub top: Vec<Likelihood>,
    /// Whether the values are probabilities after all samplers, instead of logarithms.
    pub after_sampling: bool,
}

/// A token with its probability or the logarithm of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Likelihood {
    /// The token.
    pub token: Token,
    /// The value.
    pub value: f32,
}

impl Probabilities {
    /// Computes log probabilities from the model's logits, before any sampler.
    pub fn of_logits(logits: &[f32], chosen: Token, top: usize) -> Self {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|logit| f64::from(logit - max).exp()).sum();
        let normalizer = max + sum.ln() as f32;
        let likelihood = |token: Token| {
            let logit = logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
            Likelihood { token, value: logit - normalizer }
        };
        let mut tokens: Vec<Token> = (0..logits.len() as Token).collect();
        let descending = |a: &Token, b: &Token| {
            logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b))
        };
        if top < tokens.len() {
            tokens.select_nth_unstable_by(top, descending);
            tokens.truncate(top);
        }
        tokens.sort_unstable_by(descending);
        Probabilities {
            chosen: likelihood(chosen),
            top: tokens.into_iter().map(likelihood).collect(),
            after_sampling: false,
        }
    }

    /// Takes the probabilities from the candidates that all samplers have left.
    pub fn of_candidates(candidates: &[Candidate], chosen: Token, top: usize) -> Self {
        let mut all: Vec<_> = candidates
            .iter()
            .map(|c| Likelihood { token: c.token, value: c.probability })
            .collect();
        all.sort_by(|a, b| b.value.total_cmp(&a.value).then(a.token.cmp(&b.token)));
        let found = all.iter().find(|likelihood| likelihood.token == chosen).copied();
        let chosen = found.unwrap_or(Likelihood { token: chosen, value: 0.0 });
        all.truncate(top);
        // The candidates may be the whole vocabulary.
        all.shrink_to_fit();
        Probabilities { chosen, top: all, after_sampling: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_normalized_and_in_descending_order() {
        let logits = [1.0, 3.0, 2.0, 3.0];
        let probabilities = Probabilities::of_logits(&logits, 2, 3);
        let tokens: Vec<_> = probabilities.top.iter().map(|l| l.token).collect();
        assert_eq!(tokens, [1, 3, 2]);
        let all = Probabilities::of_logits(&logits, 0, 9).top;
        let sum: f32 = all.iter().map(|l| l.value.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6, "{sum}");
        assert_eq!(probabilities.chosen, probabilities.top[2]);
    }
}
