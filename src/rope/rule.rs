//! Rules that apply a factor to the frequencies. Each has its own file.

use std::{any::Any, fmt, sync::Arc};

use super::{
    Error, Flags, LOG_N, METHODS, Plan, Scaling, Sourced, linear::Linear, rule_inputs::RuleInputs,
    scaling::Effect, yarn,
};
use crate::settings::Parameter;

/// A rule that applies the factor to the frequencies. It formats as its parameters in the RoPE
/// line, each after a comma and with its origin.
pub trait Rule: Any + fmt::Debug + fmt::Display + Send + Sync {
    /// Scales the model's frequencies for sequences of `length` tokens. `base` is the base of the
    /// frequencies.
    fn scale(&self, inv_freq: &mut [f64], base: f64, factor: f64, length: usize);

    /// Returns the formula of a scaled frequency, h(θ_i), for a factor other than 1.
    fn frequency_formula(&self, factor: f64) -> String;

    /// Returns whether the rule changes frequencies even if the factor is 1.
    fn acts_without_factor(&self) -> bool {
        false
    }

    /// Returns the formula of a scaled position, g(m), for a factor other than 1.
    fn position_formula(&self, _factor: f64) -> String {
        "m".into()
    }

    /// Returns one length that stands for all lengths with the same frequencies as `tokens`; `None`
    /// if the frequencies do not depend on the length.
    fn effective_length(&self, _tokens: usize) -> Option<usize> {
        None
    }

    /// Returns the attention scale of the rule; `None` if the rule has none, or it depends on the
    /// length.
    fn attention_scale(&self) -> Option<&Sourced<f64>> {
        None
    }

    /// Returns a further factor of the plan's attention scale, for sequences of `length` tokens.
    fn magnitude(&self, _length: usize) -> f64 {
        1.0
    }

    /// Returns the factor of attention scores for sequences of `length` tokens. It multiplies the
    /// whole score; the attention scale multiplies only the rotated part.
    fn score_scale(&self, _length: usize) -> f64 {
        1.0
    }

    /// Returns the context that the factor extends, if it is specific to the rule.
    fn original_context(&self) -> Option<&Sourced<usize>> {
        None
    }

    /// Returns the maximum number of tokens with this rule. `unscaled` is the maximum without it.
    fn reach(&self, unscaled: f64, factor: f64) -> f64 {
        match self.original_context() {
            // A factor below 1 raises the frequencies that a factor above 1 would lower.
            Some(original) if factor >= 1.0 => unscaled.max(original.value as f64 * factor),
            _ => unscaled * factor,
        }
    }

    /// Returns a warning about parameters that are valid but probably a mistake.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Returns why llama.cpp cannot apply the rule, or how it can. `plan` has the rule.
    fn in_llama_cpp(&self, _plan: &Plan) -> String {
        match self.effective_length(1) {
            Some(_) => "it has no scaling that depends on the length of the sequence".into(),
            None => "for llama and phi3 models, a file made by rope-cpu rope bake gives it the same frequencies".into(),
        }
    }

    /// Returns the differences from llama.cpp with the same file and settings, one sentence each.
    /// `plan` has the rule and was resolved from `flags`.
    fn unlike_llama_cpp(&self, _plan: &Plan, _flags: &Flags) -> Vec<String> {
        Vec::new()
    }
}

impl Plan {
    /// Returns the plan's rule if it has type `R`.
    pub fn rule_as<R: Rule>(&self) -> Option<&R> {
        let rule: &dyn Any = &*self.rule;
        rule.downcast_ref()
    }
}

/// Resolves the rule. `inv_freq` are the model's frequencies. If a parameter of another rule is
/// set, this is an error.
pub(super) fn resolve(
    inputs: &RuleInputs,
    factor: &Sourced<f64>,
    inv_freq: &[f64],
) -> Result<Arc<dyn Rule>, Error> {
    let ramp = yarn::acts_anyhow(inputs, factor)?;
    let acting = if ramp { &yarn::YARN } else { inputs.scaling.value };
    refuse_idle(inputs, factor, acting)?;
    match acting.effect {
        Effect::Frequencies(resolve) => resolve(inputs, factor, inv_freq),
        Effect::Distances(_) => Ok(Arc::new(Linear)),
    }
}

/// Returns an error if a setting belongs neither to the `acting` rule nor to the chosen method.
fn refuse_idle(
    inputs: &RuleInputs,
    factor: &Sourced<f64>,
    acting: &'static Scaling,
) -> Result<(), Error> {
    let values = &inputs.flags.values;
    let acts_anyhow = |parameter: &Parameter| {
        // The first is a factor of every attention scale. With log n scaling, the second applies to
        // every rule.
        parameter.setting == yarn::ATTN_FACTOR.setting
            || parameter.setting == yarn::ORIG_CTX.setting && values.switch(&LOG_N) == Some(true)
    };
    for needs in METHODS {
        for parameter in needs.parameters {
            let acts = acts_anyhow(parameter)
                || [acting, inputs.chosen].into_iter().any(|s| s.reads(parameter));
            if values.has(parameter) && !acts {
                let (setting, scaling) =
                    (parameter.setting, inputs.chosen.with_factor(factor.value));
                return Err(Error::NoEffect { setting, scaling, needs });
            }
        }
    }
    Ok(())
}
