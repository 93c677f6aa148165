//! Llama 3.1's rule: high frequencies are kept, low ones divided by the factor, with a blend between
//! that is linear in the number of turns.
//!
//! Meta, "The Llama 3 Herd of Models" (arXiv:2407.21783) and its released code; `rope_type` llama3 of
//! Hugging Face. GGUF files store the result in `rope_freqs.weight`; setting these parameters replaces
//! that tensor.

use std::{f64::consts::TAU, fmt, sync::Arc};

use super::{Error, Rule, Scaling, Sourced, rule_inputs::RuleInputs, sourced::short, yarn};
use crate::settings::Parameter;

/// Llama 3.1's rule.
pub(super) static LLAMA3: Scaling = Scaling::rule(
    "llama3",
    "the rule of Llama 3.1, from its parameters instead of the tensor in the file",
    |inputs, _, _| Ok(Arc::new(Llama3::resolve(inputs)?)),
)
.parameters(&[&LOW_FREQ_FACTOR, &HIGH_FREQ_FACTOR])
.shares(&[&yarn::ORIG_CTX])
.replaces_divisors();

/// The number of turns below which a frequency is divided.
pub static LOW_FREQ_FACTOR: Parameter = Parameter::number(
    "llama3_low_freq_factor",
    "N",
    "llama3: divide pairs with fewer than N rotations [default: 1]",
)
.rare();

/// The number of turns above which a frequency is kept.
pub static HIGH_FREQ_FACTOR: Parameter = Parameter::number(
    "llama3_high_freq_factor",
    "N",
    "llama3: keep pairs with more than N rotations [default: 4]",
)
.rare();

/// The settings of Llama 3.1's rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Llama3 {
    /// The context before any extension, in tokens.
    pub original_context: Sourced<usize>,
    /// The number of turns within the original context below which a frequency is divided.
    pub low_freq_factor: Sourced<f64>,
    /// The number of turns above which a frequency is kept.
    pub high_freq_factor: Sourced<f64>,
}

impl Llama3 {
    fn resolve(inputs: &RuleInputs) -> Result<Self, Error> {
        let low = inputs.flags.number_or(&LOW_FREQ_FACTOR, 1.0).factor()?;
        let high = inputs.flags.number_or(&HIGH_FREQ_FACTOR, 4.0).factor()?;
        if high.value <= low.value {
            return Err(Error::BlendBounds { low: low.value, high: high.value });
        }
        let original_context = inputs.original_context()?;
        Ok(Llama3 { original_context, low_freq_factor: low, high_freq_factor: high })
    }
}

impl Rule for Llama3 {
    fn scale(&self, inv_freq: &mut [f64], _base: f64, factor: f64, _length: usize) {
        let context = self.original_context.value as f64;
        let (low, high) = (self.low_freq_factor.value, self.high_freq_factor.value);
        for theta in inv_freq {
            let wavelength = TAU / *theta;
            if wavelength > context / low {
                *theta /= factor;
            } else if wavelength >= context / high {
                let kept = (context / wavelength - low) / (high - low);
                *theta = (1.0 - kept) * *theta / factor + kept * *theta;
            }
        }
    }

    fn frequency_formula(&self, factor: f64) -> String {
        format!("(1 - γ_i) · θ_i / {} + γ_i · θ_i, γ by turns", short(factor))
    }

    fn original_context(&self) -> Option<&Sourced<usize>> {
        Some(&self.original_context)
    }
}

impl fmt::Display for Llama3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", original context {}", self.original_context)?;
        write!(f, ", low freq factor {}", self.low_freq_factor)?;
        write!(f, ", high freq factor {}", self.high_freq_factor)
    }
}
