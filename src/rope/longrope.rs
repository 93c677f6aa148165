//! LongRoPE: two sets of divisors, one for sequences within the original context and one for
//! longer ones; the same attention scale for both.
//!
//! Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens" (arXiv:2402.13753):
//! the rescale factors λ_i that its search finds. The attention scale is that of Phi 3's released code.

/// The two sets, one value for each pair.
#[derive(Clone, Debug, PartialEq)]
pub struct LongRope {
    /// The longest sequence that the short set serves.
    pub original_context: usize,
    /// Divisors up to the original context (`rope_factors_short.weight`).
    pub short: Vec<f32>,
    /// Divisors beyond it (`rope_factors_long.weight`).
    pub long: Vec<f32>,
}

impl LongRope {
    /// The divisors for a sequence of this length.
    pub(super) fn divisors(&self, length: usize) -> &[f32] {
        if length > self.original_context { &self.long } else { &self.short }
    }
}

/// sqrt(1 + ln s / ln L) for a context L extended by s: the scale of cosine and sine where the
/// file does not give one.
pub(super) fn magnitude(factor: f64, original_context: usize) -> f64 {
    if factor <= 1.0 || original_context < 2 {
        1.0
    } else {
        (1.0 + factor.ln() / (original_context as f64).ln()).sqrt()
    }
}
