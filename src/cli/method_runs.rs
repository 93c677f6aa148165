//! RoPE methods at several lengths, with the plan of each.

use super::{
    error::Error,
    flags,
    methods::{Method, Methods},
};
use rope_cpu::{
    model::Model,
    runtime::{Plan, Settings},
};

/// A method at a length.
pub struct MethodRun {
    pub method: String,
    pub length: usize,
    pub plan: Plan,
    /// The RoPE plans of all methods that are equivalent at this length, in words.
    pub equivalent: Vec<String>,
    /// The first equivalent method, if it is another one. Its answers are reused.
    pub same_as: Option<String>,
}

/// Returns every method at every length, the shortest first, with otherwise these settings.
///
/// By default the lengths are the context, or half, once and twice the trained length.
///
/// # Errors
/// If flags or metadata contradict each other or are invalid.
pub fn method_runs(
    methods: &[Method],
    lengths: &[usize],
    settings: &Settings,
    model: &Model,
) -> Result<Vec<MethodRun>, Error> {
    let methods = Methods::new(methods, &settings.rope)?;
    let mut lengths = lengths.to_vec();
    if let Some(context) = &settings.context {
        lengths = vec![context.value];
    } else if lengths.is_empty() {
        let trained = model.config().context_train;
        lengths = vec![trained / 2, trained, trained.saturating_mul(2)];
    }
    lengths.sort_unstable();
    lengths.dedup();
    let mut runs = Vec::new();
    for length in lengths {
        let plans = methods.all().iter().map(|method| {
            // A rolling context is at most the trained length.
            let rolls = method.flags.rolls();
            let trained = if rolls { model.config().context_train } else { usize::MAX };
            let plan = methods.plan(method, model, length.min(trained))?;
            // A single method is not compared with others.
            let alone = methods.all().len() == 1;
            let identity = if alone { Vec::new() } else { plan.identity_up_to(length) };
            Ok((method, plan, identity))
        });
        let plans = plans.collect::<Result<Vec<_>, Error>>()?;
        for (method, plan, identity) in &plans {
            let equivalent = || plans.iter().filter(|(_, _, other)| other == identity);
            let settings = Settings {
                context: Some(plan.context.clone()),
                rope: method.flags.clone(),
                ..settings.clone()
            };
            let same_as = equivalent().map(|(other, ..)| other.to_string()).next();
            runs.push(MethodRun {
                method: method.to_string(),
                length,
                plan: Plan::with_rope(model, &settings, |_| Ok::<_, Error>(plan.clone()))?,
                equivalent: equivalent().map(|(_, plan, _)| flags::line(plan)).collect(),
                same_as: same_as.filter(|name| *name != method.name),
            });
        }
    }
    Ok(runs)
}
