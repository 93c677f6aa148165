//! Dynamic YaRN: the factor is the length of the sequence divided by the original context.
//! Sequences within the original context are unchanged.
//!
//! Section 3.3 of the YaRN paper (arXiv:2309.00071): s = max(1, n/L); the released code is
//! `LlamaDynamicYaRNScaledRotaryEmbedding`. Lengths are rounded up to a step, as in `dynamic`.

use std::{fmt, sync::Arc};

use super::{
    Error, Flags, Plan, Rule, Scaling, Sourced, dynamic,
    rule_inputs::RuleInputs,
    scaling::Factor,
    yarn::{self, MagnitudeWeights, Yarn},
};

/// Dynamic YaRN.
pub(super) static DYNAMIC_YARN: Scaling =
    Scaling::rule("dynamic-yarn", "yarn with a factor that follows the length", |inputs, _, _| {
        Ok(Arc::new(DynamicYarn::resolve(inputs)?))
    })
    .shares(&[
        &yarn::ORIG_CTX,
        &yarn::EXT_FACTOR,
        &yarn::BETA_SLOW,
        &yarn::BETA_FAST,
        &yarn::RAMP,
        &yarn::ATTENTION_FACTOR,
        &yarn::MSCALE,
        &yarn::MSCALE_ALL_DIM,
        &dynamic::STEP,
    ])
    .factor(Factor::ByLength);

/// The settings of dynamic YaRN.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DynamicYarn {
    /// The settings of YaRN, all but the factor.
    pub yarn: Yarn,
    /// Lengths beyond the original context are rounded up to a multiple of this number of tokens.
    pub step: Sourced<usize>,
    /// The weights that make the attention scale and the scale of scores depend on the factor; `None`
    /// if they do not.
    pub weights: Option<MagnitudeWeights>,
    /// Whether the attention scale is given, so that it does not depend on the factor.
    pub given: bool,
}

impl DynamicYarn {
    fn resolve(inputs: &RuleInputs) -> Result<Self, Error> {
        let weights = MagnitudeWeights::resolve(inputs)?;
        let yarn = Yarn::resolve(inputs)?;
        let weights = (yarn.ext_factor.value != 0.0).then_some(weights);
        let given = inputs.flags.values.has(&yarn::ATTENTION_FACTOR);
        Ok(DynamicYarn { yarn, step: dynamic::step(inputs)?, weights, given })
    }

    /// Returns the factor for sequences of `length` tokens, at least 1.
    fn factor(&self, length: usize) -> f64 {
        (length as f64 / self.yarn.original_context.value.max(1) as f64).max(1.0)
    }
}

impl Rule for DynamicYarn {
    fn scale(&self, inv_freq: &mut [f64], base: f64, _factor: f64, length: usize) {
        self.yarn.scale(inv_freq, base, self.factor(length), length);
    }

    fn frequency_formula(&self, _factor: f64) -> String {
        let original = self.yarn.original_context.value;
        let rounded = dynamic::rounded(self.step.value);
        format!("(1 - γ_i) · θ_i / s + γ_i · θ_i, s = max(1, n / {original}){rounded}")
    }

    fn effective_length(&self, tokens: usize) -> Option<usize> {
        let constant = self.yarn.original_context.value;
        Some(dynamic::effective_length(constant, self.step.value, tokens))
    }

    fn magnitude(&self, length: usize) -> f64 {
        let weights = self.weights.as_ref().filter(|_| !self.given);
        weights.map_or(1.0, |weights| weights.magnitude(self.factor(length)))
    }

    fn score_scale(&self, length: usize) -> f64 {
        self.weights.as_ref().map_or(1.0, |weights| weights.score_scale(self.factor(length)))
    }

    fn original_context(&self) -> Option<&Sourced<usize>> {
        self.yarn.original_context()
    }

    fn reach(&self, _unscaled: f64, _factor: f64) -> f64 {
        f64::INFINITY
    }

    fn unlike_llama_cpp(&self, _plan: &Plan, flags: &Flags) -> Vec<String> {
        yarn::missing_in_llama_cpp(flags).collect()
    }
}

impl fmt::Display for DynamicYarn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", factor by length, step {}{}", self.step, self.yarn)?;
        match &self.weights {
            Some(weights) if !self.given => {
                write!(f, ", attention scale by factor ({})", weights.origin)
            }
            _ => Ok(()),
        }
    }
}
