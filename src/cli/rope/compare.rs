//! `rope-cpu rope compare`: methods side by side.

use std::{f64::consts::TAU, io::Write, path::PathBuf};

use serde_json::json;

use super::{
    Error, Method, ModelArgs, acts_on_frequencies,
    baseline::{Baseline, View},
    every_method, intervals, length, load, own_baseline,
    plot::charts,
    resolve, short, views,
};
use crate::cli::{
    flags,
    methods::each_once,
    note,
    plot::{self, Drawing},
    table::{section, table},
};
use rope_cpu::{
    model::Model,
    rope::{Flags, METHODS},
};
use rope_cpu_lab::{frequencies::FrequencyChange, mean};

/// The options of `rope compare`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// Lengths, in tokens [default: 2 and 4 times the trained one]
    #[arg(short, long = "ctx", alias = "ctx-size", value_name = "N,...", value_delimiter = ',')]
    #[arg(value_parser = length)]
    contexts: Vec<usize>,

    /// RoPE methods: METHOD[:FLAG=VALUE]... [default: all that change frequencies]
    ///
    /// For example none,linear,yarn:rope-scale=8:yarn-beta-fast=16. Without a factor, a method has
    /// exactly the factor that each length needs. By default longrope is included if the file has
    /// its divisors; clex is not, since it needs weights (clex:clex-weights=FILE). rerope,
    /// leaky-rerope, self-extend, lm-infinite, string and dca are rejected, since they change attention
    /// and no angles.
    #[arg(long, value_name = "METHOD,...", value_delimiter = ',')]
    methods: Vec<Method>,

    /// Number of intervals of the circle [default: 360; drawn: 72]
    ///
    /// For the disturbance, and for the drawn angles.
    #[arg(long, value_name = "N", value_parser = intervals)]
    intervals: Option<usize>,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,

    /// Draw frequencies, angles and long-range decay to this SVG file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    plot: Option<PathBuf>,

    /// Pair of the drawn angles, from 0
    ///
    /// By default the first pair that turns less than once in training.
    #[arg(long, value_name = "N", requires = "plot", help_heading = "Output")]
    pair: Option<usize>,
}

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, or if the output cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let model = load::model(&args.model)?;
    let baseline = own_baseline(&model, args.intervals.unwrap_or(360))?;
    let pairs = baseline.inv_freq.len();
    if let Some(pair) = args.pair.filter(|pair| *pair >= pairs) {
        return Err(Error::usage(format_args!("--pair {pair}: must be from 0 to {}", pairs - 1)));
    }
    let mut lengths = args.contexts.clone();
    if lengths.is_empty() {
        let longer = [2, 4].map(|times| length(&(times * baseline.context).to_string()));
        for length in longer {
            lengths.push(length.map_err(|e| Error::usage(format_args!("give --ctx: {e}")))?);
        }
    }
    each_once(&args.methods)?;
    args.methods.iter().try_for_each(|m| acts_on_frequencies(m, "--methods"))?;
    let all = every_method();
    let methods = if args.methods.is_empty() { &all } else { &args.methods };
    let mut compared = Vec::new();
    let mut reasons = Vec::new();
    for length in lengths {
        let (shown, missing) = views(&model, &baseline, methods, length);
        for (method, reason) in missing {
            let reason = format!("{method} is not shown: {reason}");
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        compared.push((length, shown));
    }
    if let (Some(reason), true) = (reasons.first(), compared.iter().all(|(_, v)| v.is_empty())) {
        return Err(Error::usage(format_args!("no method can be shown: {reason}")));
    }
    if args.methods.is_empty() {
        let others = METHODS.iter().filter(|scaling| !scaling.acts_on_frequencies());
        let others: Vec<_> = others.map(|scaling| scaling.name).collect();
        reasons.push(format!(
            "{} are not shown: they change attention and no angles",
            others.join(", ")
        ));
    }
    for reason in reasons {
        note(format_args!("note: {reason}"));
    }
    let drawing = args.plot.as_deref().map(Drawing::to).transpose()?;
    if args.json {
        let views = compared.iter().flat_map(|(_, views)| views);
        let objects: Vec<_> = views.map(|view| object(&baseline, view)).collect();
        writeln!(out, "{:#}", json!(objects))?;
    } else {
        for (length, views) in &compared {
            let trained = baseline.context;
            let title = match *length <= trained {
                true => format!("{length} tokens, within the {trained} of training"),
                false => format!("{length} tokens, trained for {trained}"),
            };
            section(out, Some(&title), &rows(&baseline, views))?;
        }
        writeln!(out, "\n{EXPLANATION}\n")?;
        for (length, views) in &compared {
            writeln!(out, "{}", advice(&model, &baseline, *length, views)?)?;
        }
    }
    let Some(drawing) = drawing else { return Ok(()) };
    let (pair, intervals) = (args.pair, args.intervals);
    let of_each = compared.iter().flat_map(|(_, views)| charts(&baseline, views, pair, intervals));
    drawing.write(plot::draw(&of_each.collect::<Vec<_>>()))
}

