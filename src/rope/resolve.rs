//! From flags, metadata and tensors to a plan: llama.cpp's precedence, value by value.
//!
//! Every value is the flag if given, else the metadata key, else the default. Deviations from
//! llama.cpp, all deliberate: `--yarn-attn-factor` acts (there, YaRN overwrites it); LongRoPE's
//! set follows the length of the sequence, not the size of the context, and its attention scale
//! is computed where the file has none; layers with a sliding window are never scaled at all; the
//! original context of Gemma 3 is without the linear factor that its files count in; a method that a
//! flag names without a factor has the one that reaches the context.

use super::{
    Divisors, Error, Factors, Flags, LongRope, Method, Origin, Plan, Policy, Rule, Scaling,
    Sourced, Visibility, auto,
    divisors::{LONG, ROPE_FREQS, SHORT, check, tensors_of},
    keys::Keys,
    longrope, ntk,
    rule_inputs::RuleInputs,
    table, warn,
};
use crate::gguf::Metadata;

/// What a plan needs to know of the model besides its metadata.
#[derive(Clone, Copy, Debug)]
pub struct ModelInfo<'a> {
    /// `general.architecture`, which also starts the names of keys.
    pub architecture: &'a str,
    /// Dimensions of a head that rotate.
    pub n_rot: usize,
    /// Tokens that the model was trained for.
    pub context_train: usize,
    /// Whether layers with a sliding window have a RoPE of their own.
    pub window_rope: bool,
}

impl Plan {
    /// Resolves what RoPE does for `model`, given what its file says and what the user says.
    /// `context` is the number of tokens that the run has room for.
    pub fn resolve(
        model: &ModelInfo,
        metadata: &Metadata,
        factors: Factors,
        flags: &Flags,
        context: Sourced<usize>,
    ) -> Result<Plan, Error> {
        if flags.auto {
            return auto::resolve(model, metadata, factors, flags, context);
        }
        let resolve =
            |flags: &Flags| resolve(model, metadata, factors.clone(), flags, context.clone());
        let mut plan = resolve(flags)?;
        warn::add(&mut plan, flags, |flags| resolve(flags).ok());
        Ok(plan)
    }
}

