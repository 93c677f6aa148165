//! Dynamic NTK: NTK-aware scaling with an α that depends on the length of the sequence. Sequences
//! within the trained context are unchanged.
//!
//! emozilla, "Dynamically Scaled RoPE" (2023), which is `rope_type` dynamic of Hugging Face and
//! section 3.3 of the YaRN paper (arXiv:2309.00071): α = s · n/C - (s - 1) for a sequence of n
//! tokens and a model that was trained with C. Fu et al., "Data Engineering for Scaling Language
//! Models to 128K Context" (arXiv:2402.10171), have two variants with a hyper-parameter s. The
//! first is the same formula with s from 1 to C'/C. The second is for a context of C' tokens that
//! is set in advance: α = s · max(C', n)/C - (s - 1) with s = C'/(2C), constant up to C'.
//!
//! [`Policy`](super::Policy) determines n: by default, the length of the sequence up to each token.
//! It is rounded up to a multiple of a step. Otherwise the frequencies would change at each token.

use std::{fmt, sync::Arc};

use super::{
    CONTEXT_MAX, Error, Origin, Rule, Scaling, Sourced, ntk, rule_inputs::RuleInputs,
    scaling::Factor, sourced::short, yarn,
};
use crate::settings::Parameter;

/// Dynamic NTK.
pub(super) static DYNAMIC: Scaling = Scaling::rule(
    "dynamic",
    "ntk with an alpha that follows the length of the sequence",
    |inputs, factor, inv_freq| {
        ntk::check(2 * inv_freq.len(), &DYNAMIC)?;
        let mut dynamic = Dynamic::resolve(inputs)?;
        dynamic.check(factor, inputs.context.value)?;
        Ok(Arc::new(dynamic))
    },
)
.parameters(&[&VARIANT, &TARGET, &STEP])
.shares(&[&yarn::ORIG_CTX])
.factor(Factor::Own(factor));

/// The formula for α.
pub static VARIANT: Parameter = Parameter::word(
    "dynamic_variant",
    "NAME",
    &["hf", "fu1", "fu2"],
    "dynamic: formula: hf, fu1 or fu2 [default: hf]",
)
.details(
    "hf: alpha is N x length / trained - (N - 1), where N is `rope_scale`, by default 1. fu1: the same, \
     with N up to context / trained. fu2: constant up to the target, with N = target / (2 x \
     trained) by default.",
)
.rare();

/// C': the second formula of Fu et al. is constant up to this length.
pub static TARGET: Parameter = Parameter::whole(
    "dynamic_target",
    "N",
    "from the trained context to 1073741824",
    "dynamic: target length of fu2 [default: the context]",
)
.rare();

/// The step of the length: beyond the trained length, it is rounded up to a multiple of this.
pub static STEP: Parameter = Parameter::whole(
    "rope_step",
    "N",
    "from 1 to 1073741824",
    "dynamic methods: step of the length [default: 256]",
)
.details(
    "Beyond the trained length, the length that determines the frequencies is rounded up to a \
     multiple of N.",
)
.rare();

/// The settings that make α depend on the length.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dynamic {
    /// The formula for α.
    pub variant: Sourced<Variant>,
    /// C: the trained context (Hugging Face's `max_position_embeddings`), not the original context of
    /// an extended model.
    pub trained: Sourced<usize>,
    /// C': α is constant up to this length, if the variant has one.
    pub target: Option<Sourced<usize>>,
    /// Longer lengths are rounded up to a multiple of this number of tokens.
    pub step: Sourced<usize>,
    /// A given s above C'/C, as a warning.
    excess: Option<String>,
}

/// The formula for α.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// Hugging Face's formula.
    HuggingFace,
    /// The first formula of Fu et al.: Hugging Face's, with another name for the factor.
    Fu1,
    /// The second formula of Fu et al.: constant up to the requested context.
    Fu2,
}

impl Variant {
    /// All formulas.
    pub const ALL: [Variant; 3] = [Variant::HuggingFace, Variant::Fu1, Variant::Fu2];

    /// Returns the name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Variant::HuggingFace => "hf",
            Variant::Fu1 => "fu1",
            Variant::Fu2 => "fu2",
        }
    }
}

impl Dynamic {
    fn resolve(inputs: &RuleInputs) -> Result<Self, Error> {
        let variant = variant(inputs)?;
        let trained = inputs.unscaled_context()?;
        let target = match (variant.value, inputs.flags.values.has(&TARGET)) {
            (Variant::Fu2, _) => Some(target(inputs, &trained)?),
            (_, false) => None,
            (_, true) => {
                return Err(Error::Needs {
                    setting: TARGET.setting.to_string(),
                    other: format!("{} fu2", VARIANT.setting),
                });
            }
        };
        Ok(Dynamic { variant, trained, target, step: step(inputs)?, excess: None })
    }

