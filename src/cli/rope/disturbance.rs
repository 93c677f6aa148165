//! `rope-cpu rope disturbance`: DPRoPE's disturbance of each pair, or Table 3 of its paper.

use std::{io::Write, path::PathBuf, sync::OnceLock};

use clap::ArgGroup;
use serde_json::json;

use super::{
    Error, Method, ModelArgs, acts_on_frequencies, intervals, length, load, own_baseline, resolve,
};
use crate::cli::{
    args::{HubArgs, Overrides, overrides},
    table::{section, table},
};
use rope_cpu::{
    eval::{
        rope::mean,
        table3::{Arithmetic, table3},
    },
    rope::{
        Direction, Flags,
        dprope::{DIRECTION, INTERVALS},
        linear::{LINEAR, NONE},
    },
};

/// The options of `rope disturbance`.
#[derive(Clone, Debug, clap::Args)]
#[command(group = ArgGroup::new("source").args(["table3", "model", "hf_repo"]).required(true))]
pub struct Args {
    /// Reproduce Table 3 of the DPRoPE paper
    #[arg(long, conflicts_with_all = ["model", "hf_repo", "context", "intervals", "direction", "method"])]
    table3: bool,

    /// Model file (GGUF)
    #[arg(short, long, value_name = "FILE", help_heading = "Model")]
    model: Option<PathBuf>,

    #[command(flatten)]
    hub: HubArgs,

    /// Override metadata: KEY=TYPE:VALUE[,...]
    #[arg(long, value_name = "LIST", value_parser = overrides, help_heading = "Model")]
    override_kv: Vec<Overrides>,

    /// Length of the sequence, in tokens
    #[arg(short, long = "ctx", alias = "ctx-size", value_name = "N", value_parser = length)]
    #[arg(required_unless_present = "table3")]
    context: Option<usize>,

    /// Method to measure, besides none and linear: METHOD[:FLAG=VALUE]...
    ///
    /// Any except rerope, leaky-rerope, self-extend and lm-infinite, which change no angles.
    #[arg(long, value_name = "METHOD", default_value = "dprope")]
    method: Method,

    /// Number of intervals of the circle
    #[arg(long, value_name = "N", value_parser = intervals, default_value = "360")]
    intervals: usize,

    /// Direction of the divergence: code or paper
    #[arg(long, value_name = "WAY", default_value = "code")]
    direction: Direction,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, or if the output cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    if args.table3 { reproduce_table3(args.json, out) } else { pairs(args, out) }
}

/// Prints Table 3, in both kinds of arithmetic.
fn reproduce_table3(json: bool, out: &mut dyn Write) -> Result<(), Error> {
    let kinds = [
        (Arithmetic::Double, "f64", "Double precision, positions 0 to L-1 (as rope-cpu computes)"),
        (Arithmetic::Authors, "f32", "The authors' arithmetic: single precision, positions 1 to L"),
    ];
    let mut objects = Vec::new();
    for (kind, name, title) in kinds {
        let mut shown = table(
            &["method", "8k", "paper", "differs", "16k", "paper", "differs"],
            &[1, 2, 3, 4, 5, 6],
        );
        for row in table3(kind) {
            let cell = |i: usize| {
                let (found, printed) = (row.found[i], row.printed[i]);
                let percent = 100.0 * (found / printed - 1.0);
                let found = format!("{:.3}", 1e3 * found);
                [found, format!("{:.2}", 1e3 * printed), format!("{percent:+.2} %")]
            };
            let [a, b] = [cell(0), cell(1)];
            shown.add_row([row.method.to_string()].into_iter().chain(a).chain(b));
            objects.push(json!({
                "arithmetic": name,
                "method": row.method,
                "length": [8192, 16384],
                "disturbance": row.found,
                "printed": row.printed,
            }));
        }
        if !json {
            section(out, Some(title), &shown)?;
        }
    }
    if json {
        writeln!(out, "{:#}", json!(objects))?;
    } else {
        writeln!(
            out,
            "\nLlama 2 (128 dimensions, base 10000, trained for 4096 tokens), 360 intervals, in 10^-3 nats.\n\
             In the authors' arithmetic all but YaRN at 8k have the digits of the paper. One unit in the\n\
             last place of the frequencies moves YaRN by about 0.06, so its last digits are noise."
        )?;
    }
    Ok(())
}

/// Prints the disturbance of each pair of a model.
fn pairs(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let model = ModelArgs {
        model: args.model.clone(),
        hub: args.hub.clone(),
        override_kv: args.override_kv.clone(),
        fetched: OnceLock::new(),
    };
    let length = args.context.unwrap_or_default();
    acts_on_frequencies(&args.method, "--method")?;
    let model = load::model(&model)?;
    let baseline = own_baseline(&model, args.intervals)?;
    let of = |flags: &Flags| {
        let flags = rope_flags(args, baseline.flags(flags));
        let plan = resolve(&model, &flags, Some(length)).map_err(Error::usage)?;
        Ok::<_, Error>(baseline.view(plan, length))
    };
    let [none, linear] = [&NONE, &LINEAR].map(|s| of(&Method::from(s).flags));
    let views = [none?, linear?, of(&args.method.flags)?];
    let [none, linear, method] = views.each_ref().map(|view| match args.direction {
        Direction::Code => &view.code,
        Direction::Paper => &view.paper,
    });
    let name = &args.method.name[..];
    if args.json {
        let object = json!({
            "trained": baseline.context,
            "length": length,
            "intervals": args.intervals,
            "direction": args.direction.name(),
            "none": {"mean": mean(none), "pairs": none},
            "linear": {"mean": mean(linear), "pairs": linear},
            "method": {"name": name, "mean": mean(method), "pairs": method},
        });
        writeln!(out, "{object:#}")?;
        return Ok(());
    }
    let mut shown = table(&["pair", "none", "linear", name, "times trained"], &[0, 1, 2, 3, 4]);
    let value = |value: f64| format!("{value:.6}");
    for (i, ratio) in views[2].ratios.iter().enumerate() {
        let values = [none[i], linear[i], method[i]].map(value);
        let [none, linear, method] = values;
        shown.add_row([i.to_string(), none, linear, method, format!("{ratio:.4}")]);
    }
    let [none, linear, method] = [none, linear, method].map(|all| value(mean(all)));
    shown.add_row(["mean".into(), none, linear, method, String::new()]);
    section(out, None, &shown)?;
    writeln!(
        out,
        "\nDisturbance in nats at {length} tokens of a model trained for {}, {} intervals, direction {}",
        baseline.context,
        args.intervals,
        args.direction.name()
    )?;
    Ok(())
}

/// Sets DPRoPE's intervals and direction to those of the measurement, unless given.
fn rope_flags(args: &Args, mut flags: Flags) -> Flags {
    let Some(scaling) = flags.scaling() else { return flags };
    if scaling.reads(&INTERVALS) && !flags.values.has(&INTERVALS) {
        flags = flags.with(&INTERVALS, args.intervals);
    }
    if scaling.reads(&DIRECTION) && !flags.values.has(&DIRECTION) {
        flags = flags.with(&DIRECTION, args.direction.name());
    }
    flags
}