/// The plan without the warnings that its values give rise to.
fn resolve(
    model: &ModelInfo,
    metadata: &Metadata,
    factors: Factors,
    flags: &Flags,
    context: Sourced<usize>,
) -> Result<Plan, Error> {
    let ModelInfo { architecture, n_rot, context_train, window_rope } = *model;
    if n_rot == 0 || !n_rot.is_multiple_of(2) {
        let key = format!("{architecture}.rope.dimension_count");
        return Err(Error::Dimensions { key, n_rot });
    }
    let key = metadata.origin(&format!("{architecture}.context_length"));
    let context_train = Sourced::key(context_train, key);
    let long_rope = factors.long.is_some();
    let keys = Keys { architecture, metadata, long_rope };
    let flags = flags.without_defaults();

    let base_train = keys.base("freq_base")?;
    let base = match flags.freq_base {
        Some(base) => Sourced::number("--rope-freq-base", base).base()?,
        None => base_train.clone(),
    };
    let window_base = window_rope.then(|| keys.window_base()).transpose()?;
    let chosen = chosen(&keys, &flags)?;
    // What acts on attention leaves the model's frequencies as they are.
    let scaling = if chosen.value.acts_on_frequencies() { chosen.clone() } else { keys.scaling()? };
    let mut warnings = keys.unread(scaling.value)?;
    let divisors = divisors(&keys, factors, n_rot / 2, &scaling, &context_train, &mut warnings)?;
    let inputs = RuleInputs {
        keys,
        flags: &flags,
        scaling: &scaling,
        chosen: chosen.value,
        divided: divisors != Divisors::None,
        alpha: ntk::alpha(n_rot, base_train.value, base.value),
        context_train: &context_train,
        context: &context,
    };
    let factor = inputs.factor()?;
    let inv_freq = table::unscaled(n_rot, base.value, divisors.at(context.value));
    let rule = Rule::resolve(&inputs, &factor, &inv_freq)?;
    let attention_scale = attention_scale(&inputs, &rule, &factor, &divisors)?;
    let original_context = inputs.original_context()?;
    let policy = Policy::resolve(&inputs, &factor, &rule, &divisors)?;
    let method = Method::resolve(&inputs, chosen.value)?;
    let log_n = log_n(&inputs, method.as_ref());

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
        visibility: method.as_ref().map_or(Visibility::ALL, Method::visibility),
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

/// The context beyond which queries grow, if they do.
fn log_n(inputs: &RuleInputs, method: Option<&Method>) -> Option<Sourced<usize>> {
    let trained = inputs.trained();
    match inputs.flags.log_n {
        Some(true) => Some(Sourced::flag(trained.value, "--rope-log-n on")),
        None if method.is_some_and(Method::scales_queries) => Some(trained),
        Some(false) | None => None,
    }
}

fn chosen(keys: &Keys, flags: &Flags) -> Result<Sourced<Scaling>, Error> {
    match flags.scaling {
        Some(scaling) => Ok(Sourced::flag(scaling, format!("--rope-scaling {scaling}"))),
        None => keys.scaling(),
    }
}

/// What the file divides frequencies by. It belongs to the model: no flag switches it off.
fn divisors(
    keys: &Keys,
    factors: Factors,
    pairs: usize,
    scaling: &Sourced<Scaling>,
    context_train: &Sourced<usize>,
    warnings: &mut Vec<String>,
) -> Result<Divisors, Error> {
    let mut ignored = |tensor: &str, reason: &str| {
        warnings.push(format!("tensor {tensor} is ignored, as in llama.cpp: {reason}"));
    };
    let file = keys.scaling(); // which a flag may have replaced, then even an unknown one
    if scaling.value == Scaling::LongRope || file.is_ok_and(|s| s.value == Scaling::LongRope) {
        use Scaling::{Linear, LongRope as Own, None as Plain, Yarn};
        if !matches!(scaling.value, Own | Plain | Linear | Yarn) {
            return Err(Error::LongRopeDivisors { scaling: scaling.value });
        }
        if factors.rope_freqs.is_some() {
            ignored(ROPE_FREQS, "LongRoPE has its own");
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
            ignored(tensor, "the file does not say that its scaling is longrope");
        }
    }
    match factors.rope_freqs {
        Some(_) if scaling.value == Scaling::Llama3 => {
            warnings.push(format!("tensor {ROPE_FREQS} is replaced by {}", scaling.origin));
            Ok(Divisors::None)
        }
        Some(_) if !tensors_of(keys.architecture).contains(&ROPE_FREQS) => {
            ignored(ROPE_FREQS, &format!("{} does not use it", keys.architecture));
            Ok(Divisors::None)
        }
        Some(divisors) => Ok(Divisors::Fixed(check(ROPE_FREQS, divisors, pairs)?)),
        None => Ok(Divisors::None),
    }
}

/// What the user gives as the whole of it, or else the product of what the user gives as a part,
/// what the rule asks for, and what the file gives.
fn attention_scale(
    inputs: &RuleInputs,
    rule: &Rule,
    factor: &Sourced<f64>,
    divisors: &Divisors,
) -> Result<Sourced<f64>, Error> {
    let RuleInputs { flags, keys, context_train, .. } = inputs;
    if let Some(whole) = flags.yarn_attention_factor {
        let whole = Sourced::number("--yarn-attention-factor", whole).factor()?;
        return match flags.yarn_attn_factor {
            None => Ok(whole),
            Some(part) => Err(Error::Both {
                one: whole.origin.to_string(),
                other: format!("--yarn-attn-factor {part}"),
                what: "the attention scale",
            }),
        };
    }
    let mut parts = Vec::new();
    if let Some(part) = flags.yarn_attn_factor {
        parts.push(Sourced::number("--yarn-attn-factor", part).factor()?);
    }
    if let Rule::Yarn(yarn) = rule {
        parts.extend(yarn.magnitude(inputs, factor.value)?);
    }
    match (keys.attention_factor()?, divisors) {
        (Some(part), _) => parts.push(part),
        (None, Divisors::LongRope(sets)) => {
            let extension = context_train.value as f64 / sets.original_context as f64;
            parts.push(Sourced {
                value: longrope::magnitude(extension, sets.original_context),
                origin: Origin::Computed("LongRoPE's, from trained and original context"),
            });
        }
        (None, _) => {}
    }
    Ok(Sourced::product(parts))
}
