//! `rope-cpu passkey`: tests whether a model finds a number in a long text.

mod args;
mod progress;
mod report;

use std::{io::Write, time::Instant};

use serde::{Deserialize, Serialize};

pub use args::Args;

use super::{
    args::MemoryArgs, error::Error, flags, load, log::Log, methods::Methods, note, plot::Drawing,
    resources, warn,
};
use progress::Progress;
use report::Grid;
use resources::Resources;
use rope_cpu::{
    eval::{
        cost::Cost,
        passkey::{Outcome, Prompts, Test, ask},
    },
    model::{Model, Session},
    rope::{Plan, Rope},
    tokenizer::{Tokenizer, common_prefix},
};

/// A method at a length.
struct MethodRun {
    method: String,
    length: usize,
    plan: Plan,
    resources: Resources,
    /// The RoPE plans of all methods that are equivalent at this length, in words.
    equivalent: Vec<String>,
    /// The first equivalent method, if it is another one: its answers are used.
    same_as: Option<String>,
}

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
    /// The answer to `test` in `run`, if there is one.
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
/// Bad usage or a bad file, too little memory, or output that cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let model = load::adapted(&args.model, &args.adapters)?;
    let tokenizer = model.tokenizer().map_err(Error::usage)?;
    let runs = runs(args, &model)?;
    if args.memory.dry_run {
        for run in &runs {
            run.resources.show_and_stop(&run.plan)?;
        }
        return Ok(());
    }
    // All checks come before the long computation.
    for run in &runs {
        run.resources.check()?;
        prompts(args, tokenizer, run.length)?;
    }
    let mut log = Log::open(args.output.as_deref(), &args.model, &args.adapters, &args.memory)?;
    let drawing = args.plot.as_deref().map(Drawing::to).transpose()?;

    let work = Cost::new(&model);
    let todo: Vec<Vec<Test>> = runs.iter().map(|run| todo(args, run, &log)).collect();
    let works: Vec<_> = runs.iter().map(|run| work.clone().within(&run.plan.visibility)).collect();
    let planned = runs.iter().zip(&works).zip(&todo).flat_map(|((run, work), tests)| {
        let first = tests.first().copied();
        tests.iter().map(move |test| (work, run.length, *test, Some(*test) == first))
    });
    let mut progress = Progress::new(planned);
    if let (Some(path), true) = (&args.output, !log.entries.is_empty()) {
        let known = log.entries.len();
        note(format_args!("{}: {known} answers are already computed", path.display()));
    }
    for (run, tests) in runs.iter().zip(&todo) {
        let MethodRun { method, length, plan, resources, same_as, .. } = run;
        if let Some(other) = same_as {
            note(format_args!("{method}, {length} tokens: the same as {other}"));
        }
        if tests.is_empty() {
            continue;
        }
        note(format_args!("{method}, {length} tokens: {plan}"));
        warn(plan);
        let prompts = prompts(args, tokenizer, *length)?;
        let rope = Rope::new(plan.clone());
        let mut session = Session::new(&model, rope, resources.options()).map_err(Error::failed)?;
        // The prompts have the tokens before the earliest key in common.
        if let ([first, .., last], false) = (&tests[..], plan.rolls()) {
            let [first, last] = [first, last].map(|t| prompts.tokens(t.depth, t.key(args.seed)));
            session.retain_from(common_prefix(&first, &last));
        }
        for test in tests {
            let key = test.key(args.seed);
            let tokens = prompts.tokens(test.depth, key);
            progress.begin(method, *test);
            let began = Instant::now();
            let Outcome { answer, found, reused } =
                ask(&mut session, &tokens, key, &mut |done| progress.reading(done))
                    .map_err(Error::failed)?;
            log.add(Record {
                method: method.clone(),
                rope: flags::line(plan),
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

/// Returns every method at every length, the shortest first.
fn runs(args: &Args, model: &Model) -> Result<Vec<MethodRun>, Error> {
    let methods = Methods::new(&args.methods, &args.rope)?;
    let mut lengths = args.lengths.clone();
    if args.memory.context > 0 {
        lengths = vec![args.memory.context];
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
            let memory = MemoryArgs { context: plan.context.value, ..args.memory.clone() };
            let resources = resources::plan(&memory, &args.machine, model, plan.rolls());
            runs.push(MethodRun {
                method: method.to_string(),
                length,
                plan: plan.clone(),
                resources: if plan.rolls() { resources } else { resources.retaining_all() },
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

/// Returns the tests of a run that have no answer yet, the deepest first, so that each reuses most of
/// the tokens of the one before.
fn todo(args: &Args, run: &MethodRun, log: &Log<Record>) -> Vec<Test> {
    let tests = args.tests(run.length).rev().filter(|_| run.same_as.is_none());
    tests.filter(|test| Record::of(args, run, log, *test).is_none()).collect()
}
