//! Dynamic NTK: NTK-aware scaling with an α that depends on the length of the sequence. Sequences
//! within the trained context are unchanged.
//!
//! emozilla, "Dynamically Scaled RoPE" (2023), which is `rope_type` dynamic of Hugging Face and
//! section 3.3 of the YaRN paper (arXiv:2309.00071): α = s · n/C - (s - 1) for a sequence of n tokens
//! and a model that was trained with C. Fu et al., "Data Engineering for Scaling Language Models to
//! 128K Context" (arXiv:2402.10171), have two variants with a hyper-parameter s: the same formula
//! with s from 1 to C'/C; and, for a context of C' tokens that is set in advance,
//! α = s · max(C', n)/C - (s - 1) with s = C'/(2C), which is constant up to C'.
//!
//! [`Policy`](super::Policy) decides whose length n is: by default that of the sequence up to each
//! token. The length is rounded up to a multiple of a step, as otherwise the frequencies would change
//! with each token.

use std::{fmt, str::FromStr};

use super::{Error, Origin, Sourced, error, rule_inputs::RuleInputs};

/// The settings by which α depends on the length.
#[derive(Clone, Debug, PartialEq)]
pub struct Dynamic {
    /// The formula for α.
    pub variant: Sourced<Variant>,
    /// C: the trained context (Hugging Face's `max_position_embeddings`), not the original context of
    /// an extended model.
    pub trained: Sourced<usize>,
    /// C': the length up to which α is constant, if the variant has one.
    pub target: Option<Sourced<usize>>,
    /// Longer lengths are rounded up to a multiple of this number of tokens.
    pub step: Sourced<usize>,
}

/// The formula for α.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
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

impl FromStr for Variant {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        error::one_of("variant of dynamic NTK", name, &Variant::ALL, Variant::name)
    }
}

impl Dynamic {
    pub(super) fn resolve(inputs: &RuleInputs) -> Result<Self, Error> {
        let variant = match inputs.flags.dynamic_variant {
            Some(variant) => {
                Sourced::flag(variant, format!("--dynamic-variant {}", variant.name()))
            }
            None => Sourced::default(Variant::HuggingFace),
        };
        let trained = inputs.unscaled_context()?;
        let target = match (variant.value, inputs.flags.dynamic_target) {
            (Variant::Fu2, _) => Some(target(inputs, &trained)?),
            (_, None) => None,
            (_, Some(_)) => {
                return Err(Error::Needs("--dynamic-target", "--dynamic-variant fu2"));
            }
        };
        Ok(Dynamic { variant, trained, target, step: step(inputs)? })
    }

    /// Returns s if neither a flag nor the file sets it.
    pub(super) fn default_factor(inputs: &RuleInputs) -> Result<Sourced<f64>, Error> {
        if inputs.flags.dynamic_variant != Some(Variant::Fu2) {
            return Ok(Sourced::default(1.0));
        }
        let trained = inputs.unscaled_context()?;
        let ratio = target(inputs, &trained)?.value as f64 / (2.0 * trained.value.max(1) as f64);
        Sourced { value: ratio, origin: Origin::Computed("C' / 2C") }.factor()
    }

    /// Returns the length that stands for all lengths with the frequencies of `tokens`.
    pub(super) fn effective_length(&self, tokens: usize) -> usize {
        let constant = self.target.as_ref().unwrap_or(&self.trained).value;
        effective_length(constant, self.step.value, tokens)
    }

    /// Returns α for a sequence of `length` tokens; `factor` is s.
    pub(super) fn alpha(&self, factor: f64, length: usize) -> f64 {
        let least = self.target.as_ref().unwrap_or(&self.trained).value;
        let ratio = length.max(least) as f64 / self.trained.value.max(1) as f64;
        factor * ratio - (factor - 1.0)
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

/// Returns C': the flag if set, otherwise the requested context, but at least C.
fn target(inputs: &RuleInputs, trained: &Sourced<usize>) -> Result<Sourced<usize>, Error> {
    match inputs.flags.dynamic_target {
        Some(tokens) => {
            Sourced::whole("--dynamic-target", tokens).between(trained.value, TOKENS_MAX)
        }
        None if inputs.context.value > trained.value => Ok(inputs.context.clone()),
        None => Ok(trained.clone()),
    }
}

/// The largest length that a flag may set, in tokens.
const TOKENS_MAX: usize = 1 << 30;

/// Returns the step of lengths: `--rope-step`, by default 256.
pub(super) fn step(inputs: &RuleInputs) -> Result<Sourced<usize>, Error> {
    match inputs.flags.step {
        Some(step) => Sourced::whole("--rope-step", step).between(1, TOKENS_MAX),
        None => Ok(Sourced::default(256)),
    }
}

/// Returns `constant` for sequences up to that length, and the next multiple of `step` for longer
/// ones.
pub(super) fn effective_length(constant: usize, step: usize, tokens: usize) -> usize {
    if tokens <= constant { constant } else { tokens.div_ceil(step).saturating_mul(step) }
}
