//! Compares the probabilities of two runs on the same text, with the statistics of
//! llama-perplexity's KL divergence.

use std::{
    io::{self, Read},
    ops::ControlFlow,
};

use super::{
    likelihood::{Estimate, Softmax, Sums},
    logits_file::Reader,
    perplexity::{Error, score, side_by_side, windows},
};
use crate::{Token, model::Engine};

/// Minimum log-probability that llama-perplexity includes in a divergence.
const LEAST: f32 = -16.0;

/// The statistics of the comparison, in nats. The base is the run to compare with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Divergence {
    /// The negative log-likelihoods of this run.
    pub nll: Sums,
    /// The negative log-likelihoods of the base.
    pub base: Sums,
    /// The sum of the products of both negative log-likelihoods.
    products: f64,
    /// Kullback-Leibler divergences of this run from the base.
    pub kl: Sums,
    /// The differences of the probabilities of the text's tokens: this run's less the base's.
    pub difference: Sums,
    /// The squares of the differences.
    difference_squares: Sums,
    /// The number of positions at which both runs have the same likeliest token.
    same_top: usize,
    /// The divergence at each position.
    kl_values: Vec<f32>,
    /// The difference at each position.
    difference_values: Vec<f32>,
}

/// The statistics after a window.
#[derive(Clone, Copy, Debug)]
pub struct Point<'d> {
    /// The number of the window, from 1.
    pub number: usize,
    /// The total number of windows.
    pub total: usize,
    /// The number of windows that were processed together, including this one.
    pub together: usize,
    /// The statistics up to the end of this window.
    pub so_far: &'d Divergence,
}

