//! `rope-cpu rope attention`: attention by distance, as measured on a text.

mod report;

use std::{io::Write, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{Error, Method, ModelArgs, first_tokens, load, scoring::crc};
use crate::cli::{
    args::{AdapterArgs, EngineArgs, MemoryArgs, at_least_one},
    flags,
    log::Log,
    method_runs::{MethodRun, method_runs},
    note,
    plot::{self, Drawing},
    progress::Progress,
    resources, warn,
};
use rope_cpu::{
    eval::{
        attention::{Measured, Settings, attention},
        cost::Cost,
    },
    rope::Flags,
};
use rope_cpu_lab::attention::{Bin, mean};

/// Measure attention by distance on a text
///
/// Reads the start of the text, as long as the context, with each method. Queries of the last 16th
/// are then scored with all keys before them. It shows the mean score before the softmax and the
/// share of attention in ranges of distances, as means over heads; --json shows each head. Choose a
/// context longer than the trained one to see what each method does to far keys.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    adapters: AdapterArgs,

    /// Text to read; -: stdin
    #[arg(short, long, value_name = "FILE", help_heading = "Measurement")]
    file: PathBuf,

    /// RoPE methods: METHOD[:FLAG=VALUE]...
    #[arg(long, value_name = "METHOD,...", value_delimiter = ',', help_heading = "Measurement")]
    #[arg(default_value = "none,linear,yarn")]
    methods: Vec<Method>,

    /// Layers, from 0 [default: four that RoPE methods act on]
    #[arg(long, value_name = "N,...", value_delimiter = ',', help_heading = "Measurement")]
    layers: Vec<usize>,

    /// Query heads of each layer, from 0 [default: all]
    #[arg(long, value_name = "N,...", value_delimiter = ',', help_heading = "Measurement")]
    heads: Vec<usize>,

    /// Number of queries in the last 16th of the text
    #[arg(long, value_name = "N", default_value = "64", value_parser = at_least_one)]
    #[arg(help_heading = "Measurement")]
    queries: usize,

    /// Number of ranges of distances
    #[arg(long, value_name = "N", default_value = "16", value_parser = at_least_one)]
    #[arg(help_heading = "Measurement")]
    bins: usize,

    /// Save results to this file, and resume from it
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,

    /// Draw scores and shares by distance to this SVG file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    plot: Option<PathBuf>,

    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    machine: EngineArgs,
}

/// The attention with a method, as in the `--output` file.
#[derive(Serialize, Deserialize)]
struct Row {
    method: String,
    /// The RoPE plan in words.
    rope: String,
    length: usize,
    /// CRC-32 of the tokens: see [`crc`].
    text_crc: u32,
    settings: Settings,
    measured: Measured,
}

impl Row {
    /// Returns the means over heads.
    fn mean(&self) -> Vec<Bin> {
        mean(&self.measured.heads)
    }
}

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, without enough memory, or if the output cannot be
/// written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let model = load::adapted(&args.model, &args.adapters)?;
    let config = model.config();
    let mut settings = Settings {
        layers: args.layers.clone(),
        heads: args.heads.clone(),
        queries: args.queries,
        bins: args.bins,
    };
    if settings.layers.is_empty() {
        settings.layers = Settings::default_layers(config);
    }
    settings.check(config).map_err(|error| args.model.named(error))?;
    let length = args.memory.context;
    if length == 0 {
        return Err(Error::usage("give the length of the text with --ctx"));
    }
    let memory = &args.memory;
    let defaults = resources::settings(memory, &args.machine, Flags::default());
    let runs = method_runs(&args.methods, &[], &defaults, &model)?;
    if resources::stops(runs.iter().map(|run| &run.plan), memory)? {
        return Ok(());
    }
    let tokens = first_tokens(&args.file, model.tokenizer().map_err(Error::usage)?, length)?;
    let drawing = args.plot.as_deref().map(Drawing::to).transpose()?;
    let mut log: Log<Row> = Log::open(args.output.as_deref(), &args.model, &args.adapters, memory)?;

    let text_crc = crc(&tokens);
    let known = |log: &Log<Row>, run: &MethodRun| {
        log.entries.iter().position(|row| {
            (row.length, row.text_crc, &row.settings) == (length, text_crc, &settings)
                && run.equivalent.contains(&row.rope)
        })
    };
    let (runs, same): (Vec<_>, Vec<_>) = runs.into_iter().partition(|run| run.same_as.is_none());
    for MethodRun { method, same_as, .. } in same {
        note(format_args!("{method}: the same as {}", same_as.unwrap_or_default()));
    }
    let todo: Vec<_> = runs.iter().filter(|run| known(&log, run).is_none()).collect();
    let work = Cost::new(&model);
    let works = todo.iter().map(|run| work.clone().within(&run.plan.rope.visibility));
    let mut progress =
        Progress::new(works.map(|work| work.prompt_operations(0..length, length).total()));
    for run in todo {
        progress.begin(&format!("{}, {length} tokens", run.method));
        warn(&run.plan.rope);
        let mut engine = run.plan.engine(&model).map_err(Error::failed)?;
        let reading = &mut |done| progress.reading(done);
        let measured = attention(&mut engine, &tokens, &settings, reading);
        log.add(Row {
            method: run.method.clone(),
            rope: flags::line(&run.plan.rope),
            length,
            text_crc,
            settings: settings.clone(),
            measured: measured.map_err(Error::failed)?,
        })?;
        progress.done();
    }
    drop(progress);
    let rows: Vec<&Row> =
        runs.iter().filter_map(|run| Some(&log.entries[known(&log, run)?])).collect();
    let trained = config.context_train;
    // An error in one output does not prevent the other.
    let shown = match args.json {
        true => writeln!(out, "{:#}", report::object(&rows, trained, length)),
        false => report::text(&rows, trained, length, out),
    };
    drawing.map_or(Ok(()), |drawing| {
        drawing.write(plot::draw(&report::charts(&rows, trained, length)))
    })?;
    Ok(shown?)
}
