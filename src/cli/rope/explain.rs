//! `rope-cpu rope explain`: the plan of a run, and its effect on each pair of dimensions.

use std::{f64::consts::TAU, io::Write};

use serde_json::json;

use super::{
    Error, Method, ModelArgs,
    baseline::{Baseline, View},
    every_method,
    layers::{self, Kind},
    length, load, resolve, short, views,
};
use crate::cli::{
    args::RopeArgs,
    flags::with_flags,
    table::{section, table},
};
use rope_cpu::{
    model::{Model, Rotation},
    rope::{Flags, WindowRope},
};
use rope_cpu_lab::mean;

/// The options of `rope explain`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// Length of the sequence, in tokens [default: as trained]
    #[arg(short, long = "ctx", alias = "ctx-size", value_name = "N", value_parser = length)]
    context: Option<usize>,

    /// Show the settings of a run with this flag
    #[arg(long, alias = "LLAMA_ARG_CONTEXT_SHIFT")]
    context_shift: bool,

    #[command(flatten)]
    rope: RopeArgs,

    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// The number of intervals of the circle, as in the DPRoPE paper.
const INTERVALS: usize = 360;

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, or if the output cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let model = load::model(&args.model)?;
    let length = args.context.unwrap_or(model.config().context_train);
    let flags = Flags { context_shift: args.context_shift, ..args.rope.flags() };
    let plan = resolve(&model, &flags, args.context).map_err(Error::usage)?;
    let baseline = super::baseline(&plan, INTERVALS)?;
    let view = baseline.view(plan, length);
    let explained = Explained { model: &model, flags: &flags, baseline: &baseline, view: &view };
    let mut text = Vec::new();
    match args.json {
        true => explained.json(&mut text)?,
        false => explained.text(&mut text)?,
    }
    write!(out, "{}", with_flags(&String::from_utf8_lossy(&text)))?;
    Ok(())
}

struct Explained<'a> {
    model: &'a Model,
    flags: &'a Flags,
    baseline: &'a Baseline,
    view: &'a View,
}

