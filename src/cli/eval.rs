//! `rope-cpu eval`: answers tasks with RoPE methods at several lengths, and compares the methods.

mod answers;
mod args;
mod report;
mod summary;
mod tasks;

use std::{collections::HashMap, io::Write};

use serde::{Deserialize, Serialize};

pub use args::Args;

use super::{
    error::Error,
    load,
    log::Log,
    method_runs::{MethodRun, method_runs},
    note,
    progress::Progress,
    resources, warn,
};
use answers::Computation;
use rope_cpu::{
    eval::cost::Cost,
    runtime::{Sequences, Settings},
};
use summary::Summary;
use tasks::{Task, Tasks};

/// The answer to a sample, as in the `--output` file.
#[derive(Serialize, Deserialize)]
struct Record {
    task: String,
    /// A checksum of the files that the sample is made from.
    source: u32,
    /// Whether the prompt has the model's chat template.
    chat: bool,
    method: String,
    /// The RoPE plan in words.
    rope: String,
    length: usize,
    number: usize,
    /// The number of samples if it determines the sample, else 0.
    grid: usize,
    seed: u32,
    /// The scores, in the order of the task's metrics.
    scores: Vec<f64>,
    answer: String,
    expected: Vec<String>,
    /// The log-likelihoods of all choices, in nats.
    log_likelihoods: Vec<f64>,
    tokens: usize,
    reused: usize,
    seconds: f64,
}

/// The answers of a log, by what determines them.
struct Answers<'l>(HashMap<Key<'l>, &'l Record>);

type Key<'l> = (&'l str, u32, bool, &'l str, usize, usize, usize, u32);

impl<'l> Answers<'l> {
    fn new(log: &'l Log<Record>) -> Self {
        let keyed = log.entries.iter().map(|r| {
            let key =
                (&r.task[..], r.source, r.chat, &r.rope[..], r.length, r.number, r.grid, r.seed);
            (key, r)
        });
        Answers(keyed.collect())
    }

    /// Returns the answer to sample `number` of a task in a run, or in an equivalent one; `None` if it
    /// has not been computed.
    fn of(
        &self,
        run: &MethodRun,
        tasks: &Tasks<'_, '_>,
        task: &Task,
        number: usize,
    ) -> Option<&'l Record> {
        run.equivalent.iter().find_map(|rope| {
            let (name, source, grid) = (&task.name[..], task.source_crc, task.grid());
            let key = (name, source, tasks.chat(), &rope[..], run.length, number, grid, tasks.seed);
            self.0.get(&key).copied()
        })
    }
}

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, without enough memory, or if the output cannot be
/// written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let model = load::adapted(&args.model, &args.adapters)?;
    let tokenizer = model.tokenizer().map_err(Error::usage)?;
    let tasks = Tasks::new(args, &model, tokenizer)?;
    let Args { comparison, memory, .. } = args;
    let settings = Settings {
        sparse: args.sparse.settings(),
        drafts: args.prefill.settings()?,
        sequences: Sequences::UpTo(args.parallel),
        ..resources::settings(memory, &args.machine, args.rope.flags())
    };
    let whole = tasks.all.iter().find(|task| task.has_choices());
    if let Some(Task { name, .. }) = whole.filter(|_| settings.drafts.prefill.is_some()) {
        return Err(Error::usage(format_args!(
            "--prefill-share: {name} scores choices, and their prompts are always computed whole: evaluate \
             it without this option"
        )));
    }
    let runs = method_runs(&comparison.methods, &comparison.lengths, &settings, &model)?;
    // All checks come before the long computation.
    if resources::stops(runs.iter().map(|run| &run.plan), memory)? {
        return Ok(());
    }
    let mut lengths: Vec<usize> = runs.iter().map(|run| run.length).collect();
    lengths.dedup();
    lengths.iter().try_for_each(|length| tasks.check(*length))?;
    let files = args.report.as_deref().map(report::files).transpose()?;
    let output = args.comparison.output.as_deref();
    let Args { model: file, adapters, .. } = args;
    let attention = (settings.sparse, args.prefill.identity());
    let mut log = Log::with_attention(output, file, adapters, memory, attention)?;

    let known = Answers::new(&log);
    let todo: Vec<Vec<(&Task, usize)>> = runs
        .iter()
        .map(|run| {
            let all = tasks.all.iter().flat_map(|task| (0..task.samples).map(move |i| (task, i)));
            let all = all.filter(|_| run.same_as.is_none());
            all.filter(|(task, i)| known.of(run, &tasks, task, *i).is_none()).collect()
        })
        .collect();
    let work = Cost::new(&model);
    let works: Vec<_> =
        runs.iter().map(|run| work.clone().within(&run.plan.rope.visibility)).collect();
    let operations = runs.iter().zip(&works).zip(&todo).flat_map(|((run, work), todo)| {
        todo.iter().map(|(task, _)| {
            let tokens = task.tokens(run.length);
            work.prompt_operations(0..tokens, tokens).total()
        })
    });
    let mut progress = Progress::new(operations);
    if let (Some(path), true) = (output, !log.entries.is_empty()) {
        let known = log.entries.len();
        note(format_args!("{}: {known} answers are already computed", path.display()));
    }
    for (run, todo) in runs.iter().zip(&todo) {
        if let Some(other) = &run.same_as {
            note(format_args!("{}, {} tokens: the same as {other}", run.method, run.length));
        }
        if todo.is_empty() {
            continue;
        }
        note(format_args!("{}, {} tokens: {}", run.method, run.length, run.plan.rope));
        warn(&run.plan.rope);
        let computation = Computation { run, model: &model, tokenizer, tasks: &tasks };
        computation.run(todo, &mut log, &mut progress)?;
    }
    drop(progress);

    let summary = Summary::new(&tasks, &runs, &Answers::new(&log));
    // An error in one output does not prevent the other.
    let shown = match args.json {
        true => report::json(&summary, out),
        false => report::text(&summary, out),
    };
    if let Some(files) = files {
        report::write(files, &summary, &report::Origin::new(args, &model, &runs)?)?;
    }
    Ok(shown?)
}
