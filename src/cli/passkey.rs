//! `rope-cpu passkey`: tests whether a model finds a number in a long text.

mod args;
mod report;

use std::{io::Write, time::Instant};

use serde::{Deserialize, Serialize};

pub use args::Args;

use super::{
    error::Error,
    flags, load,
    log::Log,
    method_runs::{MethodRun, method_runs},
    note,
    plot::Drawing,
    progress::Progress,
    resources, warn,
};
use report::Grid;
use rope_cpu::{
    eval::{
        cost::Cost,
        passkey::{Outcome, Prompts, Test, ask},
    },
    model::Model,
    runtime::{Scheduling, Settings},
    tokenizer::{Tokenizer, common_prefix},
};

/// The answer to a prompt, as in the `--output` file.
#[derive(Serialize, Deserialize)]
struct Record {
    method: String,
    /// The RoPE plan in words.
    rope: String,
    length: usize,
    depth: u32,
    number: usize,
    seed: u32,
    key: u32,
    answer: String,
    found: bool,
    tokens: usize,
    reused: usize,
    seconds: f64,
}

impl Record {
    /// Returns the answer to `test` in `run`, or `None` if it has not been computed.
    fn of<'l>(
        args: &Args,
        run: &MethodRun,
        log: &'l Log<Record>,
        test: Test,
    ) -> Option<&'l Record> {
        let Test { length, depth, number } = test;
        log.entries.iter().find(|r| {
            (r.length, r.depth, r.number, r.seed) == (length, depth, number, args.seed)
                && run.equivalent.contains(&r.rope)
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
    let runs = runs(args, &model)?;
    // All checks come before the long computation.
    if resources::stops(runs.iter().map(|run| &run.plan), &args.memory)? {
        return Ok(());
    }
    for run in &runs {
        prompts(args, tokenizer, run.length)?;
    }
    let output = args.comparison.output.as_deref();
    let mut log = Log::open(output, &args.model, &args.adapters, &args.memory)?;
    let drawing = args.plot.as_deref().map(Drawing::to).transpose()?;

    let work = Cost::new(&model);
    let todo: Vec<Vec<Test>> = runs.iter().map(|run| todo(args, run, &log)).collect();
    let works: Vec<_> =
        runs.iter().map(|run| work.clone().within(&run.plan.rope.visibility)).collect();
    let planned = runs.iter().zip(&works).zip(&todo).flat_map(|((run, work), tests)| {
        let first = tests.first().copied();
        tests.iter().map(move |test| operations(work, run.length, *test, Some(*test) == first))
    });
    let mut progress = Progress::new(planned);
    if let (Some(path), true) = (output, !log.entries.is_empty()) {
        let known = log.entries.len();
        note(format_args!("{}: {known} answers are already computed", path.display()));
    }
    for (run, tests) in runs.iter().zip(&todo) {
        let MethodRun { method, length, plan, same_as, .. } = run;
        if let Some(other) = same_as {
            note(format_args!("{method}, {length} tokens: the same as {other}"));
        }
        if tests.is_empty() {
            continue;
        }
        note(format_args!("{method}, {length} tokens: {}", plan.rope));
        warn(&plan.rope);
        let prompts = prompts(args, tokenizer, *length)?;
        let mut scheduler = plan.scheduler(&model, tokenizer, Scheduling::default())?;
        // The prompts have the tokens before the earliest key in common.
        let retain_from = match (&tests[..], plan.rope.rolls()) {
            ([first, .., last], false) => {
                let [first, last] =
                    [first, last].map(|t| prompts.tokens(t.depth, t.key(args.seed)));
                Some(common_prefix(&first, &last))
            }
            _ => None,
        };
        for test in tests {
            let key = test.key(args.seed);
            let tokens = prompts.tokens(test.depth, key);
            let depth = test.depth;
            progress.begin(&format!("{method}, {length} tokens, key at {depth} %"));
            let began = Instant::now();
            let Outcome { answer, found, reused } =
                ask(&mut scheduler, &tokens, key, retain_from, &mut |done| progress.reading(done))
                    .map_err(Error::failed)?;
            log.add(Record {
                method: method.clone(),
                rope: flags::line(&plan.rope),
                length: *length,
                depth: test.depth,
                number: test.number,
                seed: args.seed,
                key,
                answer,
                found,
                tokens: tokens.len(),
                reused,
                seconds: began.elapsed().as_secs_f64(),
            })?;
            progress.done();
        }
    }
    drop(progress);

    let grids: Vec<Grid> = runs.iter().map(|run| Grid::new(args, run, &log)).collect();
    // An error in one output does not prevent the other.
    let shown = match args.json {
        true => report::json(args, &grids, out),
        false => report::text(args, &grids, out),
    };
    drawing.map_or(Ok(()), |drawing| drawing.write(report::svg(args, &grids)))?;
    Ok(shown?)
}

/// Returns the operations of the prompt of a test, which is the first of a session or not.
fn operations(work: &Cost, length: usize, test: Test, first: bool) -> f64 {
    let shared = if first { 0 } else { length * test.depth as usize / 100 };
    // The question, at the end, is computed for every prompt.
    work.prompt_operations(shared.min(length.saturating_sub(32))..length, length).total()
}

/// Returns every method at every length, the shortest first.
fn runs(args: &Args, model: &Model) -> Result<Vec<MethodRun>, Error> {
    let Args { comparison, memory, machine, .. } = args;
    let settings = resources::settings(memory, machine, args.rope.flags());
    let settings = Settings { retains_all: true, ..settings };
    method_runs(&comparison.methods, &comparison.lengths, &settings, model)
}

fn prompts<'t, 'a>(
    args: &Args,
    tokenizer: &'t Tokenizer<'a>,
    length: usize,
) -> Result<Prompts<'t, 'a>, Error> {
    Prompts::new(tokenizer, length).map_err(|shortest| {
        let flag = if args.memory.context > 0 { "--ctx" } else { "--lengths" };
        Error::usage(format_args!(
            "{flag} {length}: must be at least {shortest}, the tokens of the shortest prompt"
        ))
    })
}

/// Returns the tests of a run without an answer, deepest key first: each reuses most tokens of the
/// test before it.
fn todo(args: &Args, run: &MethodRun, log: &Log<Record>) -> Vec<Test> {
    let tests = args.tests(run.length).rev().filter(|_| run.same_as.is_none());
    tests.filter(|test| Record::of(args, run, log, *test).is_none()).collect()
}
