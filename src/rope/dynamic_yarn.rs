//! Dynamic YaRN: YaRN whose factor is the length of the sequence over the original context, so
//! that short sequences are not changed at all.
//!
//! Section 3.3 of the YaRN paper (arXiv:2309.00071): s = max(1, n/L); the released code is
//! `LlamaDynamicYaRNScaledRotaryEmbedding`. Lengths are rounded up to a grid, as in `dynamic`.

use std::fmt;

use super::{Error, Sourced, Yarn, dynamic, rule_inputs::RuleInputs, yarn::MagnitudeWeights};

/// YaRN, and how its factor follows the length.
#[derive(Clone, Debug, PartialEq)]
pub struct DynamicYarn {
    /// All but the factor.
    pub yarn: Yarn,
    /// The grid that lengths beyond the original context are rounded up to.
    pub step: Sourced<usize>,
    /// How the attention scale follows the factor; `None` if it does not.
    pub weights: Option<MagnitudeWeights>,
}

impl DynamicYarn {
    pub(super) fn resolve(inputs: &RuleInputs, ext_factor: Sourced<f64>) -> Result<Self, Error> {
        let weights = MagnitudeWeights::resolve(inputs)?;
        let constant = inputs.flags.yarn_attention_factor.is_some() || ext_factor.value == 0.0;
        Ok(DynamicYarn {
            yarn: Yarn::resolve(inputs, ext_factor)?,
            step: dynamic::step(inputs)?,
            weights: (!constant).then_some(weights),
        })
    }

    /// Of all lengths that have the frequencies of `tokens`, always the same one.
    pub(super) fn effective_length(&self, tokens: usize) -> usize {
        dynamic::effective_length(self.yarn.original_context.value, self.step.value, tokens)
    }

    pub(super) fn factor(&self, length: usize) -> f64 {
        (length as f64 / self.yarn.original_context.value.max(1) as f64).max(1.0)
    }

    /// What multiplies the attention scale for sequences of this length.
    pub(super) fn magnitude(&self, length: usize) -> f64 {
        self.weights.as_ref().map_or(1.0, |weights| weights.magnitude(self.factor(length)))
    }
}

impl fmt::Display for DynamicYarn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", factor by length, step {}{}", self.step, self.yarn)?;
        match &self.weights {
            Some(weights) => write!(f, ", attention scale by factor ({})", weights.origin),
            None => Ok(()),
        }
    }
}
