//! `rope-cpu sweep`: speed at increasing depths, as in ik_llama.cpp's llama-sweep-bench.

mod plot;
mod table;

use std::{
    io::{self, Write},
    ops::ControlFlow,
    path::PathBuf,
};

use super::{
    args::{EngineArgs, MemoryArgs, ModelArgs, RopeArgs, at_least_one},
    error::Error,
    load,
    plot::Drawing,
    resources, warn,
};
use rope_cpu::{
    eval::{
        cost::Cost,
        probe::probe,
        sweep::{self, Point, Settings},
    },
    threads::Threads,
};
use table::{Format, SweepSettings};

/// The options of `sweep`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub model: ModelArgs,

    /// Tokens from one depth to the next [default: -ub]
    ///
    /// Reading them is timed at each depth.
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Sweep")]
    pub step: Option<usize>,

    /// Tokens to generate at each depth [default: -ub / 4]
    #[arg(short = 'n', long, alias = "LLAMA_ARG_N_PREDICT", value_name = "N")]
    #[arg(value_parser = at_least_one, help_heading = "Sweep")]
    pub predict: Option<usize>,

    /// Skip the warm-up run
    #[arg(long, help_heading = "Sweep")]
    pub no_warmup: bool,

    #[command(flatten)]
    pub memory: MemoryArgs,
    #[command(flatten)]
    pub rope: RopeArgs,
    #[command(flatten)]
    pub machine: EngineArgs,

    /// Format: md, jsonl or csv [default: md]
    #[arg(short, long, value_name = "FORMAT", default_value = "md", hide_default_value = true)]
    #[arg(hide_possible_values = true, help_heading = "Output")]
    pub output: Format,

    /// Draw the speeds to this SVG file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub plot: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, without enough memory, or if the output cannot be
/// written.
pub fn run(args: &Args) -> Result<(), Error> {
    let model = load::model(&args.model)?;
    let settings = resources::settings(&args.memory, &args.machine, args.rope.flags());
    let Some(plan) = resources::plan(&model, &settings, &args.memory)? else { return Ok(()) };

    let options = plan.options();
    let settings = Settings {
        prompt: args.step.unwrap_or(options.micro_batch),
        generation: args.predict.unwrap_or(options.micro_batch / 4).max(1),
        warm_up: !args.no_warmup,
    };
    if settings.longest() > options.context {
        return Err(Error::usage(format_args!(
            "a step of {} tokens does not fit in the context of {}: choose a larger one with -c, \
             or fewer tokens with --step or -n",
            settings.longest(),
            options.context
        )));
    }
    let drawing = args.plot.as_deref().map(Drawing::to).transpose()?;

    resources::show(&plan);
    warn(&plan.rope);
    let work = Cost::new(&model).within(&plan.rope.visibility);
    let team = Threads::new(options.threads.most()).map_err(Error::failed)?;
    let read_bandwidth = probe(&team, options.cpu).read_bandwidth;
    drop(team);
    let trained = plan.rope.context_train.value;
    let mut session = plan.session(&model).map_err(Error::failed)?;
    let batch = args.memory.batch_size;
    let run = SweepSettings { options: &options, batch, work: &work, read_bandwidth };
    let mut out = io::stdout();
    out.write_all(run.header(args.output).as_bytes())?;
    let mut points: Vec<Point> = Vec::new();
    let mut written = Ok(());
    sweep::sweep(&mut session, settings, &mut |point| {
        points.push(point);
        let row = run.row(args.output, &point);
        written = out.write_all(row.as_bytes()).and_then(|()| out.flush());
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
    .map_err(Error::failed)?;
    written?;
    drawing.map_or(Ok(()), |drawing| drawing.write(plot::draw(&run, trained, &points)))
}
