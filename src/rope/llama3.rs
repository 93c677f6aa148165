//! Llama 3.1's rule: high frequencies are kept, low ones divided by the factor, with a blend between
//! that is linear in the number of turns.
//!
//! Meta, "The Llama 3 Herd of Models" (arXiv:2407.21783) and its released code; `rope_type` llama3 of
//! Hugging Face. GGUF files store the result in `rope_freqs.weight`; setting these parameters replaces
//! that tensor.

use std::f64::consts::TAU;

use super::{Error, Sourced, rule_inputs::RuleInputs};

/// The settings of Llama 3.1's rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Llama3 {
    /// The context before any extension, in tokens.
    pub original_context: Sourced<usize>,
    /// The number of turns within the original context below which a frequency is divided.
    pub low_freq_factor: Sourced<f64>,
    /// The number of turns above which a frequency is kept.
    pub high_freq_factor: Sourced<f64>,
}

impl Llama3 {
    pub(super) fn resolve(inputs: &RuleInputs) -> Result<Self, Error> {
        let value = |flag, value: Option<f64>, default| match value {
            Some(value) => Sourced::number(flag, value).factor(),
            None => Ok(Sourced::default(default)),
        };
        let low = value("--llama3-low-freq-factor", inputs.flags.llama3_low_freq_factor, 1.0)?;
        let high = value("--llama3-high-freq-factor", inputs.flags.llama3_high_freq_factor, 4.0)?;
        if high.value <= low.value {
            return Err(Error::BlendBounds { low: low.value, high: high.value });
        }
        let original_context = inputs.original_context()?;
        Ok(Llama3 { original_context, low_freq_factor: low, high_freq_factor: high })
    }

    pub(super) fn scale(&self, inv_freq: &mut [f64], factor: f64) {
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
}
