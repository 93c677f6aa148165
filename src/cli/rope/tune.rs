//! `rope-cpu rope tune`: the settings of one RoPE method that predict a user's text best.

use std::{io::Write, ops::ControlFlow, slice, time::Instant};

use serde_json::json;

use super::{
    Error, Method, ModelArgs,
    axes::{axes, settings},
    first_tokens, load,
    scoring::{Measured, Objective, SIGNIFICANT, ScoringArgs, Text, typed},
};
use crate::cli::{
    args::{AdapterArgs, EngineArgs, MemoryArgs, at_least_one},
    flags,
    log::Log,
    method_runs::{MethodRun, method_runs},
    methods::Methods,
    note, resources,
    table::{section, table},
    warn,
};
use rope_cpu::{
    model::Model,
    rope::{self, Flags, Plan, SCALING},
};
use rope_cpu_lab::search::{Trial, search};

/// Search the settings of a RoPE method that predict your text best
///
/// Scores the start of the text, as long as the context, with one setting changed at a time: the
/// factor, the method's own numbers, a factor of the attention scale, and the base. It keeps what
/// lowers the perplexity of the second half, and halves its steps when nothing does. The gain is
/// then measured on the next part of the text, which has no part in the search. With --objective
/// needles, it lowers the perplexity of words that the start of the text hides and its end asks for,
/// instead of the text's. With --output every trial is saved, and the same command resumes.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("file", |file| file.help("Text of two contexts: to search on, and held out; -: stdin")))]
#[command(mut_arg("budget", |minutes| minutes.default_value("60")))]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    adapters: AdapterArgs,

    #[command(flatten)]
    scoring: ScoringArgs,

    /// Method to start from: METHOD[:FLAG=VALUE]...
    #[arg(long, value_name = "METHOD", default_value = "yarn", help_heading = "Measurement")]
    method: Method,

    /// Score that the search lowers
    #[arg(long, value_enum, value_name = "WHAT", default_value = "perplexity")]
    #[arg(help_heading = "Measurement")]
    objective: Objective,

    /// Maximum number of trials
    #[arg(long, value_name = "N", default_value = "60", value_parser = at_least_one)]
    #[arg(help_heading = "Measurement")]
    trials: usize,

    #[command(flatten)]
    memory: MemoryArgs,
    #[command(flatten)]
    machine: EngineArgs,
}

/// A search in progress.
struct Search<'s> {
    args: &'s Args,
    model: &'s Model,
    start: &'s MethodRun,
    text: Text<'s>,
    log: Log<Measured>,
    /// The bytes that determine the logits of each trial, and its index in the log.
    tried: Vec<(Vec<u8>, usize)>,
    began: Instant,
}

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, without enough memory, or if the output cannot be
/// written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let (length, method) = (args.memory.context, &args.method);
    if length == 0 {
        return Err(Error::usage("give the length that you need with --ctx"));
    }
    let model = load::adapted(&args.model, &args.adapters)?;
    let memory = &args.memory;
    let defaults = resources::settings(memory, &args.machine, Flags::default());
    let runs = method_runs(slice::from_ref(method), &[], &defaults, &model)?;
    let Some(start) = runs.first() else { return Ok(()) };
    if resources::stops([&start.plan], memory)? {
        return Ok(());
    }
    let tokenizer = model.tokenizer().map_err(Error::usage)?;
    let mut tokens = first_tokens(&args.scoring.file, tokenizer, length.saturating_mul(2))?;
    let held_out = tokens.split_off(length);
    let text = |tokens, seed| Text::with_objective(&model, tokens, args.objective, seed);
    let (text, held_out) = (text(tokens, 0)?, text(held_out, 1)?);
    let log = Log::open(args.scoring.output.as_deref(), &args.model, &args.adapters, memory)?;
    warn(&start.plan.rope);

    let axes = axes(&start.plan.rope, &method.flags);
    let (tried, began) = (Vec::new(), Instant::now());
    let mut tuning = Search { args, model: &model, start, text, log, tried, began };
    let steps: Vec<_> = axes.iter().map(|(_, axis)| *axis).collect();
    let best =
        search(&steps, &mut |values| tuning.measure(settings(&method.flags, &axes, values)))?;
    let best = named(settings(&method.flags, &axes, &best), method);
    let best_plan = tuning.plan(&best)?;
    let both = [(method, &start.plan.rope), (&best, &best_plan)];
    let searched = both.map(|(_, plan)| tuning.text.known(&tuning.log, &[flags::line(plan)]));
    let mut unseen = Vec::new();
    for (method, plan) in both {
        unseen.push(score(&held_out, &mut tuning.log, method, plan, tuning.start)?);
    }
    let ([Some(start), Some(best)], &[start_unseen, best_unseen]) = (searched, &unseen[..]) else {
        return Ok(());
    };
    let measured = |index: usize| &tuning.log.entries[index];
    let found = Found {
        objective: args.objective,
        start: [measured(start), measured(start_unseen)],
        best: [measured(best), measured(best_unseen)],
        trials: tuning.tried.iter().map(|(_, index)| measured(*index)).collect(),
    };
    match args.scoring.json {
        true => writeln!(out, "{:#}", found.object())?,
        false => found.show(best_plan.baked().is_ok(), out)?,
    }
    Ok(())
}

