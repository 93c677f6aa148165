//! Resolution of settings, metadata and tensors into a plan, with llama.cpp's precedence.
//!
//! Every value is that of the setting if given, otherwise that of the metadata key, otherwise the default.
//! Deliberate differences from llama.cpp:
//!
//! - `yarn_attn_factor` has an effect with YaRN, which overwrites it in llama.cpp.
//! - LongRoPE's set of divisors is selected by the length of the sequence, not by the context, and its
//!   attention scale is computed if the file has none.
//! - Layers with a sliding window are never scaled.
//! - The original context of Gemma 3 does not include the linear factor that its files include.
//! - If a setting names a method without a factor, the factor is computed to reach the context.

use super::{
    Divisors, Error, FREQ_BASE, Factors, Family, Flags, LOG_N, LongRope, Method, Origin, Plan,
    Policy, Rule, SCALING, Scaling, Sourced, Visibility, auto,
    divisors::{LONG, ROPE_FREQS, SHORT, check},
    keys::Keys,
    longrope::{self, LONGROPE},
    method, ntk, rule,
    rule_inputs::RuleInputs,
    table, warn,
    yarn::{ATTENTION_FACTOR, ATTN_FACTOR},
};
use crate::gguf::Metadata;

/// The properties of a model, besides its metadata, that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct ModelInfo<'a> {
    /// The value of `general.architecture`, which is also the prefix of key names.
    pub architecture: &'a str,
    /// The properties that the files of its family do not contain.
    pub family: Family,
    /// The number of dimensions of a head that rotate.
    pub n_rot: usize,
    /// The trained length, in tokens.
    pub context_train: usize,
    /// Whether layers with a sliding window have frequencies of their own, which no flag scales.
    pub window_rope: bool,
}

impl Plan {
    /// Resolves the plan for `model` from the metadata and divisor tensors of its file and the settings of
    /// the user. `context` is the requested context in tokens.
    ///
    /// # Errors
    /// If a value is out of range, settings contradict each other, or one would have no effect.
    pub fn resolve(
        model: &ModelInfo,
        metadata: &Metadata,
        factors: Factors,
        flags: &Flags,
        context: Sourced<usize>,
    ) -> Result<Plan, Error> {
        let resolve =
            |flags: &Flags| resolve(model, metadata, factors.clone(), flags, context.clone());
        let with_warnings = |flags: &Flags| {
            let mut plan = resolve(flags)?;
            warn::add(&mut plan, flags, |flags| resolve(flags).ok());
            Ok(plan)
        };
        if flags.auto() { auto::resolve(flags, with_warnings) } else { with_warnings(flags) }
    }
}

/// Resolves a plan, without the warnings of [`warn`].
fn resolve(
    model: &ModelInfo,
    metadata: &Metadata,
    factors: Factors,
    flags: &Flags,
    context: Sourced<usize>,
) -> Result<Plan, Error> {
    let ModelInfo { architecture, family, n_rot, context_train, window_rope } = *model;
    if n_rot == 0 || !n_rot.is_multiple_of(2) {
        let key = format!("{architecture}.rope.dimension_count");
        return Err(Error::Dimensions { key, n_rot });
    }
    let key = metadata.origin(&format!("{architecture}.context_length"));
    let context_train = Sourced::key(context_train, key);
    let long_rope = factors.long.is_some();
    let keys = Keys { architecture, family, metadata, long_rope };
    let flags = flags.without_defaults();

    let base_train = keys.base("freq_base")?;
    let base = match flags.number(&FREQ_BASE) {
        Some(base) => base.base()?,
        None => base_train.clone(),
    };
    let window_base = window_rope.then(|| keys.window_base()).transpose()?;
    let chosen = chosen(&keys, &flags)?;
    // A method that acts on attention leaves the frequencies of the file in effect.
    let scaling = if chosen.value.acts_on_frequencies() { chosen.clone() } else { keys.scaling()? };
    let mut warnings = keys.unread(scaling.value)?;
    let divisors = divisors(&keys, factors, n_rot / 2, &scaling, &context_train, &mut warnings)?;
    let inputs = RuleInputs {
        keys,
        flags: &flags,
        scaling: &scaling,
        chosen: chosen.value,
        has_divisors: divisors != Divisors::None,
        alpha: ntk::alpha(n_rot, base_train.value, base.value),
        context_train: &context_train,
        context: &context,
    };
    let factor = inputs.factor()?;
    let inv_freq = table::unscaled(n_rot, base.value, divisors.at(context.value));
    let rule = rule::resolve(&inputs, &factor, &inv_freq)?;
    let attention_scale = attention_scale(&inputs, &*rule, &divisors)?;
    let original_context = inputs.original_context()?;
    let policy = Policy::resolve(&inputs, &factor, &*rule, &divisors)?;
    let method = method::resolve(&inputs, chosen.value)?;
    let log_n = log_n(&inputs, method.as_deref());

    Ok(Plan {
        n_rot,
        scaling: chosen,
        rule,
        factor,
        base,
        base_train,
        window_base,
        divisors,
        policy,
        visibility: method.as_ref().map_or(Visibility::ALL, |method| method.visibility()),
        method,
        shifts: flags.context_shift,
        log_n,
        attention_scale,
        original_context,
        context_train,
        context,
        warnings,
    })
}

