//! Dynamic linear scaling: the factor is the length of the sequence divided by the original
//! context. Sequences within the original context are unchanged.
//!
//! Peng et al., "YaRN" (arXiv:2309.00071), section 3.3: s = max(1, n/L), there with position
//! interpolation (Dynamic-PI in appendix B). Lengths are rounded up to a step, as in `dynamic`.

use std::{fmt, sync::Arc};

use super::{
    Rule, Scaling, Sourced,
    dynamic::{self, STEP},
    linear::Linear,
    scaling::Factor,
    yarn::ORIG_CTX,
};

/// Dynamic linear scaling.
pub(super) static DYNAMIC_LINEAR: Scaling = Scaling::rule(
    "dynamic-linear",
    "linear with a factor that follows the length",
    |inputs, _, _| {
        let (original_context, step) = (inputs.original_context()?, dynamic::step(inputs)?);
        Ok(Arc::new(DynamicLinear { original_context, step }))
    },
)
.shares(&[&ORIG_CTX, &STEP])
.factor(Factor::ByLength);

/// The settings of dynamic linear scaling.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DynamicLinear {
    /// L: the context before any extension, in tokens.
    pub original_context: Sourced<usize>,
    /// Lengths beyond the original context are rounded up to a multiple of this number of tokens.
    pub step: Sourced<usize>,
}

impl Rule for DynamicLinear {
    fn scale(&self, inv_freq: &mut [f64], base: f64, _factor: f64, length: usize) {
        let factor = (length as f64 / self.original_context.value.max(1) as f64).max(1.0);
        Linear.scale(inv_freq, base, factor, length);
    }

    fn frequency_formula(&self, _factor: f64) -> String {
        "θ_i".into()
    }

    fn position_formula(&self, _factor: f64) -> String {
        let rounded = dynamic::rounded(self.step.value);
        format!("m / s, s = max(1, n / {}){rounded}", self.original_context.value)
    }

    fn effective_length(&self, tokens: usize) -> Option<usize> {
        let constant = self.original_context.value;
        Some(dynamic::effective_length(constant, self.step.value, tokens))
    }

    fn original_context(&self) -> Option<&Sourced<usize>> {
        Some(&self.original_context)
    }

    fn reach(&self, _unscaled: f64, _factor: f64) -> f64 {
        f64::INFINITY
    }
}

impl fmt::Display for DynamicLinear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", factor by length, step {}", self.step)?;
        write!(f, ", original context {}", self.original_context)
    }
}
