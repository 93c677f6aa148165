//! YaRN: frequencies that turn often within the original context are kept, those that turn less
//! than about once are interpolated, with a ramp between; the attention is sharpened a little.
//!
//! As in the code of YaRN, Hugging Face and ggml, the ramp is linear in the index of the pair,
//! where the paper's is linear in the number of turns.

use std::f64::consts::TAU;

use super::Sourced;

/// What YaRN needs to know besides the factor.
#[derive(Clone, Debug, PartialEq)]
pub struct Yarn {
    /// The context that the model was trained for before any extension.
    pub original_context: Sourced<usize>,
    /// How much of a kept frequency is kept: 1 is YaRN, 0 interpolates everything.
    pub ext_factor: Sourced<f64>,
    /// Turns within the original context above which a frequency is kept.
    pub beta_fast: Sourced<f64>,
    /// Turns below which a frequency is interpolated.
    pub beta_slow: Sourced<f64>,
}

impl Yarn {
    /// For each pair, the share of the frequency that is kept; the rest is interpolated.
    pub(super) fn kept(&self, n_rot: usize, base: f64) -> impl Iterator<Item = f64> {
        // The (fractional) pair that makes `turns` turns within the original context.
        let d = n_rot as f64;
        let context = self.original_context.value as f64;
        let pair = |turns: f64| d * (context / (turns * TAU)).ln() / (2.0 * base.ln());
        // d - 1 and not d/2 - 1: so it is in every implementation.
        let low = pair(self.beta_fast.value).floor().max(0.0);
        let high = pair(self.beta_slow.value).ceil().min(d - 1.0);
        let width = (high - low).max(0.001);
        let ext_factor = self.ext_factor.value;
        (0..n_rot / 2).map(move |i| (1.0 - ((i as f64 - low) / width).clamp(0.0, 1.0)) * ext_factor)
    }
}

/// m(s) = 1 + 0.1 · weight · ln s: how much cosine and sine grow with the factor s; 1 up to s = 1.
pub(super) fn magnitude(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 1.0 + 0.1 * weight * factor.ln() }
}
