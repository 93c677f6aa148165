//! Converts logits to likelihoods, and sums them.

use serde::{Deserialize, Serialize};

use crate::Token;

/// The normalization of a row of logits to log-probabilities.
///
/// For example, this is the perplexity of three tokens if the model finds two tokens equally likely:
///
/// ```
/// use rope_cpu::eval::likelihood::{Softmax, Sums};
///
/// let mut sums = Sums::default();
/// for _ in 0..3 {
///     let logits = [5.0, 5.0];
///     let softmax = Softmax::of(&logits).expect("finite logits");
///     sums.add(softmax.nll(logits[0]));
/// }
/// assert!((sums.perplexity().value - 2.0).abs() < 1e-6);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Softmax {
    /// The likeliest token; of equals the first.
    pub top: Token,
    /// The largest logit.
    pub max: f32,
    /// The logarithm of the sum of e^(logit - max).
    pub log_sum: f64,
}

impl Softmax {
    /// Computes the normalization of the logits of a vocabulary; `None` if they are empty or
    /// contain NaN or infinity.
    pub fn of(logits: &[f32]) -> Option<Self> {
        let (mut top, mut max) = (0, *logits.first()?);
        for (token, &logit) in logits.iter().enumerate() {
            if logit > max {
                (top, max) = (token, logit);
            }
        }
        // As in llama-perplexity: single precision for each term, double for the sum.
        let sum: f64 = logits.iter().map(|&logit| f64::from((logit - max).exp())).sum();
        sum.is_finite().then(|| Softmax { top: top as Token, max, log_sum: sum.ln() })
    }

    /// Returns the negative log-likelihood, in nats, of a token with this logit.
    pub fn nll(&self, logit: f32) -> f64 {
        self.log_sum - f64::from(logit - self.max)
    }
}

/// The sums of values and of their squares, for the mean and its standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    /// The number of values.
    pub count: usize,
    /// The sum of the values.
    pub sum: f64,
    /// The sum of the squares of the values.
    pub squares: f64,
}

impl Sums {
    /// Adds a value.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.squares += value * value;
    }

    /// Returns the mean and its standard error, for independent values; 0 without values.
    pub fn mean(&self) -> Estimate {
        let count = self.count.max(1) as f64;
        let value = self.sum / count;
        let variance = (self.squares / count - value * value).max(0.0);
        let others = self.count.saturating_sub(1).max(1) as f64;
        Estimate { value, uncertainty: (variance / others).sqrt() }
    }

    /// Returns the perplexity, e to the mean, of negative log-likelihoods.
    pub fn perplexity(&self) -> Estimate {
        self.mean().exp()
    }
}

/// A value and its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// The standard error.
    pub uncertainty: f64,
}

impl Estimate {
    /// Returns e to this value, with the error to first order.
    pub fn exp(self) -> Estimate {
        let value = self.value.exp();
        Estimate { value, uncertainty: value * self.uncertainty }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likelihoods_are_those_of_the_softmax() {
        // Probabilities 1/8, 1/2, 3/8.
        let logits = [1f32, 4.0, 3.0].map(|x| x.ln() + 7.0);
        let softmax = Softmax::of(&logits).unwrap();
        assert_eq!(softmax.top, 1);
        for (logit, p) in logits.iter().zip([0.125f64, 0.5, 0.375]) {
            // Logits near 8 have a resolution of 5e-7 or better.
            assert!((softmax.nll(*logit) + p.ln()).abs() < 2e-6, "{p}");
        }
        assert_eq!(Softmax::of(&[2.0, 5.0, 5.0]).unwrap().top, 1);
    }

    #[test]
    fn logits_that_are_no_numbers_have_none() {
        for bad in [f32::NAN, f32::INFINITY] {
            for place in 0..3 {
                let mut logits = [1.0, 2.0, 3.0];
                logits[place] = bad;
                assert_eq!(Softmax::of(&logits), None, "{bad} at {place}");
            }
        }
        assert_eq!(Softmax::of(&[]), None);
    }

    #[test]
    fn a_perplexity_has_the_error_of_its_mean() {
        let mut sums = Sums::default();
        for value in [1.0, 2.0, 6.0] {
            sums.add(value);
        }
        // Mean 3, mean square 41/3, variance 14/3, over n - 1 = 2.
        let mean = sums.mean();
        assert!((mean.value - 3.0).abs() < 1e-15);
        assert!((mean.uncertainty - (7f64 / 3.0).sqrt()).abs() < 1e-15);
        let ppl = sums.perplexity();
        assert!((ppl.value - 3f64.exp()).abs() < 1e-12);
        assert!((ppl.uncertainty - 3f64.exp() * (7f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(Sums::default().mean(), Estimate { value: 0.0, uncertainty: 0.0 });
    }
}
