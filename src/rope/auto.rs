//! `--rope-scaling auto`: which method a context needs, as one rule.

use super::{
    Divisors, Error, Factors, Flags, ModelInfo, Origin, Plan, Scaling, Sourced,
    rule_inputs::FOR_CONTEXT, sourced::short,
};
use crate::gguf::Metadata;

/// The plan of the method that the context needs; its origin says why that one.
pub(super) fn resolve(
    model: &ModelInfo,
    metadata: &Metadata,
    factors: Factors,
    flags: &Flags,
    context: Sourced<usize>,
) -> Result<Plan, Error> {
    if let Some(flag) = flags.without_defaults().first_conflict_with_auto() {
        return Err(Error::ConflictsWithAuto { flag });
    }
    let beside = flags.method_independent();
    let own = Flags { policy: None, ..beside.clone() };
    let own = Plan::resolve(model, metadata, factors.clone(), &own, context.clone())?;
    let (flags, why) = choose(&own, beside);
    let mut plan = Plan::resolve(model, metadata, factors, &flags, context)?;
    plan.scaling.origin = Origin::Flag(format!("--rope-scaling auto: {why}"));
    if flags.scale.is_some() {
        plan.factor.origin = Origin::Computed(FOR_CONTEXT);
    }
    Ok(plan)
}

/// The rule, given what the file's own settings do in a context:
///
/// 1. Where these reach the context, they stand: a model that was trained for a length, or
///    extended and tuned to it by those who made it, is best as they left it.
/// 2. Otherwise YaRN with just the factor that reaches it. Nothing here was tuned for the length,
///    and without tuning YaRN loses least: less than linear and NTK scaling at every length in
///    its own paper (arXiv:2309.00071, sections 4.3 and 3.3) and in that of DPRoPE. So it is in
///    `docs/results`, among the methods that rotate a key once. Those that rotate keys as they are
///    read, dynamic YaRN among them, lose less there, but are slower, and have been judged by that
///    one small model alone. It is perplexity that decides: of the numbers hidden in 16,384 tokens
///    that model finds more with DPRoPE (9 of 15 against 5), at 1.4 times the perplexity.
///
/// YaRN counts turns in the original context. LongRoPE's divisors already take a model from that
/// to the trained one, and then the trained one counts.
fn choose(own: &Plan, beside: Flags) -> (Flags, String) {
    let (context, trained) = (own.context.value, own.context_train.value);
    if own.reaches() {
        let why = match context <= trained {
            true => format!("{context} tokens are within the {trained} of training"),
            false => format!("the file's own settings reach {context} tokens"),
        };
        return (beside, why);
    }
    let (original, yarn_orig_ctx) = match &own.divisors {
        Divisors::LongRope(_) => (trained, Some(trained)),
        _ => (own.original_context.value, None),
    };
    let factor = context as f64 / original.max(1) as f64;
    let scaling = Some(Scaling::Yarn);
    let flags = Flags { scaling, scale: Some(factor), yarn_orig_ctx, ..beside };
    let times = short(factor);
    let why = format!(
        "{context} tokens are {times} times the {original} of training, where YaRN loses least without \
         tuning, of methods that rotate a key once"
    );
    (flags, why)
}