/// The meaning of the columns of the table.
const EXPLANATION: &str = "\
D is the disturbance of DPRoPE: how far the angles at this length are from those of training, as a divergence
in nats, the mean of all pairs; 0 if they are the same. D (code) counts trained angles that are no longer used,
as the authors' program does. D (paper) counts angles that did not occur in training. D says nothing about
near tokens: linear has a small D, and yet bad text without fine-tuning. The next four columns count pairs by
what becomes of their frequency; extrapolated pairs reach angles that are new to the model.";

/// Returns what to choose for a length.
fn advice(
    model: &Model,
    baseline: &Baseline,
    length: usize,
    views: &[View],
) -> Result<String, Error> {
    let flags = baseline.flags(&Flags::method("auto"));
    let auto = resolve(model, &flags, Some(length)).map_err(Error::usage)?;
    let (scaling, factor) = (auto.effective_scaling().name, short(auto.factor.value));
    if scaling == "none" {
        return Ok(format!("Recommended for {length} tokens: no scaling."));
    }
    let least = views.iter().min_by(|a, b| mean(&a.code).total_cmp(&mean(&b.code)));
    let least = least.filter(|view| views.len() > 1 && view.name != scaling).map(|view| {
        format!("\nThe smallest D has {}; compare both with rope-cpu perplexity.", view.name)
    });
    Ok(format!(
        "Recommended for {length} tokens: the method that the model was fine-tuned with, else --rope-scaling auto, \
         here {scaling} with factor {factor}.{}",
        least.unwrap_or_default()
    ))
}

/// Returns the number of pairs of each change.
fn counts(baseline: &Baseline, view: &View) -> [usize; 4] {
    let fates = baseline.frequency_changes(view);
    [
        FrequencyChange::Trained,
        FrequencyChange::Extrapolated,
        FrequencyChange::Between,
        FrequencyChange::Interpolated,
    ]
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
        "as trained",
        "extrapolated",
        "between",
        "interpolated",
        "longest wave",
        "attention scale",
    ];
    let mut shown = table(&header, &[1, 2, 3, 4, 5, 6, 7, 8]);
    for view in views {
        let [code, paper] = [&view.code, &view.paper].map(|all| format!("{:.6}", mean(all)));
        let [trained, extrapolated, between, interpolated] =
            counts(baseline, view).map(|count| count.to_string());
        shown.add_row([
            view.name.clone(),
            code,
            paper,
            trained,
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
    let [trained, extrapolated, between, interpolated] = counts(baseline, view);
    json!({
        "method": view.name,
        "length": view.length,
        "trained": baseline.context,
        "plan": flags::line(&view.plan),
        "disturbance_code": mean(&view.code),
        "disturbance_paper": mean(&view.paper),
        "pairs_as_trained": trained,
        "pairs_extrapolated": extrapolated,
        "pairs_between": between,
        "pairs_interpolated": interpolated,
        "longest_wavelength": slowest(view),
        "attention_scale": view.table.scale,
        "inv_freq": view.table.inv_freq,
    })
}
