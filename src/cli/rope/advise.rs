//! `rope-cpu rope advise`: the RoPE method that predicts a user's text best, by a short measurement.

use std::{
    io::Write,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{
    Error, Method, ModelArgs, first_tokens, load,
    scoring::{Measured, SIGNIFICANT, ScoringArgs, Text, typed},
};
use crate::cli::{
    args::{AdapterArgs, EngineArgs, MemoryArgs},
    log::Log,
    method_runs::{MethodRun, method_runs},
    note,
    progress::Progress,
    resources,
    table::{section, table},
};
use rope_cpu::{
    eval::cost::Cost,
    model::Model,
    rope::{Flags, METHODS},
};

/// Find the RoPE method that predicts your text best
///
/// Scores the start of the text, as long as the context, with every method that needs no weights of
/// its own, and compares the second half of the positions. If --budget does not suffice for two
/// methods, it scores a shorter start, and a note says so. With --output every method is saved once it
/// is complete, and the same command resumes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    adapters: AdapterArgs,

    #[command(flatten)]
    scoring: ScoringArgs,

    /// RoPE methods: METHOD[:FLAG=VALUE]... [default: all that apply]
    #[arg(long, value_name = "METHOD,...", value_delimiter = ',', help_heading = "Measurement")]
    methods: Vec<Method>,

    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    machine: EngineArgs,
}

/// The text is shortened to a whole number of these parts.
const PARTS: usize = 64;

/// The share of the budget that a shortened text is to take.
const MARGIN: f64 = 0.85;

/// The methods to start with, since a budget may end before all are measured.
const FIRST: [&str; 5] = ["none", "yarn", "dynamic-yarn", "self-extend", "ntk"];

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, without enough memory, or if the output cannot be
/// written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let model = load::adapted(&args.model, &args.adapters)?;
    let runs = runs(args, &model)?;
    if resources::stops(runs.iter().map(|run| &run.plan), &args.memory)? {
        return Ok(());
    }
    let tokenizer = model.tokenizer().map_err(Error::usage)?;
    let length = args.memory.context;
    let mut text = Text::new(&model, first_tokens(&args.scoring.file, tokenizer, length)?);
    let mut log: Log<Measured> =
        Log::open(args.scoring.output.as_deref(), &args.model, &args.adapters, &args.memory)?;

    let todo: Vec<&MethodRun> =
        runs.iter().filter(|run| text.known(&log, &run.equivalent).is_none()).collect();
    let work = Cost::new(&model);
    // The operations of the first tokens.
    let operations = |run: &MethodRun, tokens: usize| {
        work.clone().within(&run.plan.rope.visibility).prompt_operations(0..tokens, length).total()
    };
    let mut progress = Progress::new(todo.iter().map(|run| operations(run, length)));
    let end = Instant::now().checked_add(args.scoring.budget());
    progress.ends_at(end);
    let mut left_out: Vec<&str> = Vec::new();
    let mut compared = runs.len() - todo.len();
    for run in todo {
        // A first method is of use only with a second one, which therefore runs in any case.
        let methods = match compared {
            0 => Some(2.0),
            1 => None,
            _ => Some(1.0),
        };
        let of_run = |tokens| operations(run, tokens);
        let (mut measured, mut pace) = score(run, &text, methods, end, &mut progress, &of_run)?;
        while let (None, Some(slow), 0) = (&measured, pace, compared) {
            let shorter = shortened(args, text.tokens.len(), slow, end, &of_run)?;
            text = Text::new(&model, text.tokens[..shorter].to_vec());
            progress.again(operations(run, shorter));
            (measured, pace) = score(run, &text, methods, end, &mut progress, &of_run)?;
        }
        match measured {
            Some(measured) => {
                log.add(measured)?;
                compared += 1;
            }
            None => left_out.push(&run.method),
        }
        progress.done();
    }
    drop(progress);
    if !left_out.is_empty() {
        note(format_args!(
            "note: the budget of {} min ended before {}: run the same command with --output to go on, \
             or raise --budget",
            args.scoring.minutes,
            left_out.join(", ")
        ));
    }
    let mut measured: Vec<&Measured> = runs
        .iter()
        .filter_map(|run| Some(&log.entries[text.known(&log, &run.equivalent)?]))
        .collect();
    measured.sort_by(|a, b| a.perplexity().total_cmp(&b.perplexity()));
    show(args, &measured, out)
}

/// Returns the time until the budget ends; `None` is too far away to represent.
fn left(end: Option<Instant>) -> Duration {
    end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()))
}

/// The speed at which a method reads a text.
struct Pace {
    began: Instant,
    /// The operations and the time of the first batch.
    first: Option<(f64, Duration)>,
    /// Operations per second, once they are known.
    per_second: Option<f64>,
}

impl Pace {
    /// Measures the pace once, after `done` operations. Returns it when it becomes known.
    fn measure(&mut self, done: f64, end: Option<Instant>) -> Option<f64> {
        if self.per_second.is_some() {
            return None;
        }
        // The first batch also reads the weights from the disk. So the second one is a better
        // measure, unless it would take too long.
        let elapsed = self.began.elapsed();
        if self.first.is_none() && 4 * elapsed < left(end) {
            self.first = Some((done, elapsed));
            return None;
        }
        let (before, since) = self.first.unwrap_or_default();
        self.per_second = Some((done - before) / (elapsed - since).as_secs_f64());
        self.per_second
    }
}