/// Returns the length beyond which queries are scaled by log n, if they are.
fn log_n(inputs: &RuleInputs, method: Option<&dyn Method>) -> Option<Sourced<usize>> {
    let trained = inputs.trained_context();
    match inputs.flags.values.switch(&LOG_N) {
        Some(true) => {
            let origin = Origin::Setting(LOG_N.setting, "on".into());
            Some(Sourced { value: trained.value, origin })
        }
        None if method.is_some_and(|method| method.scales_queries()) => Some(trained),
        Some(false) | None => None,
    }
}

/// Returns the scaling that a setting or the file names.
fn chosen(keys: &Keys, flags: &Flags) -> Result<Sourced<&'static Scaling>, Error> {
    match flags.values.word(&SCALING) {
        Some(name) => Ok(Sourced::setting(Scaling::named(name)?, SCALING.setting)),
        None => keys.scaling(),
    }
}

/// Returns the divisors in the file. They are part of the model: no setting disables them.
fn divisors(
    keys: &Keys,
    factors: Factors,
    pairs: usize,
    scaling: &Sourced<&'static Scaling>,
    context_train: &Sourced<usize>,
    warnings: &mut Vec<String>,
) -> Result<Divisors, Error> {
    let mut ignored = |tensor: &str, reason: &str| {
        warnings.push(format!("tensor {tensor} is ignored, as in llama.cpp: {reason}"));
    };
    let file = keys.scaling(); // an unknown name is no error here, as a setting may replace it
    if scaling.value == &LONGROPE || file.is_ok_and(|file| file.value == &LONGROPE) {
        if !scaling.value.in_llama_cpp {
            return Err(Error::LongRopeDivisors { scaling: scaling.value });
        }
        if factors.rope_freqs.is_some() {
            ignored(ROPE_FREQS, "LongRoPE uses its own divisors");
        }
        let set = |tensor, set: Option<Vec<f32>>| {
            check(tensor, set.ok_or(Error::MissingFactors { tensor })?, pairs)
        };
        return Ok(Divisors::LongRope(LongRope {
            original_context: keys.original_context(context_train)?.value,
            short: set(SHORT, factors.short)?,
            long: set(LONG, factors.long)?,
        }));
    }
    for (tensor, set) in [(LONG, &factors.long), (SHORT, &factors.short)] {
        if set.is_some() {
            ignored(tensor, "the scaling in the file is not longrope");
        }
    }
    match factors.rope_freqs {
        Some(_) if scaling.value.replaces_divisors => {
            warnings.push(format!("tensor {ROPE_FREQS} is replaced by {}", scaling.origin));
            Ok(Divisors::None)
        }
        Some(_) if !keys.family.divisors.contains(&ROPE_FREQS) => {
            ignored(ROPE_FREQS, &format!("{} models do not use it", keys.architecture));
            Ok(Divisors::None)
        }
        Some(divisors) => Ok(Divisors::Fixed(check(ROPE_FREQS, divisors, pairs)?)),
        None => Ok(Divisors::None),
    }
}

/// Returns the attention scale: the whole that a setting gives, or the product of the part that
/// another gives, the scale of the rule and the scale in the file.
fn attention_scale(
    inputs: &RuleInputs,
    rule: &dyn Rule,
    divisors: &Divisors,
) -> Result<Sourced<f64>, Error> {
    let RuleInputs { flags, keys, context_train, .. } = inputs;
    if let Some(whole) = flags.number(&ATTENTION_FACTOR) {
        let whole = whole.factor()?;
        return match flags.number(&ATTN_FACTOR) {
            None => Ok(whole),
            Some(part) => Err(Error::Both {
                one: whole.origin.to_string(),
                other: part.origin.to_string(),
                setting: "the attention scale",
            }),
        };
    }
    let mut parts = Vec::new();
    if let Some(part) = flags.number(&ATTN_FACTOR) {
        parts.push(part.factor()?);
    }
    parts.extend(rule.attention_scale().cloned());
    match (keys.attention_factor()?, divisors) {
        (Some(part), _) => parts.push(part),
        (None, Divisors::LongRope(sets)) => {
            let extension = context_train.value as f64 / sets.original_context as f64;
            parts.push(Sourced {
                value: longrope::magnitude(extension, sets.original_context),
                origin: Origin::Computed("by LongRoPE from trained and original context"),
            });
        }
        (None, _) => {}
    }
    Ok(Sourced::product(parts))
}
