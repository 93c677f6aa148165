//! Settings to propose when those of the user do not reach the context.

use super::{Flags, Plan, Scaling, ntk, sourced::short};

/// Returns a clause that proposes settings for a context of `context` tokens, or `None` if none
/// reach it. Each proposed setting has been checked with `resolve`, with its value as printed.
pub(super) fn settings_for(
    flags: &Flags,
    context: usize,
    resolve: impl Fn(&Flags) -> Option<Plan>,
) -> Option<String> {
    let beside = Flags { policy: None, ..flags.method_independent() };
    let own = resolve(&beside)?;
    if own.reaches() {
        return Some("the settings of the file reach this length without these flags".into());
    }
    let reaches = |flags: &Flags| resolve(flags).is_some_and(|plan| plan.reaches());
    let number = |value: f64| short(value).parse().ok();
    // Rounded up, so that the proposed factor suffices.
    let up = |factor: f64| (factor * 100.0).ceil() / 100.0;
    let needed = up(context as f64 * own.extension() / own.reach());

    let named = Flags { scaling: Some(Scaling::Yarn), ..beside.clone() };
    let yarn = resolve(&Flags { for_context: true, ..named.clone() }).and_then(|plan| {
        let factor = up(plan.factor.value);
        let by = Flags { scale: number(factor), ..named.clone() };
        let typed = format!("--rope-scaling yarn --rope-scale {}", short(factor));
        let alone = || reaches(&named).then(|| "--rope-scaling yarn".into());
        if reaches(&by) { Some(typed) } else { alone() }
    });
    let freq_scale = (1e6 / needed).floor() / 1e6;
    let linear = Flags { freq_scale: number(freq_scale), ..beside.clone() };
    let linear = reaches(&linear).then(|| format!("--rope-freq-scale {}", short(freq_scale)));
    // A single pair has the same frequency with any base, so the computed base is infinite.
    let base = ntk::base(own.n_rot, own.base_train.value, needed / own.factor.value).ceil();
    let raised = Flags { freq_base: number(base), ..beside };
    let raised = reaches(&raised).then(|| format!("--rope-freq-base {}", short(base)));

    let ways: Vec<String> = [yarn, linear, raised].into_iter().flatten().collect();
    let (last, others) = ways.split_last()?;
    Some(match others {
        [] => format!("{last} reaches this length"),
        _ => format!("{} or {last} reach this length", others.join(", ")),
    })
}