/// Runs the model on the text of `base` and compares the probabilities. A point is passed to `each`
/// after each window.
///
/// It processes at most `windows_max` windows; `bos` replaces the first token of each.
///
/// # Errors
///
/// If the file is damaged or for another vocabulary, the context is too small, logits are not
/// finite, or `each` fails.
pub fn divergence<R: Read>(
    engine: &mut Engine,
    base: &mut Reader<R>,
    bos: Option<Token>,
    windows_max: Option<usize>,
    each: &mut dyn FnMut(Point<'_>) -> io::Result<()>,
) -> Result<Divergence, Error> {
    if base.vocabulary() != engine.vocabulary() {
        let (file, model) = (base.vocabulary(), engine.vocabulary());
        return Err(Error::Vocabulary { file, model });
    }
    let text = base.tokens().to_vec();
    let mut divergence = Divergence::default();
    let window = base.window();
    let cut = windows::halves(text.len(), window).take(windows_max.unwrap_or(usize::MAX));
    let cut: Vec<_> = cut.collect();
    let total = cut.len();
    let together = side_by_side(window, engine.options().micro_batch).min(total);
    let read = &mut |_| ControlFlow::Continue(());
    score(engine, &text, &cut, bos, read, &mut |index, token| {
        let Some(scored) = token else {
            let point = Point { number: index + 1, total, together, so_far: &divergence };
            return each(point).map_err(Error::Show);
        };
        let token = text[cut[index].tokens.start + scored.position];
        divergence.add(base.row()?, token, scored.nll, scored.softmax, scored.logits);
        Ok(())
    })?;
    Ok(divergence)
}

impl Divergence {
    /// Adds a position: the base's log-probabilities, the token of the text, and this run's
    /// results.
    pub(super) fn add(
        &mut self,
        base: &[f32],
        token: Token,
        nll: f64,
        softmax: &Softmax,
        logits: &[f32],
    ) {
        let nll_base = -f64::from(base[token as usize]);
        self.nll.add(nll);
        self.base.add(nll_base);
        self.products += nll * nll_base;

        let log_total = softmax.max + softmax.log_sum as f32;
        let mut kl = 0.0;
        let mut top = 0;
        for (i, (&base_log, &logit)) in base.iter().zip(logits).enumerate() {
            if base_log > base[top] {
                top = i;
            }
            if base_log > LEAST {
                kl += f64::from(base_log.exp() * (base_log - logit + log_total));
            }
        }
        self.kl.add(kl);
        self.kl_values.push(kl as f32);
        self.same_top += usize::from(top == softmax.top as usize);

        let difference = (-nll).exp() - (-nll_base).exp();
        self.difference.add(difference);
        self.difference_squares.add(difference * difference);
        self.difference_values.push(difference as f32);
    }

    /// Returns the number of tokens compared.
    pub fn count(&self) -> usize {
        self.kl.count
    }

    /// Returns the difference of the logarithms of both perplexities, this run's less the base's.
    pub fn log_ratio(&self) -> Estimate {
        let (nll, base) = (self.nll.mean(), self.base.mean());
        let variance = nll.uncertainty.powi(2) + base.uncertainty.powi(2) - 2.0 * self.covariance();
        Estimate { value: nll.value - base.value, uncertainty: variance.max(0.0).sqrt() }
    }

    /// Returns the difference of both perplexities, this run's less the base's.
    pub fn perplexity_difference(&self) -> Estimate {
        let (ppl, base) = (self.nll.perplexity(), self.base.perplexity());
        let covariance = ppl.value * base.value * self.covariance();
        let variance = ppl.uncertainty.powi(2) + base.uncertainty.powi(2) - 2.0 * covariance;
        Estimate { value: ppl.value - base.value, uncertainty: variance.max(0.0).sqrt() }
    }

    /// Returns the correlation of the two logarithms of perplexities; `None` if one has no spread.
    pub fn correlation(&self) -> Option<f64> {
        let spread = self.nll.mean().uncertainty * self.base.mean().uncertainty;
        (spread > 0.0).then(|| self.covariance() / spread)
    }

    /// Returns the root mean square of the differences of probabilities.
    pub fn rms_difference(&self) -> Estimate {
        let mean = self.difference_squares.mean();
        let value = mean.value.sqrt();
        let uncertainty = if value > 0.0 { 0.5 / value * mean.uncertainty } else { 0.0 };
        Estimate { value, uncertainty }
    }

    /// Returns the share of positions at which both runs have the same likeliest token.
    pub fn same_top(&self) -> Estimate {
        let value = self.same_top as f64 / self.count().max(1) as f64;
        let others = self.count().saturating_sub(1).max(1) as f64;
        Estimate { value, uncertainty: (value * (1.0 - value) / others).sqrt() }
    }

    /// Returns the quantiles of the divergences.
    pub fn kl_quantiles(&self) -> Quantiles {
        Quantiles::of(&self.kl_values)
    }

    /// Returns the quantiles of the differences of probabilities.
    pub fn difference_quantiles(&self) -> Quantiles {
        Quantiles::of(&self.difference_values)
    }

    /// Returns the covariance of the means of the two negative log-likelihoods.
    fn covariance(&self) -> f64 {
        let count = self.count().max(1) as f64;
        let others = self.count().saturating_sub(1).max(1) as f64;
        (self.products / count - self.nll.sum / count * (self.base.sum / count)) / others
    }
}

/// Sorted values, from which quantiles are computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantiles(Vec<f32>);

impl Quantiles {
    fn of(values: &[f32]) -> Self {
        let mut values = values.to_vec();
        values.sort_by(f32::total_cmp);
        Quantiles(values)
    }

    /// Returns the quantile for `share`, from 0 to 1, with linear interpolation between two values;
    /// 0 without values.
    pub fn at(&self, share: f64) -> f64 {
        let place = share.clamp(0.0, 1.0) * self.0.len().saturating_sub(1) as f64;
        let value = |i: usize| self.0.get(i).or(self.0.last()).map_or(0.0, |&x| f64::from(x));
        let part = place.fract();
        (1.0 - part) * value(place as usize) + part * value(place as usize + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds a token with these probabilities to `divergence`.
    fn add(divergence: &mut Divergence, base: [f64; 3], ours: [f64; 3], token: Token) {
        let logs = base.map(|p| p.ln() as f32);
        let logits = ours.map(|p| p.ln() as f32 + 3.0);
        let softmax = Softmax::of(&logits).unwrap();
        divergence.add(&logs, token, softmax.nll(logits[token as usize]), &softmax, &logits);
    }

    #[track_caller]
    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-5, "{found}, not {expected}");
    }

    #[test]
    fn the_numbers_are_those_of_the_definitions() {
        let mut d = Divergence::default();
        add(&mut d, [0.5, 0.25, 0.25], [0.25, 0.5, 0.25], 0);
        add(&mut d, [0.5, 0.3, 0.2], [0.5, 0.3, 0.2], 1);
        let ln2 = 2f64.ln();
        // 1/2 ln(1/2 : 1/4) + 1/4 ln(1/4 : 1/2), and nothing for the second token.
        close(d.kl.mean().value, (0.5 * ln2 - 0.25 * ln2) / 2.0);
        close(d.kl_quantiles().at(1.0), 0.25 * ln2);
        close(d.kl_quantiles().at(0.0), 0.0);
        close(d.kl_quantiles().at(0.5), 0.125 * ln2);
        close(d.difference.mean().value, -0.125);
        close(d.rms_difference().value, (0.0625f64 / 2.0).sqrt());
        close(d.same_top().value, 0.5);
        close(d.same_top().uncertainty, 0.5);
        close(d.log_ratio().value, ln2 / 2.0);
        let (ppl, base) = ((0.25f64 * 0.3).powf(-0.5), (0.5f64 * 0.3).powf(-0.5));
        close(d.nll.perplexity().value, ppl);
        close(d.perplexity_difference().value, ppl - base);
        // The ratios of the two tokens are ln 2 and 0: deviation ln 2 / 2, over n - 1 = 1.
        close(d.log_ratio().uncertainty, ln2 / 2.0);
        // From the first token to the second, our value falls and the base's rises.
        close(d.correlation().unwrap(), -1.0);
    }

    #[test]
    fn a_run_against_itself_has_no_distance() {
        let mut d = Divergence::default();
        for token in [0, 1, 2, 1] {
            add(&mut d, [0.6, 0.3, 0.1], [0.6, 0.3, 0.1], token);
        }
        close(d.kl.mean().value, 0.0);
        close(d.rms_difference().value, 0.0);
        close(d.same_top().value, 1.0);
        close(d.log_ratio().value, 0.0);
    }

    #[test]
    fn quantiles_lie_on_the_line_between_two_values() {
        let quantiles = Quantiles::of(&[4.0, 1.0, 2.0]);
        for (share, value) in [(0.0, 1.0), (0.25, 1.5), (0.5, 2.0), (0.75, 3.0), (1.0, 4.0)] {
            assert_eq!(quantiles.at(share), value);
        }
        assert_eq!(Quantiles::of(&[]).at(0.5), 0.0);
    }

    #[test]
    fn nothing_has_no_distance() {
        let d = Divergence::default();
        assert_eq!(d.same_top(), Estimate { value: 0.0, uncertainty: 0.0 });
        assert_eq!(d.log_ratio(), Estimate { value: 0.0, uncertainty: 0.0 });
        assert_eq!(d.correlation(), None);
    }
}
