//! Dynamic YaRN: YaRN whose factor is the length of the sequence divided by the original context.
//! Sequences within the original context are unchanged.
//!
//! Section 3.3 of the YaRN paper (arXiv:2309.00071): s = max(1, n/L); the released code is
//! `LlamaDynamicYaRNScaledRotaryEmbedding`. Lengths are rounded up to a step, as in `dynamic`.

use std::fmt;

use super::{Error, Sourced, Yarn, dynamic, rule_inputs::RuleInputs, yarn::MagnitudeWeights};

/// The settings of dynamic YaRN.
#[derive(Clone, Debug, PartialEq)]
pub struct DynamicYarn {
    /// The settings of YaRN, all but the factor.
    pub yarn: Yarn,
    /// Lengths beyond the original context are rounded up to a multiple of this number of tokens.
    pub step: Sourced<usize>,
    /// The weights that make the attention scale depend on the factor; `None` if it does not.
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

    /// Returns the length that stands for all lengths with the frequencies of `tokens`.
    pub(super) fn effective_length(&self, tokens: usize) -> usize {
        dynamic::effective_length(self.yarn.original_context.value, self.step.value, tokens)
    }

    /// Returns the factor for sequences of `length` tokens, at least 1.
    pub(super) fn factor(&self, length: usize) -> f64 {
        (length as f64 / self.yarn.original_context.value.max(1) as f64).max(1.0)
    }

    /// Returns the number that multiplies the attention scale for sequences of `length` tokens.
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
