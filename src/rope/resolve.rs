//! Resolves settings, metadata and tensors into a plan, with llama.cpp's precedence.
//!
//! A value comes from the setting, else from the metadata key, else from the default. Deliberate
//! differences from llama.cpp:
//!
//! - `yarn_attn_factor` has an effect with YaRN, which overwrites it in llama.cpp.
//! - Layers with a sliding window are never scaled.
//! - The original context of Gemma 3 does not include the linear factor that its files include.
//! - If a setting names a method without a factor, the factor is computed to reach the context.

use super::{
    CONTEXT_MAX, Divisors, Error, FREQ_BASE, Factors, Family, Flags, LOG_N, Method, Origin, Plan,
    Policy, Rule, SCALING, Scaling, Sourced, Visibility, WindowRope, auto, divisors,
    keys::Keys,
    method, ntk, rule,
    rule_inputs::RuleInputs,
    table, trained, warn, yarn,
    yarn::{ATTENTION_FACTOR, ATTN_FACTOR, ORIG_CTX},
};
use crate::{gguf::Metadata, settings::Setting};

/// The properties of a model that a plan depends on, in addition to metadata.
#[derive(Clone, Copy, Debug)]
pub struct ModelInfo<'a> {
    /// The value of `general.architecture`, which is also the prefix of key names.
    pub architecture: &'a str,
    /// The properties of its family that files do not contain.
    pub family: Family,
    /// Whether tokens attend to earlier tokens only.
    pub causal: bool,
    /// The number of dimensions of a head that rotate.
    pub n_rot: usize,
    /// The number of dimensions that rotate in layers with a sliding window; `None` if it is the
    /// same as in other layers, or the model has none.
    pub window_n_rot: Option<usize>,
    /// The trained length, in tokens.
    pub context_train: usize,
    /// Whether the plan rotates queries and keys in any layer.
    pub rotates: bool,
}

impl Plan {
    /// Resolves the plan for a model, from the metadata and divisor tensors of its file and from
    /// the user's settings. `context` is the requested context in tokens.
    ///
    /// # Errors
    /// If a value is out of range, or settings contradict each other, or a setting would have no
    /// effect.
    ///
    /// ```
    /// use rope_cpu::{gguf::Metadata, rope::{Factors, Family, Flags, ModelInfo, Plan, Sourced}};
    ///
    /// let model = ModelInfo {
    ///     architecture: "llama",
    ///     family: Family::PLAIN,
    ///     causal: true,
    ///     n_rot: 128,
    ///     window_n_rot: None,
    ///     context_train: 4096,
    ///     rotates: true,
    /// };
    /// let (metadata, factors) = (Metadata::default(), Factors::default());
    /// let context = Sourced::given(16384, "an example");
    /// let plan = Plan::resolve(&model, &metadata, factors, &Flags::method("yarn"), context)?;
    /// assert_eq!(plan.factor.value, 4.0); // 16384 / 4096
    /// # Ok::<(), rope_cpu::rope::Error>(())
    /// ```
    pub fn resolve(
        model: &ModelInfo,
        metadata: &Metadata,
        factors: Factors,
        flags: &Flags,
        context: Sourced<usize>,
    ) -> Result<Plan, Error> {
        let resolve = |flags: &Flags| resolve(model, metadata, &factors, flags, context.clone());
        let with_warnings = |flags: &Flags| {
            let mut plan = resolve(flags)?;
            match model.rotates {
                true => {
                    let title = metadata.string("general.name").ok().flatten();
                    plan.warnings.extend(trained::warning(title));
                    warn::add(&mut plan, flags, |flags| resolve(flags).ok());
                }
                false => warn::add_without_rotation(&mut plan, flags),
            }
            Ok(plan)
        };
        match flags.values.word(&SCALING) {
            Some("auto") => auto::resolve(flags, with_warnings),
            Some(yarn::BY_PARTS) => yarn::resolve_by_parts(flags, with_warnings),
            _ => with_warnings(flags),
        }
    }
}

