//! The rules by which a factor acts on the frequencies. Each has a file of its own.

use std::fmt;

use super::{
    Clex, DpRope, Dynamic, DynamicYarn, Error, Llama3, NtkMixed, Scaling, Sourced, Yarn, linear,
    ntk, rule_inputs::RuleInputs,
};

/// The rule by which the factor acts on the frequencies.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// All frequencies are divided by the factor, which is 1 without scaling.
    Linear,
    /// NTK: the lower a frequency, the more it is divided. The factor is NTK's α.
    Ntk,
    /// NTK-RoPE-mixed: as NTK, but spread by a power of the pair index.
    NtkMixed(NtkMixed),
    /// Dynamic NTK: NTK with an α that depends on the length of the sequence.
    Dynamic(Dynamic),
    /// YaRN: low frequencies are divided, high ones are not.
    Yarn(Yarn),
    /// Dynamic YaRN: YaRN with a factor that depends on the length of the sequence.
    DynamicYarn(DynamicYarn),
    /// Llama 3.1's rule: as YaRN, with another ramp.
    Llama3(Llama3),
    /// DPRoPE: a frequency is divided if its angles are then closer to those in training.
    DpRope(DpRope),
    /// CLEX: frequencies from a learned equation, by the length of the sequence.
    Clex(Clex),
}

impl Rule {
    /// Resolves the rule. `inv_freq` are the model's own frequencies. YaRN's ramp is in effect if the
    /// extrapolation factor is not 0, also with linear scaling. A flag that is a parameter of a rule
    /// which is not in effect is an error.
    pub(super) fn resolve(
        inputs: &RuleInputs,
        factor: &Sourced<f64>,
        inv_freq: &[f64],
    ) -> Result<Rule, Error> {
        let scaling = inputs.scaling.value;
        let n_rot = 2 * inv_freq.len();
        let ext_factor = Yarn::ext_factor(inputs)?;
        let linear = matches!(scaling, Scaling::None | Scaling::Linear | Scaling::LongRope);
        let ramp = linear && ext_factor.value != 0.0 && factor.value != 1.0;
        let acting = if ramp { Scaling::Yarn } else { scaling };
        refuse_idle(inputs, factor, acting)?;
        Ok(match scaling {
            _ if ramp => Rule::Yarn(Yarn::resolve(inputs, ext_factor)?),
            Scaling::None | Scaling::Linear | Scaling::LongRope => Rule::Linear,
            // Not reached: for these methods, `inputs.scaling` is that of the file.
            Scaling::ReRope | Scaling::LeakyReRope | Scaling::SelfExtend | Scaling::LmInfinite => {
                Rule::Linear
            }
            Scaling::Ntk => {
                ntk::check(n_rot, scaling)?;
                Rule::Ntk
            }
            Scaling::NtkMixed => Rule::NtkMixed(NtkMixed::resolve(inputs)?),
            Scaling::Dynamic => {
                ntk::check(n_rot, scaling)?;
                Rule::Dynamic(Dynamic::resolve(inputs)?)
            }
            Scaling::Yarn => Rule::Yarn(Yarn::resolve(inputs, ext_factor)?),
            Scaling::DynamicYarn => Rule::DynamicYarn(DynamicYarn::resolve(inputs, ext_factor)?),
            Scaling::Llama3 => Rule::Llama3(Llama3::resolve(inputs)?),
            Scaling::DpRope => Rule::DpRope(DpRope::resolve(inputs, factor, inv_freq)?),
            Scaling::Clex => Rule::Clex(Clex::resolve(inputs, factor, inv_freq)?),
        })
    }

    /// Returns the length that stands for all lengths with the frequencies of `tokens`, or `None` if the
    /// frequencies do not depend on the length.
    pub(super) fn effective_length(&self, tokens: usize) -> Option<usize> {
        match self {
            Rule::Dynamic(dynamic) => Some(dynamic.effective_length(tokens)),
            Rule::DynamicYarn(yarn) => Some(yarn.effective_length(tokens)),
            Rule::Clex(clex) => Some(clex.effective_length(tokens)),
            _ => None,
        }
    }

