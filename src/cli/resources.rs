//! The settings of a run, from the options of a command line, and its plan.

use std::io::Write;

use super::{
    args::{EngineArgs, Form, MemoryArgs},
    environment,
    error::Error,
    flags, note, warn,
};
use rope_cpu::{
    model::Model,
    platform::priority,
    rope::{Flags, Sourced},
    runtime::{self, Plan, Settings},
};

/// Returns the settings of a run, with defaults for options that are not given.
pub fn settings(memory: &MemoryArgs, machine: &EngineArgs, rope: Flags) -> Settings {
    if let Some(nice) = machine.nice
        && let Err(e) = priority::lower(nice)
    {
        note(format_args!("warning: --nice {nice}: {e}"));
    }
    let context = memory.context;
    Settings {
        context: (context > 0)
            .then(|| Sourced::given(context, environment::origin("ctx", context))),
        rope,
        keys: memory.cache_type_k,
        values: memory.cache_type_v,
        micro_batch: memory.ubatch_size.min(memory.batch_size),
        threads: machine.threads(),
        cpu: machine.machine.cpu(),
        power: machine.power,
        must_fit: !memory.no_memory_check,
        ..Settings::default()
    }
}

/// Plans a run, and checks that it fits in memory. With `--dry-run` this prints the plan instead, and
/// returns `None`.
///
/// # Errors
/// If options or metadata are invalid or contradict each other, or there is too little memory.
pub fn plan(
    model: &Model,
    settings: &Settings,
    memory: &MemoryArgs,
) -> Result<Option<Plan>, Error> {
    let plan = Plan::new(model, settings)?;
    Ok((!stops([&plan], memory)?).then_some(plan))
}

/// Checks that each of several plans fits in memory. With `--dry-run` this prints them, and returns true.
///
/// # Errors
/// If there is too little memory for one of them.
pub fn stops<'p>(
    plans: impl IntoIterator<Item = &'p Plan>,
    memory: &MemoryArgs,
) -> Result<bool, Error> {
    let mut plans = plans.into_iter().peekable();
    plans.peek().copied().into_iter().for_each(warn_of_settings);
    plans.try_for_each(|plan| {
        if let Some(form) = memory.dry_run {
            print(plan, form)?;
        }
        check(plan)
    })?;
    Ok(memory.dry_run.is_some())
}

/// Checks that a plan fits in memory, and warns of experts that do not.
///
/// # Errors
/// If there is too little, with the sizes and the settings that would fit.
fn check(plan: &Plan) -> Result<(), Error> {
    plan.check()?;
    let draft = plan.draft.as_ref().and_then(|draft| draft.plan.experts_warning());
    for warning in plan.experts_warning().into_iter().chain(draft) {
        note(format_args!("warning: {warning}"));
    }
    Ok(())
}

/// Prints the plan to stdout, for `--dry-run`.
fn print(plan: &Plan, form: Form) -> Result<(), Error> {
    if form == Form::Json {
        writeln!(std::io::stdout(), "{:#}", plan.json())?;
        return Ok(());
    }
    for plan in [plan].into_iter().chain(plan.draft.as_ref().map(|draft| &draft.plan)) {
        let shown = format!("{plan}\n{}", plan.rope);
        writeln!(std::io::stdout(), "{}", flags::with_flags(&shown))?;
        warn(&plan.rope);
    }
    Ok(())
}

/// Prints a plan, and the warnings about its RoPE settings.
pub fn show(plan: &Plan) {
    note(plan);
    note(&plan.rope);
    if let Some(draft) = &plan.draft {
        note(draft.plan.line("Draft model"));
    }
}

/// Prints the warnings about settings that have no effect.
fn warn_of_settings(plan: &Plan) {
    for warning in &plan.warnings {
        note(format_args!("warning: {warning}"));
    }
}

impl From<runtime::Error> for Error {
    fn from(error: runtime::Error) -> Self {
        match too_large(&error) {
            true => Error::failed(format_args!("{error} To try anyway: --no-memory-check")),
            false => Error::usage(error),
        }
    }
}

/// Returns whether a run needs more memory than is available.
pub fn too_large(error: &runtime::Error) -> bool {
    match error {
        runtime::Error::TooLarge(_) => true,
        runtime::Error::Draft { error, .. } => too_large(error),
        _ => false,
    }
}
