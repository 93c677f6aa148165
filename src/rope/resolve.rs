//! From flags, metadata and tensors to a plan: llama.cpp's precedence, value by value.
//!
//! Every value is the flag if given, else the metadata key, else the default. Deviations from
//! llama.cpp, all deliberate: `--yarn-attn-factor` acts (there, YaRN overwrites it); LongRoPE's
//! set follows the length of the sequence, not the size of the context, and its attention scale
//! is computed where the file has none; layers with a sliding window are never scaled at all.

use super::{
    Divisors, Error, Factors, Flags, LongRope, Origin, Plan, Rule, Scaling, Sourced, Yarn,
    divisors::{LONG, ROPE_FREQS, SHORT, check},
    keys::Keys,
    longrope, warn, yarn,
};
use crate::gguf::Metadata;

/// What a plan needs to know of the model besides its metadata.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// `general.architecture`, which also starts the names of keys.
    pub architecture: &'a str,
    /// Dimensions of a head that rotate.
    pub n_rot: usize,
    /// Tokens that the model was trained for.
    pub context_train: usize,
    /// Whether some layers have a sliding window.
    pub window: bool,
}

impl Plan {
    /// Resolves what RoPE does for `model`, given what its file says and what the user says.
    /// `context` is the number of tokens that the run has room for.
    pub fn resolve(
        model: &Facts,
        metadata: &Metadata,
        factors: Factors,
        flags: &Flags,
        context: Sourced<usize>,
    ) -> Result<Plan, Error> {
        let Facts { architecture, n_rot, context_train, window } = *model;
        if n_rot == 0 || !n_rot.is_multiple_of(2) {
            return Err(Error::Dimensions { n_rot });
        }
        let context_train = Sourced::key(context_train, format!("{architecture}.context_length"));
        let keys = Keys { architecture, metadata };
        let flags = flags.given();

        let base_train = keys.base("freq_base")?;
        let base = match flags.freq_base {
            Some(base) => number("--rope-freq-base", base).base()?,
            None => base_train.clone(),
        };
        let window_base = window.then(|| keys.base("freq_base_swa")).transpose()?;
        let scaling = scaling(&keys, &flags)?;
        let factor = factor(&keys, &flags, &scaling)?;
        let rule = rule(&keys, &flags, &scaling, &factor, &context_train)?;
        let mut warnings = keys.unread()?;
        let divisors =
            divisors(&keys, factors, n_rot / 2, &scaling, &context_train, &mut warnings)?;
        let attention_scale =
            attention_scale(&keys, &flags, &rule, &factor, &divisors, &context_train)?;

        let mut plan = Plan {
            n_rot,
            scaling,
            rule,
            factor,
            base,
            base_train,
            window_base,
            divisors,
            attention_scale,
            context_train,
            context,
            warnings,
        };
        warn::add(&mut plan);
        Ok(plan)
    }
}

/// A value from the command line.
fn number(flag: &str, value: f64) -> Sourced<f64> {
    Sourced::flag(value, format!("{flag} {value}"))
}

fn scaling(keys: &Keys, flags: &Flags) -> Result<Sourced<Scaling>, Error> {
    match flags.scaling {
        Some(scaling) => Ok(Sourced::flag(scaling, format!("--rope-scaling {scaling}"))),
        None => keys.scaling(),
    }
}

/// The factor: 1 for scaling none, whatever the file says.
fn factor(keys: &Keys, flags: &Flags, scaling: &Sourced<Scaling>) -> Result<Sourced<f64>, Error> {
    let given = match (flags.scale, flags.freq_scale) {
        (Some(scale), Some(freq_scale)) => return Err(Error::TwoFactors { scale, freq_scale }),
        (Some(scale), None) => Some(number("--rope-scale", scale).factor()?),
        (None, Some(freq_scale)) => {
            let freq_scale = number("--rope-freq-scale", freq_scale).factor()?;
            Some(Sourced { value: 1.0 / freq_scale.value, origin: freq_scale.origin })
        }
        (None, None) => None,
    };
    match (scaling.value, given) {
        (Scaling::None, Some(Sourced { value, origin: factor })) if value != 1.0 => {
            Err(match &scaling.origin {
                Origin::Flag(_) => Error::NoneWithFactor { factor },
                key => Error::NoneInFile { factor, key: key.clone() },
            })
        }
        (Scaling::None, _) => Ok(Sourced { value: 1.0, origin: scaling.origin.clone() }),
        (_, Some(given)) => Ok(given),
        (_, None) => keys.factor(),
    }
}

