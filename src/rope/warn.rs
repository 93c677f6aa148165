//! Warnings about valid settings that are probably mistakes.

use super::{
    FREQ_SCALE, Flags, Origin, Plan, SCALE, advice,
    linear::{LINEAR, Linear},
    policy::POLICY,
    sourced::short,
    yarn::YARN,
};

/// The largest factor without a warning: twice the largest factor in `docs/results`.
const MEASURED: f64 = 8.0;

/// Adds warnings to the plan, which was resolved from `flags`. `resolve` returns the plan of other
/// flags for the same model and context.
pub(super) fn add(plan: &mut Plan, flags: &Flags, resolve: impl Fn(&Flags) -> Option<Plan>) {
    let found = [
        inverted(plan, flags, &resolve),
        no_effect(plan),
        plan.rule.warning(),
        plan.divisors.as_ref().and_then(|divisors| divisors.warning(plan)),
        unreached(plan, flags, &resolve),
        unmeasured(plan, flags, &resolve),
    ];
    plan.warnings.extend(found.into_iter().flatten());
}

/// Adds the warnings for a model without rotating layers.
pub(super) fn add_without_rotation(plan: &mut Plan, flags: &Flags) {
    if flags.values != Flags::default().values {
        plan.warnings.push("no layer of the model rotates: RoPE settings change nothing".into());
    }
    let (context, trained) = (plan.context.value, plan.context_train.value);
    if context > trained {
        plan.warnings.push(format!(
            "context {context} is beyond the {trained} tokens that the model was trained for, and no \
             layer rotates, so that no setting extends it: text beyond that length may be poor"
        ));
    }
}

/// Warns about a factor below 1. It shortens the context, and users usually mean its inverse.
fn inverted(
    plan: &Plan,
    flags: &Flags,
    resolve: impl Fn(&Flags) -> Option<Plan>,
) -> Option<String> {
    let factor = plan.factor.value;
    let Origin::Setting(..) = plan.factor.origin else { return None };
    // The factor of a rule that depends on the length does not extend the context.
    if factor >= 1.0 || plan.rule.effective_length(1).is_some() {
        return None;
    }
    let (times, inverse) = (short(1.0 / factor), short(factor));
    let meant = flags.clone().without(&FREQ_SCALE).with(&SCALE, 1.0 / factor);
    let longer = match resolve(&meant).is_some_and(|plan| plan.reaches()) {
        true => format!(
            "; `rope_scale` {times} (the same as `rope_freq_scale` {inverse}) makes it longer"
        ),
        false => String::new(),
    };
    Some(format!(
        "{} is probably inverted: it makes the usable context {times} times shorter{longer}",
        plan.factor.origin
    ))
}

/// Warns about a chosen method, or YaRN, that has no effect.
fn no_effect(plan: &Plan) -> Option<String> {
    let scaling = plan.scaling.value;
    if let Some(why) = plan.method.as_ref().and_then(|m| m.no_effect_reason(plan.context.value)) {
        return Some(format!("{scaling} {why} changes nothing"));
    }
    let by_length = plan.rule.effective_length(1).is_some();
    let fixed = !by_length && (plan.rule_as::<Linear>().is_none() || scaling == &LINEAR);
    let chosen = scaling == &YARN || matches!(plan.scaling.origin, Origin::Setting(..));
    if !fixed || !chosen || plan.factor.value != 1.0 || plan.rule.acts_without_factor() {
        return None;
    }
    Some(match plan.factor.origin {
        Origin::Computed(_) => format!(
            "{scaling} changes nothing, as {} tokens need no factor: set a larger `context`, or a \
             factor with `rope_scale`",
            plan.context.value
        ),
        _ => format!("{scaling} with a factor of 1 changes nothing: set another with `rope_scale`"),
    })
}

/// Warns about a context that the model cannot handle with these settings.
fn unreached(
    plan: &Plan,
    flags: &Flags,
    resolve: impl Fn(&Flags) -> Option<Plan>,
) -> Option<String> {
    if plan.reaches() {
        return None;
    }
    let (context, reach) = (plan.context.value, plan.reach());
    let unscaled = plan.unscaled_context().value;
    let without = match unscaled < plan.context_train.value {
        true => " without the scaling of its file",
        false => "",
    };
    let extended = match reach - unscaled as f64 {
        more if more > 0.0 => format!("which the settings extend to {}", reach as u64),
        less if less < 0.0 => format!("which the settings shorten to {}", reach as u64),
        _ => "and no setting extends it".into(),
    };
    let trained = format!("the {unscaled} tokens that the model was trained for{without}");
    let past = match context > unscaled {
        true => format!("context {context} is beyond {trained}, {extended}"),
        false => format!("context {context} is within {trained}, {extended}"),
    };
    let advice = advice::settings_for(flags, plan.context.value, resolve);
    let advice = advice.map_or_else(String::new, |advice| format!("; {advice}"));
    Some(format!("{past}: text beyond that length will be poor{advice}"))
}

/// Warns about settings that extend the model much further than any measurement. Settings of the
/// file come from the model's authors, and are exempt.
fn unmeasured(
    plan: &Plan,
    flags: &Flags,
    resolve: impl Fn(&Flags) -> Option<Plan>,
) -> Option<String> {
    if !plan.reaches() {
        return None;
    }
    let own = resolve(&flags.method_independent().without(&POLICY))?;
    let longer = plan.context.value as f64 / own.reach();
    let times = longer.max(plan.extension() / own.extension());
    if times <= MEASURED {
        return None;
    }
    Some(format!(
        "the settings extend the model {} times, and no measurement in docs/results.md goes beyond 4 \
         times: there, YaRN raised the perplexity of the trained length from 13.1 to 14.7; measure your \
         text with `rope-cpu rope advise` and `rope-cpu passkey`",
        short(times)
    ))
}
