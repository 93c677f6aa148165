//! NTK-RoPE-mixed: the divisor of a frequency grows with a power of the pair index, so that low
//! frequencies are divided most.
//!
//! Su Jianlin, kexue.fm/archives/9706 (2023): θ'_i = θ_i · exp(-a · (i+1)^b), with
//! a = ln k / (d/2)^b, so that the last frequency is divided by k. The article also scales queries by
//! the logarithm of their position; that acts on attention and is not part of this rule.

use std::{fmt, sync::Arc};

use super::{Rule, Scaling, Sourced, sourced::short, yarn};
use crate::settings::Parameter;

/// NTK-RoPE-mixed.
pub(super) static NTK_MIXED: Scaling = Scaling::rule(
    "ntk-mixed",
    "ntk with another distribution over the frequencies",
    |inputs, _, _| {
        let exponent = inputs.flags.number_or(&EXPONENT, 0.75).within(0.0, 16.0)?;
        Ok(Arc::new(NtkMixed { exponent }))
    },
)
.parameters(&[&EXPONENT])
.shares(&[&yarn::ORIG_CTX]);

/// b, the exponent of the pair index.
pub static EXPONENT: Parameter = Parameter::number(
    "ntk_mixed_exponent",
    "N",
    "ntk-mixed: unevenness of the division [default: 0.75]",
)
.details("From 0, which divides all frequencies equally, to 16.")
.rare();

/// The settings of NTK-RoPE-mixed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NtkMixed {
    /// b: with 1 the logarithm of the divisor is linear in the pair index; smaller values divide high
    /// frequencies more.
    pub exponent: Sourced<f64>,
}

impl Rule for NtkMixed {
    /// Scales the frequencies; `factor` is k.
    fn scale(&self, inv_freq: &mut [f64], _base: f64, factor: f64, _length: usize) {
        let b = self.exponent.value;
        let a = factor.ln() / (inv_freq.len() as f64).powf(b);
        for (i, theta) in inv_freq.iter_mut().enumerate() {
            *theta *= (-a * (i as f64 + 1.0).powf(b)).exp();
        }
    }

    fn frequency_formula(&self, factor: f64) -> String {
        let (b, s) = (short(self.exponent.value), short(factor));
        format!("θ_i · exp(-a · (i+1)^{b}), a = ln {s} / (d/2)^{b}")
    }
}

impl fmt::Display for NtkMixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", exponent {}", self.exponent)
    }
}