    /// Scales the model's own frequencies for sequences of `length` tokens.
    pub(super) fn scale(&self, inv_freq: &mut [f64], base: f64, factor: f64, length: usize) {
        match self {
            Rule::Linear => linear::scale(inv_freq, factor),
            Rule::Ntk => ntk::stretch(inv_freq, factor),
            Rule::NtkMixed(mixed) => mixed.scale(inv_freq, factor),
            Rule::Dynamic(dynamic) => ntk::stretch(inv_freq, dynamic.alpha(factor, length)),
            Rule::Yarn(yarn) => yarn.scale(inv_freq, base, factor),
            Rule::DynamicYarn(d) => d.yarn.scale(inv_freq, base, d.factor(length)),
            Rule::Llama3(llama3) => llama3.scale(inv_freq, factor),
            Rule::DpRope(dprope) => dprope.scale(inv_freq, factor),
            Rule::Clex(clex) => clex.scale(inv_freq, length),
        }
    }

    /// Returns the number that multiplies the attention scale of the plan for sequences of `length`
    /// tokens.
    pub(super) fn magnitude(&self, length: usize) -> f64 {
        match self {
            Rule::DynamicYarn(yarn) => yarn.magnitude(length),
            _ => 1.0,
        }
    }

    /// Returns the number of tokens that the model can read with this rule; without it, the number is
    /// `unscaled`.
    pub(super) fn reach(&self, unscaled: f64, factor: f64) -> f64 {
        // A factor below 1 raises the frequencies that a factor above 1 would lower.
        let extended = |original: &Sourced<usize>| match factor < 1.0 {
            true => unscaled * factor,
            false => unscaled.max(original.value as f64 * factor),
        };
        match self {
            Rule::Linear | Rule::Ntk | Rule::NtkMixed(_) => unscaled * factor,
            // With a factor below 1, alpha grows more slowly than the length.
            Rule::Dynamic(dynamic) if factor < 1.0 => dynamic.trained.value as f64,
            Rule::Dynamic(_) | Rule::DynamicYarn(_) => f64::INFINITY,
            Rule::Yarn(yarn) => extended(&yarn.original_context),
            Rule::Llama3(llama3) => extended(&llama3.original_context),
            Rule::DpRope(dprope) => extended(&dprope.original_context),
            Rule::Clex(clex) => extended(&clex.original_context),
        }
    }
}

/// Formats the parameters for the RoPE line, each with its origin and after a comma.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Linear | Rule::Ntk => Ok(()),
            Rule::NtkMixed(mixed) => write!(f, ", exponent {}", mixed.exponent),
            Rule::Dynamic(dynamic) => write!(f, "{dynamic}"),
            Rule::Yarn(yarn) => write!(f, "{yarn}"),
            Rule::DynamicYarn(yarn) => write!(f, "{yarn}"),
            Rule::Llama3(llama3) => {
                write!(f, ", original context {}", llama3.original_context)?;
                write!(f, ", low freq factor {}", llama3.low_freq_factor)?;
                write!(f, ", high freq factor {}", llama3.high_freq_factor)
            }
            Rule::DpRope(dprope) => write!(f, "{dprope}"),
            Rule::Clex(clex) => write!(f, "{clex}"),
        }
    }
}

/// Returns an error if a flag is a parameter of neither the rule in effect, `acting`, nor the chosen
/// method.
fn refuse_idle(inputs: &RuleInputs, factor: &Sourced<f64>, acting: Scaling) -> Result<(), Error> {
    let flags = inputs.flags;
    for (flag, typed, needs) in flags.parameters() {
        // With log n scaling, this flag applies to every rule.
        let for_log_n = flag == "--yarn-orig-ctx" && flags.log_n == Some(true);
        if typed && !for_log_n && !needs.contains(&acting) && !needs.contains(&inputs.chosen) {
            let (scaling, needs) = (inputs.chosen.with_factor(factor.value), needs[0]);
            return Err(Error::NoEffect { flag, scaling, needs });
        }
    }
    Ok(())
}
