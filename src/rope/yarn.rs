//! YaRN: keeps frequencies that turn often within the original context, and interpolates
//! frequencies that turn less than about once. A ramp connects the two. An attention scale makes
//! attention slightly sharper.
//!
//! Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models"
//! (arXiv:2309.00071): the ramp is equation 18 with 11, the blend definition 2, the attention scale
//! equation 22. In the code of YaRN, Hugging Face and ggml the ramp is linear in the index of the pair;
//! in the paper it is linear in the number of turns. [`Ramp`] has both forms.

use std::{f64::consts::TAU, fmt, sync::Arc};

use super::{
    Error, Flags, LogMultiplier, Origin, Plan, Rule, SCALING, Scaling, Sourced,
    keys::is_without_factor, linear, rule_inputs::RuleInputs, scaling::Factor, sourced::short,
};
use crate::settings::Parameter;

/// YaRN.
pub(super) static YARN: Scaling = Scaling::rule(
    "yarn",
    "low frequencies are divided and high ones kept, with a ramp between",
    |inputs, factor, _| {
        let mut yarn = Yarn::resolve(inputs)?;
        if !inputs.flags.values.has(&ATTENTION_FACTOR) {
            yarn.attention_scale = yarn.magnitude(inputs, factor.value)?;
        }
        if yarn.ext_factor.value != 0.0 {
            yarn.score_scale = MagnitudeWeights::resolve(inputs)?.score_scale(factor.value);
        }
        Ok(Arc::new(yarn))
    },
)
.parameters(&[
    &ORIG_CTX,
    &EXT_FACTOR,
    &ATTN_FACTOR,
    &BETA_SLOW,
    &BETA_FAST,
    &RAMP,
    &ATTENTION_FACTOR,
    &MSCALE,
    &MSCALE_ALL_DIM,
])
.factor(Factor::ForContextIfNamed)
.in_llama_cpp();

/// NTK-by-parts, YaRN's predecessor: definition 1 of its paper, which is YaRN with a ramp by turns and
/// without the attention scale.
pub(super) const BY_PARTS: &str = "ntk-by-parts";

/// Returns the plan of NTK-by-parts. `resolve` returns the plan of other settings.
pub(super) fn resolve_by_parts(
    flags: &Flags,
    resolve: impl Fn(&Flags) -> Result<Plan, Error>,
) -> Result<Plan, Error> {
    let preset = Flags::method(YARN.name).with(&RAMP, Ramp::Turns.name());
    let preset = preset.with(&ATTENTION_FACTOR, 1.0).values;
    let given = flags.values.clone().without(&SCALING);
    let mut plan = resolve(&Flags { values: given.or(preset), ..flags.clone() })?;
    plan.scaling.origin = Origin::Setting(SCALING.setting, BY_PARTS.into());
    Ok(plan)
}

/// The original context in tokens, before any extension, for all rules that use it; 0 means the
/// model's.
pub static ORIG_CTX: Parameter = Parameter::whole(
    "yarn_orig_ctx",
    "N",
    "from 0 to 1073741824",
    "Original context size; 0: as trained",
)
.details("The context before the extension, for all methods. Also `rope_orig_ctx`.")
.aliases(&["rope_orig_ctx"])
.llama_cpp(&["LLAMA_ARG_YARN_ORIG_CTX"]);

/// The share of high frequencies to keep, from 0 to 1; -1 means the default.
pub static EXT_FACTOR: Parameter =
    Parameter::number("yarn_ext_factor", "N", "YaRN: extrapolation mix; 0: scale all")
        .details("1 keeps high frequencies unchanged, 0 scales all frequencies.")
        .llama_cpp(&["LLAMA_ARG_YARN_EXT_FACTOR"]);

/// A factor of the attention scale of any rule; -1 means the default.
pub static ATTN_FACTOR: Parameter =
    Parameter::number("yarn_attn_factor", "N", "YaRN: multiply the attention scale by N")
        .llama_cpp(&["LLAMA_ARG_YARN_ATTN_FACTOR"]);

/// The number of turns below which a frequency is interpolated; -1 means the default.
pub static BETA_SLOW: Parameter =
    Parameter::number("yarn_beta_slow", "N", "YaRN: scale pairs with fewer than N rotations")
        .details("Rotations of a pair of dimensions within the original context.")
        .llama_cpp(&["LLAMA_ARG_YARN_BETA_SLOW"]);