/// Scores a text with a method. Stops, with `None`, as soon as it is clear that the budget does not
/// suffice for this number of `methods`. Also returns the operations per second, if they are known.
fn score(
    run: &MethodRun,
    text: &Text<'_>,
    methods: Option<f64>,
    end: Option<Instant>,
    progress: &mut Progress,
    operations: &dyn Fn(usize) -> f64,
) -> Result<(Option<Measured>, Option<f64>), Error> {
    let tokens = text.tokens.len();
    progress.begin(&format!("{}, {tokens} tokens", run.method));
    let mut pace = Pace { began: Instant::now(), first: None, per_second: None };
    let read = &mut |read| {
        let done = operations(read);
        progress.part(read, done);
        let late = pace.measure(done, end).zip(methods).is_some_and(|(pace, methods)| {
            (methods * operations(tokens) - done) / pace > left(end).as_secs_f64()
        });
        if late { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let measured = text.score(&run.method, &run.plan.rope, run.plan.options(), read)?;
    Ok((measured, pace.per_second))
}

/// Returns the length of a shorter start of a text of `tokens` that two methods can read in time.
///
/// # Errors
/// If the budget does not suffice for any.
fn shortened(
    args: &Args,
    tokens: usize,
    pace: f64,
    end: Option<Instant>,
    operations: &dyn Fn(usize) -> f64,
) -> Result<usize, Error> {
    let (length, minutes) = (args.memory.context, args.scoring.minutes);
    let possible = pace * left(end).as_secs_f64() * MARGIN / 2.0;
    let fits = |tokens: &usize| operations(*tokens) <= possible;
    let shorter = (1..PARTS).rev().map(|part| length * part / PARTS).find(fits);
    let for_two = |tokens| 2.0 * operations(tokens) / pace / 60.0;
    let Some(shorter) = shorter.filter(|shorter| *shorter < tokens) else {
        return Err(Error::usage(format_args!(
            "--budget {minutes}: two methods take {:.1} min for {} of {length} tokens; give more \
             minutes, or a shorter --ctx",
            for_two(length / PARTS),
            length / PARTS
        )));
    };
    note(format_args!(
        "note: --budget {minutes} suffices for two methods only with the first {shorter} of {length} \
         tokens; all of them take about {:.0} min for two",
        for_two(length).ceil()
    ));
    Ok(shorter)
}

/// Returns every method that applies, with its plan. Of methods with equal results the first one is
/// returned.
fn runs(args: &Args, model: &Model) -> Result<Vec<MethodRun>, Error> {
    if args.memory.context == 0 {
        return Err(Error::usage("give the length that you need with --ctx"));
    }
    let settings = resources::settings(&args.memory, &args.machine, Flags::default());
    let resolve = |methods: &[Method]| method_runs(methods, &[], &settings, model);
    let runs = match &args.methods[..] {
        [] => {
            let first = FIRST.iter().filter_map(|name| METHODS.iter().find(|s| s.name == *name));
            let others = METHODS.iter().filter(|scaling| !FIRST.contains(&scaling.name));
            let all = first.chain(others).map(|scaling| Method::from(*scaling));
            // Methods that need weights or divisors do not apply without them.
            let apply = all.filter(|method| resolve(std::slice::from_ref(method)).is_ok());
            resolve(&apply.collect::<Vec<_>>())?
        }
        methods => resolve(methods)?,
    };
    Ok(runs.into_iter().filter(|run| run.same_as.is_none()).collect())
}

/// Prints the methods, the best first, and the flags of the best one.
fn show(args: &Args, measured: &[&Measured], out: &mut dyn Write) -> Result<(), Error> {
    let Some(best) = measured.first() else { return Ok(()) };
    let probability = |other: &Measured| best.probability(other);
    let flags = typed(&best.method, args.memory.context);
    let equal: Vec<_> =
        measured[1..].iter().filter(|other| probability(other) >= SIGNIFICANT).collect();
    if args.scoring.json {
        let methods = measured.iter().map(|m| {
            json!({
                "method": m.method,
                "perplexity": m.perplexity(),
                "perplexity_all": m.scored.all.perplexity().value,
                "probability": probability(m),
                "seconds": m.seconds,
            })
        });
        let methods: Vec<_> = methods.collect();
        writeln!(out, "{:#}", json!({"methods": methods, "flags": flags}))?;
        return Ok(());
    }
    let header = ["method", "PPL, second half", "PPL, all", "worse by chance", "seconds"];
    let mut shown = table(&header, &[1, 2, 3, 4]);
    for (i, m) in measured.iter().enumerate() {
        shown.add_row([
            m.method.clone(),
            format!("{:.4}", m.perplexity()),
            format!("{:.4}", m.scored.all.perplexity().value),
            if i == 0 { String::new() } else { format!("{:.4}", probability(m)) },
            format!("{:.1}", m.seconds),
        ]);
    }
    section(out, None, &shown)?;
    writeln!(out, "\nUse {flags}")?;
    if !equal.is_empty() {
        let names: Vec<_> = equal.iter().map(|m| &m.method[..]).collect();
        writeln!(out, "No evidence that it is better than {}.", names.join(", "))?;
    }
    writeln!(
        out,
        "Perplexity measures fluency: compare retrieval with rope-cpu eval passkey before you rely on \
         early text."
    )?;
    Ok(())
}