/// YaRN's ramp acts where the extrapolation factor is not 0, whatever the scaling is called; the
/// flags that shape it are refused where they shape nothing.
fn rule(
    keys: &Keys,
    flags: &Flags,
    scaling: &Sourced<Scaling>,
    factor: &Sourced<f64>,
    context_train: &Sourced<usize>,
) -> Result<Rule, Error> {
    let is_yarn = scaling.value == Scaling::Yarn;
    let ext_factor = match flags.yarn_ext_factor {
        Some(ext_factor) => number("--yarn-ext-factor", ext_factor).share()?,
        None => Sourced::default(if is_yarn { 1.0 } else { 0.0 }),
    };
    let acts = is_yarn || ext_factor.value != 0.0 && factor.value != 1.0;
    if !acts {
        let idle = [
            ("--yarn-ext-factor", flags.yarn_ext_factor.is_some()),
            ("--yarn-orig-ctx", flags.yarn_orig_ctx.is_some()),
            ("--yarn-beta-fast", flags.yarn_beta_fast.is_some()),
            ("--yarn-beta-slow", flags.yarn_beta_slow.is_some()),
        ];
        return match idle.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(Error::NoEffect { flag, scaling: scaling.value }),
            None => Ok(Rule::Linear),
        };
    }
    let original_context = match flags.yarn_orig_ctx {
        Some(tokens) => Sourced::flag(tokens, format!("--yarn-orig-ctx {tokens}")),
        None => keys.original_context(context_train)?,
    };
    let beta = |flag, given: Option<f64>, default| match given {
        Some(beta) => number(flag, beta).factor(),
        None => Ok(Sourced::default(default)),
    };
    Ok(Rule::Yarn(Yarn {
        original_context,
        ext_factor,
        beta_fast: beta("--yarn-beta-fast", flags.yarn_beta_fast, 32.0)?,
        beta_slow: beta("--yarn-beta-slow", flags.yarn_beta_slow, 1.0)?,
    }))
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
        Some(_) if !keys.reads_rope_freqs() => {
            ignored(ROPE_FREQS, &format!("{} does not use it", keys.architecture));
            Ok(Divisors::None)
        }
        Some(divisors) => Ok(Divisors::Fixed(check(ROPE_FREQS, divisors, pairs)?)),
        None => Ok(Divisors::None),
    }
}

/// The product of what the user gives, what the rule asks for, and what the file gives.
fn attention_scale(
    keys: &Keys,
    flags: &Flags,
    rule: &Rule,
    factor: &Sourced<f64>,
    divisors: &Divisors,
    context_train: &Sourced<usize>,
) -> Result<Sourced<f64>, Error> {
    let mut parts = Vec::new();
    if let Some(given) = flags.yarn_attn_factor {
        parts.push(number("--yarn-attn-factor", given).factor()?);
    }
    if let Rule::Yarn(yarn) = rule
        && yarn.ext_factor.value != 0.0
        && factor.value > 1.0
    {
        parts.push(match keys.magnitude_weights()? {
            Some((above, below, key)) => Sourced {
                value: yarn::magnitude(factor.value, above) / yarn::magnitude(factor.value, below),
                origin: key,
            },
            None => Sourced {
                value: yarn::magnitude(factor.value, 1.0),
                origin: Origin::Computed("1 + 0.1 ln factor"),
            },
        });
    }
    match (keys.attention_factor()?, divisors) {
        (Some(given), _) => parts.push(given),
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
