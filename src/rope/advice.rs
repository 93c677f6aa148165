//! Settings that reach a context, to propose where those of the user do not.

use super::{Flags, Plan, Scaling, ntk, sourced::short};

/// What to do to reach a context of `context` tokens, as one clause; `None` if nothing is known to. Each
/// setting in it was tried with `resolve`, as it is printed.
pub(super) fn reaching(
    flags: &Flags,
    context: usize,
    resolve: impl Fn(&Flags) -> Option<Plan>,
) -> Option<String> {
    let beside = Flags { policy: None, ..flags.method_independent() };
    let own = resolve(&beside)?;
    if own.reaches() {
        return Some("without them, the settings of the file reach this far".into());
    }
    let reaches = |flags: &Flags| resolve(flags).is_some_and(|plan| plan.reaches());
    let number = |value: f64| short(value).parse().ok();
    // Rounded up, so that what is proposed is enough.
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
    // The one pair of two dimensions turns as fast with any base, which then is infinite.
    let base = ntk::base(own.n_rot, own.base_train.value, needed / own.factor.value).ceil();
    let raised = Flags { freq_base: number(base), ..beside };
    let raised = reaches(&raised).then(|| format!("--rope-freq-base {}", short(base)));

    let ways: Vec<String> = [yarn, linear, raised].into_iter().flatten().collect();
    let (last, others) = ways.split_last()?;
    Some(match others {
        [] => format!("{last} reaches this far"),
        _ => format!("{} or {last} reach this far", others.join(", ")),
    })
}