impl Search<'_> {
    /// Resolves the plan of a method in the context of the first one.
    fn plan(&self, method: &Method) -> Result<Plan, Error> {
        let context = self.start.plan.context.value;
        Methods::Listed(slice::from_ref(method)).plan(method, self.model, context)
    }

    /// Returns the perplexity of the text with some settings.
    fn measure(&mut self, flags: Flags) -> Result<Trial, Error> {
        let method = named(flags, &self.args.method);
        // Values out of range are not tried.
        let Ok(plan) = self.plan(&method) else { return Ok(Trial::Refused) };
        let identity = plan.identity_up_to(self.start.length);
        if let Some((_, index)) = self.tried.iter().find(|(known, _)| *known == identity) {
            return Ok(Trial::Measured(self.log.entries[*index].perplexity()));
        }
        let known = self.text.known(&self.log, &[flags::line(&plan)]).is_some();
        let (number, trials) = (self.tried.len() + 1, self.args.trials);
        if number > trials
            || !known && number > 1 && self.began.elapsed() > self.args.scoring.budget()
        {
            return Ok(Trial::Ended);
        }
        let index = score(&self.text, &mut self.log, &method, &plan, self.start)?;
        let perplexity = self.log.entries[index].perplexity();
        note(format_args!("{number}/{trials}: {method}: PPL {perplexity:.4}"));
        self.tried.push((identity, index));
        Ok(Trial::Measured(perplexity))
    }
}

/// Scores a text with a method, unless its result is in the log. Returns the index of the result there.
fn score(
    text: &Text<'_>,
    log: &mut Log<Measured>,
    method: &Method,
    plan: &Plan,
    start: &MethodRun,
) -> Result<usize, Error> {
    if let Some(known) = text.known(log, &[flags::line(plan)]) {
        return Ok(known);
    }
    let read = &mut |_| ControlFlow::Continue(());
    if let Some(measured) = text.score(&method.name, plan, start.plan.options(), read)? {
        log.add(measured)?;
    }
    Ok(log.entries.len() - 1)
}

/// Returns the method of these settings, with all of them in its name. The settings of `start` keep the
/// name that the user gave.
fn named(flags: Flags, start: &Method) -> Method {
    if flags == start.flags {
        return start.clone();
    }
    let scaling = flags.values.word(&SCALING).unwrap_or("none");
    let given = rope::parameters().filter(|one| one.setting != SCALING.setting);
    let given = given.filter_map(|parameter| {
        let value = flags.values.get(parameter)?;
        Some(format!(":{}={value}", flags::long(parameter.setting.0)))
    });
    Method { name: format!("{scaling}{}", given.collect::<String>()), flags }
}

/// The result of a search: on the searched part of the text, then on the part held out.
struct Found<'m> {
    objective: Objective,
    start: [&'m Measured; 2],
    best: [&'m Measured; 2],
    trials: Vec<&'m Measured>,
}

impl Found<'_> {
    /// Returns by how much the perplexity of the part held out is higher than with the first settings.
    fn change(&self) -> f64 {
        self.best[1].perplexity() / self.start[1].perplexity() - 1.0
    }

    /// Returns the probability that this change is by chance.
    fn probability(&self) -> f64 {
        self.best[1].probability(self.start[1])
    }

    /// Returns whether the part held out shows a gain, and the flags to use.
    fn advice(&self) -> (bool, String) {
        let gain = self.change() < 0.0 && self.probability() < SIGNIFICANT;
        let [used, _] = if gain { self.best } else { self.start };
        (gain, typed(&used.method, used.length))
    }

    fn object(&self) -> serde_json::Value {
        let result = |[searched, held_out]: [&Measured; 2]| {
            json!({
                "method": searched.method,
                "perplexity": searched.perplexity(),
                "perplexity_held_out": held_out.perplexity(),
            })
        };
        let trials = self.trials.iter().map(|trial| {
            json!({
                "method": trial.method,
                "perplexity": trial.perplexity(),
                "seconds": trial.seconds,
            })
        });
        let (gain, flags) = self.advice();
        json!({
            "objective": self.objective.name(),
            "start": result(self.start),
            "best": result(self.best),
            "change_held_out": self.change(),
            "probability": self.probability(),
            "gain": gain,
            "flags": flags,
            "trials": trials.collect::<Vec<_>>(),
        })
    }

    /// Prints both results, and the flags of the better one. `bakes` tells whether a file can hold the
    /// settings.
    fn show(&self, bakes: bool, out: &mut dyn Write) -> std::io::Result<()> {
        let of = match self.objective {
            Objective::Perplexity => "",
            Objective::Needles => " of needles",
        };
        let [searched, held_out] = ["searched", "held out"].map(|part| format!("PPL{of}, {part}"));
        let mut shown = table(&["method", &searched, &held_out], &[1, 2]);
        let mut results = vec![self.start];
        results.extend((self.best[0].method != self.start[0].method).then_some(self.best));
        for [searched, held_out] in &results {
            let cells =
                [searched, held_out].map(|measured| format!("{:.4}", measured.perplexity()));
            shown.add_row([searched.method.clone()].into_iter().chain(cells));
        }
        section(out, None, &shown)?;
        let trials = self.trials.len();
        let (gain, flags) = self.advice();
        if results.len() == 1 {
            return writeln!(out, "\nNone of {trials} trials is better: keep {flags}");
        }
        writeln!(
            out,
            "\n{trials} trials. Held out, the perplexity{of} changes by {:+.2} % (probability of chance {:.4}).",
            100.0 * self.change(),
            self.probability()
        )?;
        if !gain {
            return writeln!(out, "No evidence of a gain: keep {flags}");
        }
        writeln!(out, "Use {flags}")?;
        if bakes {
            writeln!(out, "For llama.cpp: rope-cpu rope bake -m MODEL -o FILE {flags}")?;
        }
        Ok(())
    }
}
