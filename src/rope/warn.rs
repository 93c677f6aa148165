//! What is allowed, but probably not meant.

use super::{Divisors, Flags, Origin, Plan, Rule, Scaling, advice, sourced::short};

/// Adds to the plan's warnings. `flags` are those of the plan, and `resolve` has the plan of others
/// for the same model and context.
pub(super) fn add(plan: &mut Plan, flags: &Flags, resolve: impl Fn(&Flags) -> Option<Plan>) {
    let found = [
        inverted(plan, flags, &resolve),
        idle(plan),
        swapped(plan),
        twice(plan),
        beyond(plan, flags, &resolve),
    ];
    plan.warnings.extend(found.into_iter().flatten());
}

/// A factor below 1 shortens the context: who types one mostly means its inverse.
fn inverted(
    plan: &Plan,
    flags: &Flags,
    resolve: impl Fn(&Flags) -> Option<Plan>,
) -> Option<String> {
    let factor = plan.factor.value;
    let Origin::Flag(typed) = &plan.factor.origin else { return None };
    // That of dynamic scaling is not one of the context.
    if factor >= 1.0 || matches!(plan.rule, Rule::Dynamic(_)) {
        return None;
    }
    let (times, inverse) = (short(1.0 / factor), short(factor));
    let meant = Flags { scale: Some(1.0 / factor), freq_scale: None, ..flags.clone() };
    let longer = match resolve(&meant).is_some_and(|plan| plan.reaches()) {
        true => format!(
            "; --rope-scale {times} (the same as --rope-freq-scale {inverse}) makes it longer"
        ),
        false => String::new(),
    };
    Some(format!(
        "{typed} is probably inverted: it makes the usable context {times} times shorter{longer}"
    ))
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
fn beyond(plan: &Plan, flags: &Flags, resolve: impl Fn(&Flags) -> Option<Plan>) -> Option<String> {
    if plan.reaches() {
        return None;
    }
    let (context, reach) = (plan.context.value, plan.reach());
    let unscaled = plan.unscaled().value;
    let without = match unscaled < plan.context_train.value {
        true => " without the scaling of its file",
        false => "",
    };
    let extended = match reach - unscaled as f64 {
        more if more > 0.0 => format!("which the settings extend to {}", reach as u64),
        less if less < 0.0 => format!("which the settings shorten to {}", reach as u64),
        _ => "and nothing extends it".into(),
    };
    let trained = format!("the {unscaled} tokens that the model was trained for{without}");
    let past = match context > unscaled {
        true => format!("context {context} is beyond {trained}, {extended}"),
        false => format!("context {context} is within {trained}, {extended}"),
    };
    let advice = advice::reaching(flags, plan.context.value, resolve);
    let advice = advice.map_or_else(String::new, |advice| format!("; {advice}"));
    Some(format!("{past}: text past that point will be poor{advice}"))
}
