//! `rope-cpu rope compare`: methods side by side.

use std::{f64::consts::TAU, fs, io::Write, path::PathBuf};

use serde_json::json;

use super::{Error, ModelArgs, intervals, length, open, plot, short};
use crate::{
    cli::{
        note,
        table::{section, table},
    },
    eval::rope::{Baseline, Fate, View, mean},
    rope::Scaling,
};

/// The options of `rope compare`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    model: ModelArgs,

    /// Lengths, in tokens [default: 2 and 4 times the trained one]
    #[arg(short, long = "ctx", value_name = "N,...", value_delimiter = ',', value_parser = length)]
    contexts: Vec<usize>,

    /// Methods [default: all]
    #[arg(long, value_name = "METHOD,...", value_delimiter = ',')]
    methods: Vec<Scaling>,

    /// Intervals of the circle that the disturbance is measured in
    #[arg(long, value_name = "N", value_parser = intervals, default_value = "360")]
    intervals: usize,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,

    /// Draw frequencies, angles and long-range decay at the last length into this SVG file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    plot: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// Bad usage or a bad file, or output that is not taken.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    open(&args.model, |subject| {
        let baseline = subject.baseline(args.intervals)?;
        let mut lengths = args.contexts.clone();
        if lengths.is_empty() {
            let longer = [2, 4].map(|times| length(&(times * baseline.context).to_string()));
            for length in longer {
                lengths.push(length.map_err(|e| Error::usage(format_args!("give --ctx: {e}")))?);
            }
        }
        let mut methods = args.methods.clone();
        if methods.is_empty() {
            methods.extend(Scaling::ALL.iter().filter(|method| method.acts_on_frequencies()));
        }
        let mut objects = Vec::new();
        let mut last = Vec::new();
        for length in lengths {
            let (views, missing) = subject.views(&baseline, &methods, length);
            // Few models have the tensors of LongRoPE: that they lack them is no news unless asked.
            for (method, reason) in missing.iter().filter(|_| !args.methods.is_empty()) {
                note(format_args!("note: {method} is not shown: {reason}"));
            }
            if args.json {
                objects.extend(views.iter().map(|view| object(&baseline, view)));
            } else {
                let title = format!("{length} tokens, trained for {}", baseline.context);
                section(out, Some(&title), &rows(&baseline, &views))?;
            }
            last = views;
        }
        if args.json {
            writeln!(out, "{:#}", json!(objects))?;
        }
        let Some(path) = &args.plot else { return Ok(()) };
        let svg = plot::draw(&baseline, &last).map_err(Error::failed)?;
        fs::write(path, svg).map_err(|e| Error::usage(format_args!("{}: {e}", path.display())))
    })
}

/// Pairs of each fate.
fn counts(baseline: &Baseline, view: &View) -> [usize; 3] {
    let fates = baseline.fates(view);
    [Fate::Extrapolated, Fate::Between, Fate::Interpolated]
        .map(|fate| fates.iter().filter(|f| **f == fate).count())
}

fn slowest(view: &View) -> f64 {
    TAU / view.table.inv_freq.iter().copied().fold(f64::INFINITY, f64::min)
}

fn rows(baseline: &Baseline, views: &[View]) -> comfy_table::Table {
    let header = [
        "method",
        "D (code)",
        "D (paper)",
        "extrapolated",
        "between",
        "interpolated",
        "longest wave",
        "attention scale",
    ];
    let mut shown = table(&header, &[1, 2, 3, 4, 5, 6, 7]);
    for view in views {
        let [code, paper] = [&view.code, &view.paper].map(|all| format!("{:.6}", mean(all)));
        let [extrapolated, between, interpolated] =
            counts(baseline, view).map(|count| count.to_string());
        shown.add_row([
            view.plan.scaling.value.name().to_string(),
            code,
            paper,
            extrapolated,
            between,
            interpolated,
            short(slowest(view)),
            short(view.table.scale),
        ]);
    }
    shown
}

fn object(baseline: &Baseline, view: &View) -> serde_json::Value {
    let [extrapolated, between, interpolated] = counts(baseline, view);
    json!({
        "method": view.plan.scaling.value.name(),
        "length": view.length,
        "trained": baseline.context,
        "plan": view.plan.to_string(),
        "disturbance_code": mean(&view.code),
        "disturbance_paper": mean(&view.paper),
        "pairs_extrapolated": extrapolated,
        "pairs_between": between,
        "pairs_interpolated": interpolated,
        "longest_wavelength": slowest(view),
        "attention_scale": view.table.scale,
        "inv_freq": view.table.inv_freq,
    })
}
