//! NTK-aware scaling: raises the base. This divides the lowest frequency by α and keeps the
//! highest.
//!
//! bloc97, "NTK-Aware Scaled RoPE" (2023); in the notation of the YaRN paper (arXiv:2309.00071),
//! section 3.1: h(θ_i) = b'^(-2i/d) with b' = b · α^(d/(d-2)), so that θ'_i = θ_i · α^(-2i/(d-2)).

use std::{fmt, sync::Arc};

use super::{Error, Flags, Plan, Rule, Scaling, linear, scaling::Factor, sourced::short, yarn};

/// NTK-aware scaling.
pub(super) static NTK: Scaling = Scaling::rule(
    "ntk",
    "a larger base, which divides low frequencies and keeps high ones; the factor is alpha",
    |_, _, inv_freq| {
        check(2 * inv_freq.len(), &NTK)?;
        Ok(Arc::new(Ntk))
    },
)
.shares(&[&yarn::ORIG_CTX])
.factor(Factor::Alpha);

/// The lower a frequency, the more it is divided. The factor is α.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ntk;

impl Rule for Ntk {
    fn scale(&self, inv_freq: &mut [f64], _base: f64, factor: f64, _length: usize) {
        stretch(inv_freq, factor);
    }

    fn frequency_formula(&self, factor: f64) -> String {
        format!("θ_i · {}^(-2i/(d-2))", short(factor))
    }

    fn in_llama_cpp(&self, plan: &Plan) -> String {
        let base = base(plan.n_rot, plan.turning, plan.base.value, plan.factor.value);
        format!("`rope_freq_base` {} gives the same frequencies", short(base))
    }

    fn unlike_llama_cpp(&self, plan: &Plan, _flags: &Flags) -> Vec<String> {
        linear::cut_in_llama_cpp(plan).into_iter().collect()
    }
}

impl fmt::Display for Ntk {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// Multiplies frequency i by α^(-2i/(d-2)): the first is unchanged, the last is divided by `alpha`.
pub(super) fn stretch(inv_freq: &mut [f64], alpha: f64) {
    let d = 2.0 * inv_freq.len() as f64;
    for (i, theta) in inv_freq.iter_mut().enumerate() {
        *theta *= alpha.powf(-2.0 * i as f64 / (d - 2.0));
    }
}

/// Returns an error if there are fewer than two pairs: the first is kept, the last is stretched.
pub(super) fn check(n_rot: usize, scaling: &'static Scaling) -> Result<(), Error> {
    if n_rot < 4 { Err(Error::TooFewDimensions { scaling, n_rot }) } else { Ok(()) }
}

/// Returns the base that extends the context by `alpha`: base · alpha^(d/(t-2)), with d = `n_rot` and
/// t = `turning`. It divides the lowest of the t/2 frequencies by alpha.
pub(super) fn base(n_rot: usize, turning: usize, base: f64, alpha: f64) -> f64 {
    let (d, t) = (n_rot as f64, turning as f64);
    base * alpha.powf(d / (t - 2.0))
}

/// Returns the alpha of `base` for a model trained with the base `trained`. This is the inverse of
/// [`base`].
pub(super) fn alpha(n_rot: usize, turning: usize, trained: f64, base: f64) -> f64 {
    let (d, t) = (n_rot as f64, turning as f64);
    (base / trained).powf((t - 2.0) / d)
}
