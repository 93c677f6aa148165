//! Proposes settings when the user's settings do not reach the context.

use super::{
    FREQ_BASE, FREQ_SCALE, Flags, Plan, SCALE, SCALING, ntk, policy::POLICY, sourced::short,
    yarn::YARN,
};
use crate::settings::Parameter;

/// Returns a clause that proposes settings for a context of `context` tokens; `None` if no settings
/// reach it. `resolve` checks each proposal, with its value as printed.
pub(super) fn settings_for(
    flags: &Flags,
    context: usize,
    resolve: impl Fn(&Flags) -> Option<Plan>,
) -> Option<String> {
    let beside = flags.method_independent().without(&POLICY);
    let own = resolve(&beside)?;
    if own.reaches() {
        return Some("the settings of the file reach this length without these flags".into());
    }
    let reaches = |flags: &Flags| resolve(flags).is_some_and(|plan| plan.reaches());
    // Check the value as it is printed.
    let with = |flags: &Flags, parameter: &Parameter, value: f64| {
        flags.clone().with_some(parameter, short(value).parse::<f64>().ok())
    };
    // Round up, so that the proposed factor suffices.
    let up = |factor: f64| (factor * 100.0).ceil() / 100.0;
    let needed = up(context as f64 * own.extension() / own.reach());

    let named = beside.clone().with(&SCALING, YARN.name);
    let yarn = resolve(&Flags { for_context: true, ..named.clone() }).and_then(|plan| {
        let factor = up(plan.factor.value);
        let by = with(&named, &SCALE, factor);
        let typed = format!("`rope_scaling` yarn `rope_scale` {}", short(factor));
        let alone = || reaches(&named).then(|| "`rope_scaling` yarn".into());
        if reaches(&by) { Some(typed) } else { alone() }
    });
    let freq_scale = (1e6 / needed).floor() / 1e6;
    let linear = with(&beside, &FREQ_SCALE, freq_scale);
    let linear = reaches(&linear).then(|| format!("`rope_freq_scale` {}", short(freq_scale)));
    // A single pair has the same frequency with any base, so the computed base is infinite.
    let alpha = needed / own.factor.value;
    let base = ntk::base(own.n_rot, own.turning, own.base_train.value, alpha).ceil();
    let raised = with(&beside, &FREQ_BASE, base);
    let raised = reaches(&raised).then(|| format!("`rope_freq_base` {}", short(base)));

    let ways: Vec<String> = [yarn, linear, raised].into_iter().flatten().collect();
    let (last, others) = ways.split_last()?;
    Some(match others {
        [] => format!("{last} reaches this length"),
        _ => format!("{} or {last} reach this length", others.join(", ")),
    })
}