    /// Checks a given s. Fu et al. have s from 1 to C'/C. Hugging Face has no limit, so a larger s is
    /// warned about. Up to the trained length, α is 1 for every s.
    fn check(&mut self, factor: &Sourced<f64>, context: usize) -> Result<(), Error> {
        if matches!(factor.origin, Origin::Default | Origin::Computed(_)) {
            return Ok(());
        }
        if !(1.0..).contains(&factor.value) {
            let expected = "at least 1".into();
            return Err(Error::OutOfRange {
                value: factor.origin.with_value(factor.value),
                expected,
            });
        }
        let extended = self.target.as_ref().map_or(context, |target| target.value);
        let most = extended as f64 / self.trained.value.max(1) as f64;
        if extended > self.trained.value && factor.value > most {
            self.excess = Some(format!(
                "{} is more than the {} times by which the context exceeds the trained one: as in \
                 Hugging Face, alpha grows to {}, where {} is enough",
                factor.origin,
                short(most),
                short(self.alpha(factor.value, extended)),
                short(most)
            ));
        }
        Ok(())
    }

    /// Returns α for a sequence of `length` tokens; `factor` is s.
    fn alpha(&self, factor: f64, length: usize) -> f64 {
        let least = self.target.as_ref().unwrap_or(&self.trained).value;
        let ratio = length.max(least) as f64 / self.trained.value.max(1) as f64;
        factor * ratio - (factor - 1.0)
    }
}

impl Rule for Dynamic {
    fn scale(&self, inv_freq: &mut [f64], _base: f64, factor: f64, length: usize) {
        ntk::stretch(inv_freq, self.alpha(factor, length));
    }

    fn frequency_formula(&self, factor: f64) -> String {
        let constant = self.target.as_ref().unwrap_or(&self.trained).value;
        let c = self.trained.value;
        let by = match factor {
            1.0 => format!("max(n, {constant}) / {c}"),
            s if s < 1.0 => {
                format!("{} · max(n, {constant}) / {c} + {}", short(s), short(1.0 - s))
            }
            s => format!("{} · max(n, {constant}) / {c} - {}", short(s), short(s - 1.0)),
        };
        format!("θ_i · α^(-2i/(d-2)), α = {by}{}", rounded(self.step.value))
    }

    fn effective_length(&self, tokens: usize) -> Option<usize> {
        let constant = self.target.as_ref().unwrap_or(&self.trained).value;
        Some(effective_length(constant, self.step.value, tokens))
    }

    fn original_context(&self) -> Option<&Sourced<usize>> {
        Some(&self.trained)
    }

    fn warning(&self) -> Option<String> {
        self.excess.clone()
    }

    fn reach(&self, _unscaled: f64, factor: f64) -> f64 {
        // With a factor below 1, as fu2 has for a target below 2 C, alpha grows more slowly than the
        // length.
        if factor < 1.0 { self.trained.value as f64 } else { f64::INFINITY }
    }
}

impl fmt::Display for Dynamic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", alpha by length from {}", self.trained)?;
        write!(f, ", variant {} ({})", self.variant.value.name(), self.variant.origin)?;
        if let Some(target) = &self.target {
            write!(f, ", target {target}")?;
        }
        write!(f, ", step {}", self.step)
    }
}

/// Returns the default of s.
fn factor(inputs: &RuleInputs) -> Result<Sourced<f64>, Error> {
    // With `for_context`, a factor of the file is ignored: alpha reaches every length.
    if !inputs.flags.for_context {
        let of_file = inputs.keys.factor()?;
        if of_file.origin != Origin::Default {
            return Ok(of_file);
        }
    }
    if variant(inputs)?.value != Variant::Fu2 {
        return Ok(Sourced::default(1.0));
    }
    let trained = inputs.unscaled_context()?;
    let ratio = target(inputs, &trained)?.value as f64 / (2.0 * trained.value.max(1) as f64);
    Sourced { value: ratio, origin: Origin::Computed("C' / 2C") }.factor()
}

fn variant(inputs: &RuleInputs) -> Result<Sourced<Variant>, Error> {
    inputs.flags.word_or_first(&VARIANT, &Variant::ALL, Variant::name)
}

/// Returns C': the setting, otherwise the requested context, but at least C.
fn target(inputs: &RuleInputs, trained: &Sourced<usize>) -> Result<Sourced<usize>, Error> {
    match inputs.flags.whole(&TARGET) {
        Some(target) => target.between(trained.value, CONTEXT_MAX),
        None if inputs.context.value > trained.value => Ok(inputs.context.clone()),
        None => Ok(trained.clone()),
    }
}

/// The default step. It equals the page size of the KV cache, but does not depend on it.
const STEP_DEFAULT: usize = 256;

/// Returns the step of lengths.
pub(super) fn step(inputs: &RuleInputs) -> Result<Sourced<usize>, Error> {
    inputs.flags.whole(&STEP).unwrap_or(Sourced::default(STEP_DEFAULT)).between(1, CONTEXT_MAX)
}

/// Returns `constant` for sequences up to that length, and the next multiple of `step` for longer
/// ones.
pub(super) fn effective_length(constant: usize, step: usize, tokens: usize) -> usize {
    if tokens <= constant { constant } else { tokens.div_ceil(step).saturating_mul(step) }
}

/// Returns a note on the rounding of n in a formula.
pub(super) fn rounded(step: usize) -> String {
    match step {
        1 => String::new(),
        _ => format!(" (n rounded up to a multiple of {step})"),
    }
}
