//! RoPE without scaling, and linear interpolation, which divides all frequencies.
//!
//! Su et al., "RoFormer" (arXiv:2104.09864), equation 15; Chen et al., "Extending Context Window of
//! Large Language Models via Positional Interpolation" (arXiv:2306.15595), equation 4: positions are
//! divided by the factor, which is equivalent to dividing the frequencies.

use std::{fmt, sync::Arc};

use super::{Flags, Plan, Rule, Scaling, scaling::Factor, sourced::short};

/// No scaling.
pub static NONE: Scaling = Scaling::rule("none", "as trained", |_, _, _| Ok(Arc::new(Linear)))
    .factor(Factor::One)
    .in_llama_cpp();

/// Linear interpolation.
pub static LINEAR: Scaling =
    Scaling::rule("linear", "all are divided by the factor (position interpolation)", |_, _, _| {
        Ok(Arc::new(Linear))
    })
    .factor(Factor::ForContextIfNamed)
    .in_llama_cpp();

/// Divides all frequencies by the factor. The factor is 1 without scaling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear;

impl Rule for Linear {
    fn scale(&self, inv_freq: &mut [f64], _base: f64, factor: f64, _length: usize) {
        let freq_scale = 1.0 / factor;
        inv_freq.iter_mut().for_each(|theta| *theta *= freq_scale);
    }

    fn frequency_formula(&self, _factor: f64) -> String {
        "θ_i".into()
    }

    fn position_formula(&self, factor: f64) -> String {
        format!("m / {}", short(factor))
    }

    fn unlike_llama_cpp(&self, plan: &Plan, _flags: &Flags) -> Vec<String> {
        cut_in_llama_cpp(plan).into_iter().collect()
    }
}

/// Returns a sentence if llama.cpp cuts the context of `plan`, which has linear or NTK scaling.
pub(super) fn cut_in_llama_cpp(plan: &Plan) -> Option<String> {
    let contexts = match plan.effective_scaling() == &NONE {
        true => "the context",
        false => "contexts of linear and NTK scaling",
    };
    let trained = plan.context_train.value;
    (plan.scaling.value.acts_on_frequencies() && plan.context.value > trained)
        .then(|| format!("its server and llama-cli cut {contexts} down to the trained {trained}"))
}

impl fmt::Display for Linear {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// Returns θ_i = base^(-2i/n_rot) for each pair i, in radians per position.
pub(super) fn frequencies(n_rot: usize, base: f64) -> impl Iterator<Item = f64> {
    (0..n_rot / 2).map(move |i| base.powf(-2.0 * i as f64 / n_rot as f64))
}
