//! LongRoPE: two sets of divisors, one for sequences within the original context and one for
//! longer ones, with one attention scale for both.
//!
//! Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens" (arXiv:2402.13753):
//! the divisors are the rescale factors λ_i found by its search. The attention scale is that of Phi
//! 3's released code.

use std::sync::Arc;

use super::{Scaling, linear::Linear, scaling::Factor};

/// LongRoPE. Its divisors apply before the factor of the file, if there is one.
pub static LONGROPE: Scaling =
    Scaling::rule("longrope", "the divisors in the file", |_, _, _| Ok(Arc::new(Linear)))
        .factor(Factor::OfFile)
        .in_llama_cpp();

/// The two sets of divisors, each with one value for each pair.
#[derive(Clone, Debug, PartialEq)]
pub struct LongRope {
    /// The length in tokens up to which the short set applies.
    pub original_context: usize,
    /// Divisors up to the original context (`rope_factors_short.weight`).
    pub short: Vec<f32>,
    /// Divisors beyond it (`rope_factors_long.weight`).
    pub long: Vec<f32>,
}

impl LongRope {
    /// Returns the divisors for a sequence of `length` tokens.
    pub(super) fn divisors(&self, length: usize) -> &[f32] {
        if length > self.original_context { &self.long } else { &self.short }
    }
}

/// Returns sqrt(1 + ln s / ln L) for a context L extended by s: the attention scale if the file does
/// not have one.
pub(super) fn magnitude(factor: f64, original_context: usize) -> f64 {
    if factor <= 1.0 || original_context < 2 {
        1.0
    } else {
        (1.0 + factor.ln() / (original_context as f64).ln()).sqrt()
    }
}
