//! NTK-RoPE-mixed: the stretch grows with a power of the index, so that low frequencies get most.
//!
//! Su Jianlin, kexue.fm/archives/9706 (2023): θ'_i = θ_i · exp(-a · (i+1)^b), with
//! a = ln k / (d/2)^b, so that the last frequency is divided by k. What it says of queries (a scale
//! by the logarithm of the position) is a matter of attention, and not done here.

use super::{Error, Sourced, rule_inputs::RuleInputs};

/// How the stretch is spread over the pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct NtkMixed {
    /// b: 1 spreads it evenly, less gives high frequencies more of it.
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

    pub(super) fn scale(&self, inv_freq: &mut [f64], factor: f64) {
        let b = self.exponent.value;
        let a = factor.ln() / (inv_freq.len() as f64).powf(b);
        for (i, theta) in inv_freq.iter_mut().enumerate() {
            *theta *= (-a * (i as f64 + 1.0).powf(b)).exp();
        }
    }
}
