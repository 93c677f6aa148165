//! What is allowed, but probably not meant.

use super::{Divisors, Origin, Plan, Rule, Scaling, ntk, sourced::short};

/// Adds to the plan's warnings.
pub(super) fn add(plan: &mut Plan) {
    let found = [inverted(plan), idle(plan), swapped(plan), twice(plan), beyond(plan)];
    plan.warnings.extend(found.into_iter().flatten());
}

/// A factor below 1 shortens the context: who types one mostly means its inverse.
fn inverted(plan: &Plan) -> Option<String> {
    let factor = plan.factor.value;
    let Origin::Flag(typed) = &plan.factor.origin else { return None };
    (factor < 1.0).then(|| {
        let (times, inverse) = (short(1.0 / factor), short(factor));
        format!(
            "{typed} is probably inverted: it makes the usable context {times} times shorter; \
             --rope-scale {times} (the same as --rope-freq-scale {inverse}) makes it longer"
        )
    })
}

/// A method that the user chose, or YaRN, where it does nothing.
fn idle(plan: &Plan) -> Option<String> {
    let scaling = plan.scaling.value;
    if let Some(why) = plan.method.as_ref().and_then(|m| m.idle(plan.context.value)) {
        return Some(format!("{scaling} {why} changes nothing"));
    }
    let fixed = match &plan.rule {
        Rule::Linear => scaling == Scaling::Linear,
        Rule::Ntk | Rule::NtkMixed(_) | Rule::Yarn(_) | Rule::Llama3(_) | Rule::DpRope(_) => true,
        Rule::Dynamic(_) | Rule::DynamicYarn(_) | Rule::Clex(_) => false,
    };
    let chosen = scaling == Scaling::Yarn || matches!(plan.scaling.origin, Origin::Flag(_));
    if !fixed || !chosen || plan.factor.value != 1.0 {
        return None;
    }
    Some(match plan.factor.origin {
        Origin::Computed(_) => format!(
            "{scaling} changes nothing, as {} tokens need no factor: give more with --ctx, or a \
             factor with --rope-scale",
            plan.context.value
        ),
        _ => format!("{scaling} with a factor of 1 changes nothing: give one with --rope-scale"),
    })
}

fn swapped(plan: &Plan) -> Option<String> {
    let Rule::Yarn(yarn) = &plan.rule else { return None };
    let [fast, slow] = [&yarn.beta_fast, &yarn.beta_slow];
    (fast.value < slow.value).then(|| {
        format!(
            "--yarn-beta-fast {} is below --yarn-beta-slow {}: they are probably swapped",
            short(fast.value),
            short(slow.value)
        )
    })
}

/// A factor that begins where LongRoPE's divisors do, and not where they end.
fn twice(plan: &Plan) -> Option<String> {
    let longrope = matches!(plan.divisors, Divisors::LongRope(_));
    let beyond = plan.original_context.value >= plan.context_train.value;
    let computed = matches!(plan.factor.origin, Origin::Computed(_));
    (longrope && !beyond && !computed && plan.factor.value != 1.0)
        .then(|| format!("the factor {} scales on top of LongRoPE's own divisors", plan.factor))
}

/// A context that nothing has made the model ready for.
fn beyond(plan: &Plan) -> Option<String> {
    let trained_base = plan.base_train.value;
    let (factor, reach) = (plan.extension(), plan.reach());
    let context = plan.context.value;
    if context as f64 <= reach.ceil() {
        return None;
    }
    // Rounded up, so that what is proposed is enough.
    let needed = (context as f64 * factor / reach * 100.0).ceil() / 100.0;
    let (scale, freq_scale) = (short(needed), short(1.0 / needed));
    // The one pair of two dimensions turns as fast with any base.
    let ways = match ntk::base(plan.n_rot, trained_base, needed).ceil() {
        base if base.is_finite() => {
            format!(", --rope-freq-scale {freq_scale} or --rope-freq-base {}", short(base))
        }
        _ => format!(" or --rope-freq-scale {freq_scale}"),
    };
    let unscaled = plan.unscaled().value;
    let without = match unscaled < plan.context_train.value {
        true => " without the scaling of its file",
        false => "",
    };
    let extended = match (factor, reach) {
        (1.0, reach) if reach <= unscaled as f64 => "and nothing extends it".into(),
        _ => format!("which the settings extend to {}", reach as u64),
    };
    Some(format!(
        "context {context} is beyond the {unscaled} tokens that the model was trained for{without}, \
         {extended}: text past that point will be poor; --rope-scaling yarn --rope-scale {scale}{ways} \
         reach this far"
    ))
}
