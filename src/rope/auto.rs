//! Chooses a RoPE method for a context.

use super::{
    Error, FREQ_BASE, FREQ_SCALE, Flags, METHODS, Origin, Plan, SCALE, SCALING, policy::POLICY,
    rule_inputs::FOR_CONTEXT, sourced::short, yarn,
};

/// Returns the plan of the method that the context needs, with the reason as the origin of its
/// scaling. `resolve` returns the plan of other settings for the same model and context.
pub(super) fn resolve(
    flags: &Flags,
    resolve: impl Fn(&Flags) -> Result<Plan, Error>,
) -> Result<Plan, Error> {
    let values = flags.without_defaults().values;
    let of_methods = METHODS.iter().flat_map(|scaling| scaling.parameters).copied();
    let mut chosen_here = [&SCALE, &FREQ_SCALE, &FREQ_BASE].into_iter().chain(of_methods);
    if let Some(parameter) = chosen_here.find(|parameter| values.has(parameter)) {
        return Err(Error::ConflictsWithAuto { setting: parameter.setting });
    }
    let beside = flags.method_independent();
    let own = resolve(&beside.clone().without(&POLICY))?;
    let (flags, why) = choose(&own, beside);
    let mut plan = resolve(&flags)?;
    plan.scaling.origin = Origin::Setting(SCALING.setting, format!("auto: {why}"));
    if flags.values.has(&SCALE) {
        plan.factor.origin = Origin::Computed(FOR_CONTEXT);
    }
    Ok(plan)
}

/// Returns the settings to use, with the reason. `own` is the plan of the file's settings in the
/// context.
///
/// 1. If the file's settings reach the context, they are used unchanged. They are best for a model
///    that was trained for a length, or extended and fine-tuned to it by its authors.
/// 2. Otherwise YaRN is used, with the factor that reaches the context. The model was not
///    fine-tuned for that length. In `docs/findings.md` YaRN then has the lowest perplexity of the
///    methods that rotate a key once, level with linear scaling for Gemma 3. In Table 10 of the
///    DPRoPE paper, also without fine-tuning, YaRN is ahead of linear scaling and behind DPRoPE.
///    Methods that rotate keys when they are used, such as dynamic YaRN, lose less there. But they
///    are slower, and were measured with one small model only. The criterion is perplexity. Retrieval
///    was measured with that model at five places of one text, too few to choose by.
///
/// YaRN counts turns in the original context. If divisors in the file already extend the model from
/// its original to its trained context, the trained context is used.
fn choose(own: &Plan, beside: Flags) -> (Flags, String) {
    let (context, trained) = (own.context.value, own.context_train.value);
    if own.reaches() {
        let why = match context <= trained {
            true => format!("{context} tokens are within the trained context of {trained}"),
            false => format!("the file's own settings reach {context} tokens"),
        };
        return (beside, why);
    }
    let flags = beside.with(&SCALING, yarn::YARN.name);
    let (original, flags) = match &own.divisors {
        Some(sets) if sets.reach_trained() => (trained, flags.with(&yarn::ORIG_CTX, trained)),
        _ => (own.original_context.value, flags),
    };
    let factor = context as f64 / original.max(1) as f64;
    let flags = flags.with(&SCALE, factor);
    let times = short(factor);
    let why = format!(
        "{context} tokens are {times} times the trained {original}; without fine-tuning, YaRN lost \
         least of the measured methods that rotate a key once"
    );
    (flags, why)
}

/// Describes the difference from llama.cpp, with the settings that give `plan` there.
pub(super) fn unlike_llama_cpp(plan: &Plan) -> String {
    let (factor, original) = (short(plan.factor.value), plan.original_context.value);
    let same = match plan.scaling.value == &yarn::YARN {
        true => format!(
            "`rope_scaling` yarn `rope_scale` {factor} `yarn_orig_ctx` {original} has the same effect"
        ),
        false => "only the settings of the file act here".into(),
    };
    format!("it has no `rope_scaling` auto: {same}")
}