/// Resolves a plan without warnings.
fn resolve(
    model: &ModelInfo,
    metadata: &Metadata,
    factors: &Factors,
    flags: &Flags,
    context: Sourced<usize>,
) -> Result<Plan, Error> {
    let ModelInfo { architecture, family, causal, n_rot, window_n_rot, context_train, .. } = *model;
    for (suffix, n_rot) in [("", Some(n_rot)), ("_swa", window_n_rot)] {
        if let Some(n_rot) = n_rot.filter(|n| *n == 0 || !n.is_multiple_of(2)) {
            let key = format!("{architecture}.rope.dimension_count{suffix}");
            return Err(Error::Dimensions { key, n_rot });
        }
    }
    let key = metadata.origin(&format!("{architecture}.context_length"));
    let context_train = Sourced::key(context_train, key);
    let keys = Keys { architecture, family, metadata, factors, pairs: n_rot / 2 };
    let flags = flags.without_defaults();
    flags.whole(&ORIG_CTX).map(|tokens| tokens.between(1, CONTEXT_MAX)).transpose()?;

    let base_train = keys.base("freq_base")?;
    let base = match flags.number(&FREQ_BASE) {
        Some(base) => base.base()?,
        None => base_train.clone(),
    };
    let window = match window_n_rot {
        Some(n_rot) => Some(WindowRope { n_rot, base: keys.window_base()? }),
        None => None,
    };
    keys.check_trained()?;
    let chosen = chosen(&keys, &flags)?;
    // A method that changes attention keeps the frequencies of the file.
    let scaling = if chosen.value.acts_on_frequencies() { chosen.clone() } else { keys.scaling()? };
    let mut warnings = keys.unread(scaling.value)?;
    let turning = 2 * divisors::turning(&keys);
    let divisors = divisors::resolve(&keys, &scaling, &context_train, &mut warnings)?;
    let inputs = RuleInputs {
        keys,
        flags: &flags,
        scaling: &scaling,
        chosen: chosen.value,
        has_divisors: divisors.is_some(),
        alpha: ntk::alpha(n_rot, turning, base_train.value, base.value),
        context_train: &context_train,
        context: &context,
    };
    let factor = inputs.factor()?;
    let divisors_at = divisors.as_ref().map(|divisors| divisors.at(context.value));
    let inv_freq = table::unscaled(n_rot, turning, base.value, divisors_at);
    let rule = rule::resolve(&inputs, &factor, &inv_freq)?;
    let attention_scale = attention_scale(&inputs, &*rule, divisors.as_deref())?;
    let original_context = inputs.original_context()?;
    let policy = Policy::resolve(&inputs, &factor, &*rule, divisors.as_deref())?;
    let method = method::resolve(&inputs, chosen.value)?;
    let log_n = log_n(&inputs, method.as_deref());
    let temperature = inputs.keys.temperature(inputs.context_train)?;

    let plan = Plan {
        n_rot,
        turning,
        scaling: chosen,
        rule,
        factor,
        base,
        base_train,
        window,
        divisors,
        policy,
        visibility: method.as_ref().map_or(Visibility::ALL, |method| method.visibility()),
        method,
        shifts: flags.context_shift,
        log_n,
        temperature,
        attention_scale,
        original_context,
        context_train,
        context,
        warnings,
    };
    let reasons = match (causal, family.keys_are_final) {
        (false, _) => Some(("read each text in one pass", "attend to later ones as well")),
        (true, true) => {
            let reason = "normalize keys after their rotation";
            Some((reason, reason))
        }
        (true, false) => None,
    };
    if let Some((_, reason)) = reasons.filter(|_| plan.method.is_some() && !plan.raw_keys()) {
        let scaling = plan.scaling.value;
        return Err(Error::Distances { scaling, architecture: architecture.into(), reason });
    }
    if let Some((reason, _)) = reasons.filter(|_| plan.raw_keys()) {
        let cause = match (&plan.method, &plan.policy) {
            (Some(_), _) => format!("RoPE scaling {}", plan.scaling.value),
            (_, Some(policy)) if plan.by_position() => {
                format!("policy {} ({})", policy.value.name(), policy.origin)
            }
            _ => Setting::CONTEXT_SHIFT.to_string(),
        };
        return Err(Error::KeysAreFinal { cause, architecture: architecture.into(), reason });
    }
    Ok(plan)
}

/// Returns the length beyond which queries are scaled by log n; `None` if they are not scaled.
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

/// Returns the attention scale. One setting gives the whole scale. Otherwise it is a product: a
/// partial scale from another setting, the rule's scale, and the scale in the file or else of its
/// divisors.
fn attention_scale(
    inputs: &RuleInputs,
    rule: &dyn Rule,
    divisors: Option<&dyn Divisors>,
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
    let of_divisors = || divisors.and_then(|sets| sets.attention_scale(context_train.value));
    parts.extend(keys.attention_factor()?.or_else(of_divisors));
    Ok(Sourced::product(parts))
}