/// The number of turns above which a frequency is kept; -1 means the default.
pub static BETA_FAST: Parameter =
    Parameter::number("yarn_beta_fast", "N", "YaRN: keep pairs with more than N rotations")
        .details("Rotations of a pair of dimensions within the original context.")
        .llama_cpp(&["LLAMA_ARG_YARN_BETA_FAST"]);

/// The form of the ramp.
pub static RAMP: Parameter = Parameter::word(
    "yarn_ramp",
    "FORM",
    &["whole", "exact", "turns"],
    "YaRN: shape of the ramp: whole, exact or turns [default: whole; gpt-oss: exact]",
)
.details(
    "whole: linear in the index of the pair, between ends rounded to whole pairs. exact: between \
     the exact ends, as in Hugging Face with \"truncate\": false. turns: linear in the number of \
     rotations, as in the paper.",
)
.rare();

/// The attention scale.
pub static ATTENTION_FACTOR: Parameter =
    Parameter::number("yarn_attention_factor", "N", "YaRN: the attention scale")
        .details("As \"attention_factor\" of Hugging Face. It replaces the computed scale.")
        .rare();

/// The weight in the numerator of the attention scale.
pub static MSCALE: Parameter =
    Parameter::number("yarn_mscale", "N", "YaRN: weight in the attention scale's numerator")
        .details("As \"mscale\" of Hugging Face; with `yarn_mscale_all_dim`.")
        .rare();

/// The weight in the denominator of the attention scale.
pub static MSCALE_ALL_DIM: Parameter = Parameter::number(
    "yarn_mscale_all_dim",
    "N",
    "YaRN: weight in the attention scale's denominator",
)
.details("As \"mscale_all_dim\" of Hugging Face; with `yarn_mscale`.")
.rare();

/// The settings of YaRN, except the factor.
#[derive(Clone, Debug, PartialEq)]
pub struct Yarn {
    /// The number of dimensions of a head that rotate: pair i has the frequency base^(-2i/n_rot).
    pub n_rot: usize,
    /// The context before any extension, in tokens.
    pub original_context: Sourced<usize>,
    /// The extrapolation factor: the share of a high frequency that is kept. 1 is YaRN, 0 interpolates
    /// all frequencies.
    pub ext_factor: Sourced<f64>,
    /// The number of turns within the original context above which a frequency is kept.
    pub beta_fast: Sourced<f64>,
    /// The number of turns below which a frequency is interpolated.
    pub beta_slow: Sourced<f64>,
    /// The form of the ramp between the two.
    pub ramp: Sourced<Ramp>,
    /// The attention scale for the factor; `None` if it is unchanged or depends on the length.
    pub attention_scale: Option<Sourced<f64>>,
    /// The factor of scores; 1 for families without one, or if it depends on the length.
    pub score_scale: f64,
}

/// The form of YaRN's ramp between kept and interpolated frequencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ramp {
    /// Linear in the pair index, between bounds that are rounded to whole pairs.
    Whole,
    /// Linear in the pair index, between exact bounds (`truncate: false` of Hugging Face; gpt-oss).
    Exact,
    /// Linear in the number of turns, as in the paper.
    Turns,
}

impl Ramp {
    /// All forms.
    pub const ALL: [Ramp; 3] = [Ramp::Whole, Ramp::Exact, Ramp::Turns];

    /// Returns the name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Ramp::Whole => "whole",
            Ramp::Exact => "exact",
            Ramp::Turns => "turns",
        }
    }
}

/// Returns whether YaRN's ramp is in effect with any scaling. If the extrapolation factor is not 0,
/// it acts on all scalings of llama.cpp.
pub(super) fn acts_anyhow(inputs: &RuleInputs, factor: &Sourced<f64>) -> Result<bool, Error> {
    let ext_factor = Yarn::ext_factor(inputs)?.value;
    Ok(inputs.scaling.value.in_llama_cpp && ext_factor != 0.0 && factor.value != 1.0)
}

impl Yarn {
    /// Returns the extrapolation factor: the setting, else 1 for scalings that have one and 0 for
    /// others.
    fn ext_factor(inputs: &RuleInputs) -> Result<Sourced<f64>, Error> {
        let yarn = inputs.scaling.value.reads(&EXT_FACTOR);
        inputs.flags.number_or(&EXT_FACTOR, if yarn { 1.0 } else { 0.0 }).share()
    }

