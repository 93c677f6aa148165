//! NTK-RoPE-mixed: the divisor of a frequency grows with a power of the pair index, so that low
//! frequencies are divided most.
//!
//! Su Jianlin, kexue.fm/archives/9706 (2023): θ'_i = θ_i · exp(-a · (i+1)^b), with
//! a = ln k / (d/2)^b, so that the last frequency is divided by k. The article also scales queries by
//! the logarithm of their position; that acts on attention and is not part of this rule.

use super::{Error, Sourced, rule_inputs::RuleInputs};

/// The settings of NTK-RoPE-mixed.
#[derive(Clone, Debug, PartialEq)]
pub struct NtkMixed {
    /// b: with 1 the logarithm of the divisor is linear in the pair index; smaller values divide high
    /// frequencies more.
    pub exponent: Sourced<f64>,
}

impl NtkMixed {
    pub(super) fn resolve(inputs: &RuleInputs) -> Result<Self, Error> {
        let exponent = match inputs.flags.ntk_mixed_exponent {
            Some(b) => Sourced::number("--ntk-mixed-exponent", b).within(0.0, 16.0)?,
            None => Sourced::default(0.75),
        };
        Ok(NtkMixed { exponent })
    }

    /// Scales the frequencies; `factor` is k.
    pub(super) fn scale(&self, inv_freq: &mut [f64], factor: f64) {
        let b = self.exponent.value;
        let a = factor.ln() / (inv_freq.len() as f64).powf(b);
        for (i, theta) in inv_freq.iter_mut().enumerate() {
            *theta *= (-a * (i as f64 + 1.0).powf(b)).exp();
        }
    }
}