impl Explained<'_> {
    fn text(&self, out: &mut dyn Write) -> Result<(), Error> {
        let plan = &self.view.plan;
        let planned = layers::planned(self.model.config()) > 0;
        if planned {
            writeln!(out, "{plan}")?;
        } else {
            writeln!(out, "No layer rotates by this plan: no RoPE method has an effect.")?;
        }
        for warning in &plan.warnings {
            writeln!(out, "warning: {warning}")?;
        }
        if planned {
            self.frequencies(out)?;
        }
        let window = plan.window.as_ref().filter(|_| self.rotates(Rotation::Window));
        if let Some(WindowRope { n_rot, base }) = window {
            let last = n_rot / 2 - 1;
            let wavelength =
                |pair: usize| short(TAU * base.value.powf(2.0 * pair as f64 / *n_rot as f64));
            writeln!(
                out,
                "Layers with a sliding window rotate {n_rot} dimensions by the base {base}, with \
                 wavelengths from {} to {}. No method changes them.",
                wavelength(0),
                wavelength(last)
            )?;
        }

        let mut rows = table(&["layers", "from other tokens", "rotation"], &[0]);
        for Kind { count, computes, rotation } in layers::kinds(self.model.config()) {
            rows.add_row([count.to_string(), computes, rotation]);
        }
        section(out, Some("Kinds of layers"), &rows)?;
        if planned { self.methods(out) } else { Ok(()) }
    }

    /// Returns whether a layer has this rotation.
    fn rotates(&self, rotation: Rotation) -> bool {
        self.model.config().attention().any(|layer| layer.rotation == rotation)
    }

    /// Writes the formulas, and the frequency of each pair.
    fn frequencies(&self, out: &mut dyn Write) -> Result<(), Error> {
        let View { plan, length, table: frequencies, .. } = self.view;
        let [g, h] = plan.formulas();
        writeln!(out, "\nf'(x, m, θ) = f(x, g(m), h(θ)) with g(m) = {g} and h(θ_i) = {h}")?;
        if let Some(method) = &plan.method {
            writeln!(
                out,
                "In attention, the distance d = i - j becomes {}.",
                method.distance_formula()
            )?;
        }
        writeln!(
            out,
            "At {length} tokens, cosine and sine are multiplied by {}, and the frequencies are:",
            short(frequencies.scale)
        )?;
        let trained = self.baseline.context;
        let turns = format!("turns in {trained}");
        let header = ["pair", "wavelength", "trained with", &turns, "times trained", "", "D"];
        let mut pairs = table(&header, &[0, 1, 2, 3, 4, 6]);
        let fates = self.baseline.frequency_changes(self.view);
        for (i, theta) in frequencies.inv_freq.iter().enumerate() {
            let own = self.baseline.inv_freq[i];
            pairs.add_row([
                i.to_string(),
                short(TAU / theta),
                short(TAU / own),
                short(trained as f64 * own / TAU),
                format!("{:.4}", self.view.ratios[i]),
                fates[i].name().to_string(),
                format!("{:.6}", self.view.code[i]),
            ]);
        }
        section(out, None, &pairs)?;
        Ok(())
    }

    /// Writes the disturbance of every method, and the differences in llama.cpp.
    fn methods(&self, out: &mut dyn Write) -> Result<(), Error> {
        let (plan, trained) = (&self.view.plan, self.baseline.context);
        let (views, missing) = self.others();
        let mut methods = table(&["method", "D (code)", "D (paper)"], &[1, 2]);
        let mut row = |name: &str, view: &View| {
            let [code, paper] = [&view.code, &view.paper].map(|all| format!("{:.6}", mean(all)));
            methods.add_row([name.to_string(), code, paper]);
        };
        // A method that changes attention does not change the frequencies.
        row(if plan.method.is_some() { "frequencies in force" } else { "in force" }, self.view);
        views.iter().for_each(|view| row(&view.name, view));
        let title = format!(
            "Disturbance of the angles trained over {trained} tokens, in nats ({INTERVALS} intervals)"
        );
        section(out, Some(&title), &methods)?;
        for (method, reason) in missing {
            writeln!(out, "{method} is not shown: {reason}")?;
        }
        writeln!(out, "\nDifferences in llama.cpp:")?;
        for difference in plan.unlike_llama_cpp(self.flags) {
            writeln!(out, "- {difference}")?;
        }
        Ok(())
    }

    fn json(&self, out: &mut dyn Write) -> Result<(), Error> {
        let View { plan, length, table, .. } = self.view;
        let [g, h] = plan.formulas();
        // Without a layer that rotates by the plan, there is nothing to show of pairs and methods.
        let planned = layers::planned(self.model.config());
        let (views, missing) = if planned > 0 { self.others() } else { Default::default() };
        let disturbance = |of: &[f64]| (planned > 0).then(|| mean(of));
        let missing: Vec<_> = missing
            .iter()
            .map(|(method, reason)| json!({"method": method.name, "reason": reason.to_string()}))
            .collect();
        let methods: Vec<_> = views
            .iter()
            .map(|view| {
                json!({
                    "method": view.name,
                    "disturbance_code": mean(&view.code),
                    "disturbance_paper": mean(&view.paper),
                })
            })
            .collect();
        let kinds: Vec<_> = layers::kinds(self.model.config())
            .into_iter()
            .map(|Kind { count, computes, rotation }| {
                json!({"count": count, "computes": computes, "rotation": rotation})
            })
            .collect();
        let fates = self.baseline.frequency_changes(self.view);
        let pairs = if planned > 0 { table.inv_freq.len() } else { 0 };
        let pairs: Vec<_> = (0..pairs)
            .map(|i| {
                json!({
                    "inv_freq": table.inv_freq[i],
                    "trained_inv_freq": self.baseline.inv_freq[i],
                    "wavelength": TAU / table.inv_freq[i],
                    "ratio": self.view.ratios[i],
                    "fate": fates[i].name(),
                    "disturbance_code": self.view.code[i],
                    "disturbance_paper": self.view.paper[i],
                })
            })
            .collect();
        let unlike = if planned > 0 { plan.unlike_llama_cpp(self.flags) } else { Vec::new() };
        let object = json!({
            "plan": plan.to_string(),
            "values": plan.values(),
            "warnings": plan.warnings,
            "method": plan.effective_scaling().name,
            "length": length,
            "trained": self.baseline.context,
            "attention_scale": table.scale,
            "g": g,
            "h": h,
            "distance": plan.method.as_ref().map(|method| method.distance_formula()),
            "disturbance_code": disturbance(&self.view.code),
            "disturbance_paper": disturbance(&self.view.paper),
            "pairs": pairs,
            "layers": kinds,
            "layers_by_plan": planned,
            "methods": methods,
            "methods_missing": missing,
            "unlike_llama_cpp": unlike,
        });
        writeln!(out, "{object:#}")?;
        Ok(())
    }

    /// Returns every method at this length, with the factor that it needs.
    fn others(&self) -> (Vec<View>, Vec<(Method, rope_cpu::rope::Error)>) {
        views(self.model, self.baseline, &every_method(), self.view.length)
    }
}