    /// Resolves all settings except the attention scale.
    pub(super) fn resolve(inputs: &RuleInputs) -> Result<Self, Error> {
        let flags = inputs.flags;
        let [fast, slow] = inputs.keys.betas()?;
        let beta = |parameter: &'static Parameter, in_file: Option<Sourced<f64>>, default| match (
            flags.number(parameter),
            in_file,
        ) {
            (None, Some(in_file)) => Ok(in_file),
            _ => flags.number_or(parameter, default).factor(),
        };
        let ramp = flags.word(&RAMP, &Ramp::ALL, Ramp::name)?;
        let rounded = if inputs.keys.family.exact_ramp { Ramp::Exact } else { Ramp::Whole };
        Ok(Yarn {
            n_rot: 2 * inputs.keys.pairs,
            original_context: inputs.original_context()?,
            ext_factor: Yarn::ext_factor(inputs)?,
            beta_fast: beta(&BETA_FAST, fast, 32.0)?,
            beta_slow: beta(&BETA_SLOW, slow, 1.0)?,
            ramp: ramp.unwrap_or(Sourced::default(rounded)),
            attention_scale: None,
            score_scale: 1.0,
        })
    }

    /// Returns the share of each pair's frequency that is kept. The rest is interpolated.
    fn kept(&self, base: f64) -> Vec<f64> {
        let context = self.original_context.value as f64;
        let (fast, slow) = (self.beta_fast.value, self.beta_slow.value);
        let d = self.n_rot as f64;
        // The fractional index of the pair that makes `turns` turns within the original context.
        let pair = |turns: f64| d * (context / (turns * TAU)).ln() / (2.0 * base.ln());
        let (low, high) = match self.ramp.value {
            Ramp::Whole => (pair(fast).floor(), pair(slow).ceil()),
            _ => (pair(fast), pair(slow)),
        };
        // The limit is d - 1 instead of d/2 - 1, as in all other implementations.
        let (low, high) = (low.max(0.0), high.min(d - 1.0));
        let width = (high - low).max(0.001);
        let by_index = |i: usize| 1.0 - ((i as f64 - low) / width).clamp(0.0, 1.0);
        let by_turns = |theta: f64| {
            ((context * theta / TAU - slow) / (fast - slow).max(0.001)).clamp(0.0, 1.0)
        };
        linear::frequencies(self.n_rot, base)
            .enumerate()
            .map(|(i, theta)| match self.ramp.value {
                Ramp::Whole | Ramp::Exact => by_index(i) * self.ext_factor.value,
                Ramp::Turns => by_turns(theta) * self.ext_factor.value,
            })
            .collect()
    }

    /// Returns the attention scale for this factor; `None` if YaRN does not change it.
    fn magnitude(&self, inputs: &RuleInputs, factor: f64) -> Result<Option<Sourced<f64>>, Error> {
        let weights = MagnitudeWeights::resolve(inputs)?;
        let sharper = self.ext_factor.value != 0.0 && factor > 1.0;
        Ok(sharper.then(|| {
            let value = weights.magnitude(factor);
            Sourced { value, origin: weights.origin }
        }))
    }
}

impl Rule for Yarn {
    fn scale(&self, inv_freq: &mut [f64], base: f64, factor: f64, _length: usize) {
        let freq_scale = 1.0 / factor;
        let kept = self.kept(base);
        for (theta, kept) in inv_freq.iter_mut().zip(kept) {
            *theta = freq_scale * *theta * (1.0 - kept) + *theta * kept;
        }
    }

    fn frequency_formula(&self, factor: f64) -> String {
        format!("(1 - γ_i) · θ_i / {} + γ_i · θ_i", short(factor))
    }

    fn attention_scale(&self) -> Option<&Sourced<f64>> {
        self.attention_scale.as_ref()
    }

    fn score_scale(&self, _length: usize) -> f64 {
        self.score_scale
    }

    fn original_context(&self) -> Option<&Sourced<usize>> {
        Some(&self.original_context)
    }

    fn warning(&self) -> Option<String> {
        let [fast, slow] = [self.beta_fast.value, self.beta_slow.value];
        (fast < slow).then(|| {
            format!(
                "`yarn_beta_fast` {} is below `yarn_beta_slow` {}: they are probably swapped",
                short(fast),
                short(slow)
            )
        })
    }

