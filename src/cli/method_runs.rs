//! RoPE methods at several lengths, with the plan and the resources of each.

use super::{
    args::{EngineArgs, MemoryArgs, RopeArgs},
    error::Error,
    flags,
    methods::{Method, Methods},
    resources::{self, Resources},
};
use rope_cpu::{model::Model, rope::Plan};

/// A method at a length.
pub struct MethodRun {
    pub method: String,
    pub length: usize,
    pub plan: Plan,
    pub resources: Resources,
    /// The RoPE plans of all methods that are equivalent at this length, in words.
    pub equivalent: Vec<String>,
    /// The first equivalent method, if it is another one. Its answers are reused.
    pub same_as: Option<String>,
}

/// Returns every method at every length, the shortest first.
///
/// By default the lengths are the context, or half, once and twice the trained length.
///
/// # Errors
/// If flags or metadata contradict each other or are invalid.
pub fn method_runs(
    methods: &[Method],
    rope: &RopeArgs,
    lengths: &[usize],
    memory: &MemoryArgs,
    machine: &EngineArgs,
    model: &Model,
) -> Result<Vec<MethodRun>, Error> {
    let methods = Methods::new(methods, rope)?;
    let mut lengths = lengths.to_vec();
    if memory.context > 0 {
        lengths = vec![memory.context];
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
            Ok((&method.name, plan, identity))
        });
        let plans = plans.collect::<Result<Vec<_>, Error>>()?;
        for (method, plan, identity) in &plans {
            let equivalent = || plans.iter().filter(|(_, _, other)| other == identity);
            let memory = MemoryArgs { context: plan.context.value, ..memory.clone() };
            runs.push(MethodRun {
                method: method.to_string(),
                length,
                plan: plan.clone(),
                resources: resources::plan(&memory, machine, model, plan.rolls()),
                equivalent: equivalent().map(|(_, plan, _)| flags::line(plan)).collect(),
                same_as: equivalent()
                    .map(|(name, ..)| name.to_string())
                    .next()
                    .filter(|n| n != *method),
            });
        }
    }
    Ok(runs)
}
