//! `rope-cpu rope disturbance`: DPRoPE's disturbance of each pair, or Table 3 of its paper.

use std::{io::Write, path::PathBuf, sync::OnceLock};

use clap::ArgGroup;
use serde_json::json;

use super::{
    Error, Method, ModelArgs, acts_on_frequencies,
    baseline::{Baseline, View},
    intervals, length, load, own_baseline, resolve,
};
use crate::cli::{
    args::{HubArgs, Overrides, overrides},
    methods::each_once,
    plot::{self, Chart, Curve, Drawing, style},
    table::{section, table},
};
use rope_cpu::rope::{
    Flags,
    dprope::{DIRECTION, INTERVALS},
    linear::{LINEAR, NONE},
};
use rope_cpu_lab::{
    disturbance::Direction,
    mean,
    table3::{Arithmetic, table3},
};

/// The options of `rope disturbance`.
#[derive(Clone, Debug, clap::Args)]
#[command(group = ArgGroup::new("source").args(["table3", "model", "hf_repo"]).required(true))]
pub struct Args {
    /// Reproduce Table 3 of the DPRoPE paper
    #[arg(long, conflicts_with_all = [
        "model", "hf_repo", "context", "intervals", "direction", "method", "methods", "plot",
    ])]
    table3: bool,

    /// Model file (GGUF)
    #[arg(short, long, alias = "LLAMA_ARG_MODEL", value_name = "FILE", help_heading = "Model")]
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
    /// Any except rerope, leaky-rerope, self-extend, lm-infinite, string and dca, which change no angles.
    #[arg(long, value_name = "METHOD", default_value = "dprope")]
    method: Method,

    /// Methods to measure side by side: METHOD[:FLAG=VALUE]...
    ///
    /// They replace none, linear and --method.
    #[arg(long, value_name = "METHOD,...", value_delimiter = ',', conflicts_with = "method")]
    methods: Vec<Method>,

    /// Number of intervals of the circle
    #[arg(long, value_name = "N", value_parser = intervals, default_value = "360")]
    intervals: usize,

    /// Direction of the divergence: code or paper
    #[arg(long, value_name = "WAY", default_value = "code")]
    direction: Direction,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Draw the disturbance of each pair to this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
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
        model: args.model.iter().cloned().collect(),
        hub: args.hub.clone(),
        override_kv: args.override_kv.clone(),
        fetched: OnceLock::new(),
    };
    let length = args.context.unwrap_or_default();
    let (compared, flag) = match &args.methods[..] {
        [] => (vec![Method::from(&NONE), Method::from(&LINEAR), args.method.clone()], "--method"),
        methods => (methods.to_vec(), "--methods"),
    };
    each_once(&args.methods)?;
    compared.iter().try_for_each(|method| acts_on_frequencies(method, flag))?;
    let model = load::model(&model)?;
    let baseline = own_baseline(&model, args.intervals)?;
    let of = |method: &Method| {
        let flags = rope_flags(args, baseline.flags(&method.flags));
        let plan = resolve(&model, &flags, Some(length)).map_err(Error::usage)?;
        Ok(View { name: method.name.clone(), ..baseline.view(plan, length) })
    };
    let views = compared.iter().map(of).collect::<Result<Vec<View>, Error>>()?;
    let drawing = args.plot.as_deref().map(Drawing::to).transpose()?;
    let values = |view: &View| match args.direction {
        Direction::Code => view.code.clone(),
        Direction::Paper => view.paper.clone(),
    };
    if let Some(drawing) = drawing {
        drawing.write(plot::draw(&[disturbances(&baseline, &views, args.direction, &values)]))?;
    }
    if args.json {
        let mut object = json!({
            "trained": baseline.context,
            "length": length,
            "intervals": args.intervals,
            "direction": args.direction.name(),
        });
        let found = |view: &View| json!({"mean": mean(&values(view)), "pairs": values(view)});
        let named = |view: &View| {
            let mut object = found(view);
            object["name"] = view.name.clone().into();
            object
        };
        match &views[..] {
            [none, linear, method] if args.methods.is_empty() => {
                object["none"] = found(none);
                object["linear"] = found(linear);
                object["method"] = named(method);
            }
            views => object["methods"] = views.iter().map(named).collect(),
        }
        writeln!(out, "{object:#}")?;
        return Ok(());
    }
    let names = views.iter().map(|view| &view.name[..]);
    let mut header: Vec<&str> = std::iter::once("pair").chain(names).collect();
    // With one method besides none and linear, the frequencies are shown too.
    let ratios = views.last().filter(|_| args.methods.is_empty()).map(|view| &view.ratios);
    header.extend(ratios.map(|_| "times trained"));
    let right: Vec<usize> = (0..header.len()).collect();
    let mut shown = table(&header, &right);
    let value = |value: f64| format!("{value:.6}");
    let found: Vec<Vec<f64>> = views.iter().map(values).collect();
    for i in 0..baseline.inv_freq.len() {
        let mut row = vec![i.to_string()];
        row.extend(found.iter().map(|all| value(all[i])));
        row.extend(ratios.map(|ratios| format!("{:.4}", ratios[i])));
        shown.add_row(row);
    }
    let mut means = vec!["mean".to_string()];
    means.extend(found.iter().map(|all| value(mean(all))));
    means.extend(ratios.map(|_| String::new()));
    shown.add_row(means);
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

/// Returns a chart of the disturbance of each pair, as figures 7 and 8 of DPRoPE.
fn disturbances(
    baseline: &Baseline,
    views: &[View],
    direction: Direction,
    values: &dyn Fn(&View) -> Vec<f64>,
) -> Chart {
    let lines = views.iter().enumerate().map(|(i, view)| {
        let points = values(view).into_iter().enumerate().map(|(i, value)| (i as f64, value));
        Curve::new(&view.name, style(i), points)
    });
    let length = views.first().map_or(0, |view| view.length);
    Chart {
        title: format!(
            "Disturbance of each pair: {length} tokens, trained for {}",
            baseline.context
        ),
        x: "pair of dimensions, from the fastest to the slowest".into(),
        y: format!("disturbance in nats, direction {}", direction.name()),
        x_to: (baseline.inv_freq.len().max(2) - 1) as f64,
        marks: true,
        lines: lines.collect(),
        ..Chart::default()
    }
}

/// Sets DPRoPE's intervals and direction as in the measurement, unless given.
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