    fn unlike_llama_cpp(&self, plan: &Plan, flags: &Flags) -> Vec<String> {
        let mut all = Vec::new();
        if is_without_factor(&plan.original_context) {
            all.push(format!(
                "it uses {} as YaRN's original context, which includes the factor of the file",
                plan.context_train
            ));
        }
        all.extend(missing_in_llama_cpp(flags));
        if self.ramp == Sourced::default(Ramp::Exact) {
            all.push(
                "it rounds the ends of YaRN's ramp, which the model was trained without".into(),
            );
        }
        if self.ext_factor.value != 0.0 && flags.without_defaults().values.has(&ATTN_FACTOR) {
            all.push("it ignores `yarn_attn_factor` if YaRN's ramp is in effect".into());
        }
        all
    }
}

/// Returns a sentence for each setting of YaRN that llama.cpp lacks.
pub(super) fn missing_in_llama_cpp(flags: &Flags) -> impl Iterator<Item = String> {
    let own = [&RAMP, &ATTENTION_FACTOR, &MSCALE].into_iter();
    own.filter(|own| flags.values.has(own)).map(|own| format!("it has no {}", own.setting))
}

/// The weights of YaRN's attention scale, which is m(s) of one weight divided by m(s) of another.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MagnitudeWeights {
    /// The weight in the numerator: Hugging Face's `mscale`.
    pub numerator: f64,
    /// The weight in the denominator: Hugging Face's `mscale_all_dim`.
    pub denominator: f64,
    /// The origin of the weights.
    pub origin: Origin,
    /// Whether m(s) of the denominator multiplies queries and keys as a whole (DeepSeek).
    pub in_scores: bool,
}

impl MagnitudeWeights {
    /// Returns the weights: from settings, else from the file (DeepSeek and Mistral), else 1 and 0.
    pub(super) fn resolve(inputs: &RuleInputs) -> Result<Self, Error> {
        let given = [&MSCALE, &MSCALE_ALL_DIM].map(|parameter| inputs.flags.number(parameter));
        let typed = match given {
            [None, None] => inputs.keys.magnitude_weights()?,
            [Some(numerator), Some(denominator)] => {
                let (numerator, denominator) = (numerator.share()?, denominator.share()?);
                let text = format!("{}, {}", numerator.value, denominator.origin);
                let origin = Origin::Setting(MSCALE.setting, text);
                // As in Hugging Face, a weight of 0 counts as not set.
                let both = numerator.value != 0.0 && denominator.value != 0.0;
                both.then_some((numerator.value, denominator.value, origin))
            }
            [Some(_), None] => {
                return Err(Error::NeedsBoth(MSCALE.setting, MSCALE_ALL_DIM.setting));
            }
            [None, Some(_)] => {
                return Err(Error::NeedsBoth(MSCALE_ALL_DIM.setting, MSCALE.setting));
            }
        };
        let (numerator, denominator, origin) =
            typed.unwrap_or((1.0, 0.0, Origin::Computed("1 + 0.1 ln factor")));
        let in_scores = inputs.keys.family.log_multiplier == LogMultiplier::Both;
        Ok(MagnitudeWeights { numerator, denominator, origin, in_scores })
    }

    /// Returns the attention scale for `factor`.
    pub(super) fn magnitude(&self, factor: f64) -> f64 {
        magnitude(factor, self.numerator) / magnitude(factor, self.denominator)
    }

    /// Returns the factor of scores for `factor`.
    pub(super) fn score_scale(&self, factor: f64) -> f64 {
        if self.in_scores { magnitude(factor, self.denominator).powi(2) } else { 1.0 }
    }
}

impl fmt::Display for Yarn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", original context {}", self.original_context)?;
        write!(f, ", ext factor {}", self.ext_factor)?;
        write!(f, ", beta fast {}", self.beta_fast)?;
        write!(f, ", beta slow {}", self.beta_slow)?;
        match (&self.ramp.origin, self.ramp.value) {
            (Origin::Default, Ramp::Whole) => Ok(()),
            (Origin::Default, ramp) => write!(f, ", ramp {}", ramp.name()),
            (origin, ramp) => write!(f, ", ramp {} ({origin})", ramp.name()),
        }
    }
}

/// Returns m(s) = 1 + 0.1 · weight · ln s for the factor s, and 1 for factors up to 1.
pub(super) fn magnitude(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 1.0 + 0.1 * weight * factor.ln() }
}
