//! `rope-cpu rope advise`: the RoPE method that predicts a user's text best, by a short measurement.

use std::{
    io::Write,
    num::NonZeroUsize,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cli::{
    args::{AdapterArgs, EngineArgs, MemoryArgs, ModelArgs, RopeArgs, at_least_one},
    error::Error,
    flags, load,
    log::Log,
    method_runs::{MethodRun, method_runs},
    methods::Method,
    note,
    progress::Progress,
    table::{section, table},
    text,
};
use rope_cpu::{
    eval::{
        cost::Cost,
        perplexity::{Scored, Settings, perplexity, windows::Windows},
        statistics::paired_test,
    },
    model::{Engine, Model},
    rope::{METHODS, Rope},
    tokenizer::{Ends, Special},
};

/// Find the RoPE method that predicts your text best
///
/// Scores the start of the text, as long as the context, with every method that needs no weights of
/// its own, and compares the second half of the positions. With --output every method is saved once
/// it is complete, and the same command resumes.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    adapters: AdapterArgs,

    /// Text like the one that you will use; -: stdin
    #[arg(short, long, value_name = "FILE", help_heading = "Measurement")]
    file: PathBuf,

    /// RoPE methods: METHOD[:FLAG=VALUE]... [default: all that apply]
    #[arg(long, value_name = "METHOD,...", value_delimiter = ',', help_heading = "Measurement")]
    methods: Vec<Method>,

    /// Minutes after which no other method starts
    #[arg(long, value_name = "N", default_value = "30", value_parser = at_least_one)]
    #[arg(help_heading = "Measurement")]
    budget: usize,

    /// Save results to this file, and resume from it
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,

    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    machine: EngineArgs,
}

/// The methods to start with, since a budget may end before all are measured.
const FIRST: [&str; 5] = ["none", "yarn", "dynamic-yarn", "self-extend", "ntk"];

/// The number of ranges of positions. The second half of them is compared, pair by pair.
const RANGES: usize = 32;

/// Differences with a larger probability of chance do not count.
const SIGNIFICANT: f64 = 0.05;

/// The result of a method, as in the `--output` file.
#[derive(Serialize, Deserialize)]
struct Measured {
    method: String,
    /// The RoPE plan in words.
    rope: String,
    length: usize,
    /// CRC-32 of the tokens as little-endian numbers of 32 bits.
    text_crc: u32,
    scored: Scored,
    seconds: f64,
}

impl Measured {
    /// Returns the mean negative log-likelihood of each range in the second half.
    fn ranges(&self) -> Vec<f64> {
        let far = self.scored.buckets.iter().filter(|b| b.positions.start >= self.length / 2);
        far.map(|bucket| bucket.nll.mean().value).collect()
    }

    /// Returns the perplexity of the second half.
    fn perplexity(&self) -> f64 {
        let ranges = self.ranges();
        (ranges.iter().sum::<f64>() / ranges.len().max(1) as f64).exp()
    }
}

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, without enough memory, or if the output cannot be
/// written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let model = load::adapted(&args.model, &args.adapters)?;
    let runs = runs(args, &model)?;
    if args.memory.dry_run {
        for run in &runs {
            run.resources.show_and_stop(&run.plan)?;
        }
        return Ok(());
    }
    runs.iter().try_for_each(|run| run.resources.check())?;
    let tokenizer = model.tokenizer().map_err(Error::usage)?;
    let mut tokens = tokenizer.encode(text::input(&args.file)?, Special::AsText, Ends::Add);
    let length = args.memory.context;
    if tokens.len() < length {
        return Err(Error::usage(format_args!(
            "{} has {} tokens, fewer than the context of {length}: give a longer text",
            text::name(&args.file),
            tokens.len()
        )));
    }
    tokens.truncate(length);
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    let text_crc = crc32fast::hash(&bytes);
    let mut log: Log<Measured> =
        Log::open(args.output.as_deref(), &args.model, &args.adapters, &args.memory)?;

    let known = |log: &Log<Measured>, run: &MethodRun| {
        log.entries.iter().position(|m| {
            (m.length, m.text_crc) == (length, text_crc) && run.equivalent.contains(&m.rope)
        })
    };
    let todo: Vec<&MethodRun> = runs.iter().filter(|run| known(&log, run).is_none()).collect();
    let work = Cost::new(&model);
    let works = todo.iter().map(|run| work.clone().within(&run.plan.visibility));
    let mut progress = Progress::new(works.map(|work| work.prompt_operations(0..length).total()));
    let (began, budget) = (Instant::now(), Duration::from_secs(60 * args.budget as u64));
    let mut left_out: Vec<&str> = Vec::new();
    for run in todo {
        // The first two methods are always compared.
        if began.elapsed() > budget && log.entries.len() >= 2 {
            left_out.push(&run.method);
            continue;
        }
        progress.begin(&format!("{}, {length} tokens", run.method));
        let began = Instant::now();
        let rope = Rope::new(run.plan.clone());
        let mut engine =
            Engine::new(&model, rope, run.resources.options()).map_err(Error::failed)?;
        let settings = Settings {
            windows: Windows::Sliding { window: length, stride: length },
            windows_max: Some(1),
            bos: tokenizer.bos().filter(|_| tokenizer.adds_bos()),
            bucket: NonZeroUsize::new(length.div_ceil(RANGES)),
        };
        let scored = perplexity(&mut engine, &tokens, settings, None, &mut |_| Ok(()));
        log.add(Measured {
            method: run.method.clone(),
            rope: flags::line(&run.plan),
            length,
            text_crc,
            scored: scored.map_err(Error::failed)?,
            seconds: began.elapsed().as_secs_f64(),
        })?;
        progress.done();
    }
    drop(progress);
    if !left_out.is_empty() {
        note(format_args!(
            "note: the budget of {} min ended before {}: run the same command with --output to go on, \
             or raise --budget",
            args.budget,
            left_out.join(", ")
        ));
    }
    let mut measured: Vec<&Measured> =
        runs.iter().filter_map(|run| Some(&log.entries[known(&log, run)?])).collect();
    measured.sort_by(|a, b| a.perplexity().total_cmp(&b.perplexity()));
    show(args, &measured, out)
}

/// Returns every method that applies, with its plan and resources. Of methods with equal results the
/// first one is returned.
fn runs(args: &Args, model: &Model) -> Result<Vec<MethodRun>, Error> {
    if args.memory.context == 0 {
        return Err(Error::usage("give the length that you need with --ctx"));
    }
    let resolve = |methods: &[Method]| {
        method_runs(methods, &RopeArgs::default(), &[], &args.memory, &args.machine, model)
    };
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
    let probability = |other: &Measured| {
        let pairs = other.ranges().into_iter().zip(best.ranges());
        paired_test(&pairs.map(|(other, best)| other - best).collect::<Vec<_>>())
    };
    let options = |method: &str| {
        let mut parts = method.split(':');
        let scaling = parts.next().unwrap_or_default();
        let more = parts.map(|part| format!(" --{}", part.replacen('=', " ", 1)));
        format!("--ctx {} --rope-scaling {scaling}{}", best.length, more.collect::<String>())
    };
    let equal: Vec<_> =
        measured[1..].iter().filter(|other| probability(other) >= SIGNIFICANT).collect();
    if args.json {
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
        writeln!(out, "{:#}", json!({"methods": methods, "flags": options(&best.method)}))?;
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
    writeln!(out, "\nUse {}", options(&best.method))?;
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
