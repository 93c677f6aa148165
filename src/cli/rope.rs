//! `rope-cpu rope`: the effect of RoPE methods on a model's frequencies, as text, numbers and
//! drawings.

mod advise;
mod attention;
mod axes;
mod bake;
mod baseline;
mod compare;
mod disturbance;
mod explain;
mod layers;
mod plot;
mod scoring;
mod tune;

use std::{io::Write, path::Path};

use clap::Subcommand;

use super::{
    args::{self, ModelArgs},
    error::Error,
    load,
    methods::Method,
    text,
};
use rope_cpu::{
    Token,
    model::Model,
    rope::{self, Flags, METHODS, Sourced, short},
    runtime::trained,
    settings::Setting,
    tokenizer::{Ends, Special, Tokenizer},
};
use rope_cpu_lab::disturbance::POSITIONS_MAX;

use baseline::{Baseline, View};

/// The options of `rope`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Clone, Debug, Subcommand)]
enum Subcommands {
    /// Show the RoPE settings, their origins and effects on each pair
    Explain(Box<explain::Args>),
    /// Write a copy of a model with a scaling that llama.cpp applies
    Bake(Box<bake::Args>),
    /// Compare methods for a model at one or more lengths
    Compare(Box<compare::Args>),
    /// Measure how much a longer context disturbs trained angles
    Disturbance(Box<disturbance::Args>),
    Advise(Box<advise::Args>),
    Attention(Box<attention::Args>),
    Tune(Box<tune::Args>),
}

/// Runs the command.
///
/// # Errors
/// On invalid arguments or an invalid file, or if the output cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    match &args.command {
        Subcommands::Explain(args) => explain::run(args, out),
        Subcommands::Bake(args) => bake::run(args, out),
        Subcommands::Compare(args) => compare::run(args, out),
        Subcommands::Disturbance(args) => disturbance::run(args, out),
        Subcommands::Advise(args) => advise::run(args, out),
        Subcommands::Attention(args) => attention::run(args, out),
        Subcommands::Tune(args) => tune::run(args, out),
    }
}

/// Returns the first `count` tokens of the text at `path`.
///
/// # Errors
/// If the text cannot be read, or has fewer tokens.
fn first_tokens(path: &Path, tokenizer: &Tokenizer<'_>, count: usize) -> Result<Vec<Token>, Error> {
    let mut tokens = tokenizer.encode(text::input(path)?, Special::AsText, Ends::Add);
    if tokens.len() < count {
        return Err(Error::usage(format_args!(
            "{} has {} tokens, and {count} are needed: give a longer text, or a smaller --ctx",
            text::name(path),
            tokens.len()
        )));
    }
    tokens.truncate(count);
    Ok(tokens)
}

/// Resolves the plan for a context of `length` tokens, by default the trained length.
fn resolve(model: &Model, flags: &Flags, length: Option<usize>) -> Result<rope::Plan, rope::Error> {
    let asked = length.map(|length| Sourced::setting(length, Setting::CONTEXT));
    model.rope_plan(flags, asked.unwrap_or_else(|| trained(model)))
}

/// Returns the methods that apply at a length, and the errors of those that do not.
fn views(
    model: &Model,
    baseline: &Baseline,
    methods: &[Method],
    length: usize,
) -> (Vec<View>, Vec<(Method, rope::Error)>) {
    let (mut views, mut missing) = (Vec::new(), Vec::new());
    for method in methods {
        match resolve(model, &baseline.flags(&method.flags), Some(length)) {
            Ok(plan) => {
                views.push(View { name: method.name.clone(), ..baseline.view(plan, length) })
            }
            Err(error) => missing.push((method.clone(), error)),
        }
    }
    (views, missing)
}

/// Returns every method that acts on frequencies, with the factor that a length needs.
fn every_method() -> Vec<Method> {
    let acting = METHODS.iter().copied().filter(|scaling| scaling.acts_on_frequencies());
    acting.map(Method::from).collect()
}

/// Checks that a method given by `flag` changes frequencies.
///
/// # Errors
/// If it changes attention instead.
fn acts_on_frequencies(method: &Method, flag: &str) -> Result<(), Error> {
    match method.flags.scaling() {
        Some(scaling) if !scaling.acts_on_frequencies() => Err(Error::usage(format_args!(
            "{flag} {method}: the method changes attention and no angles, so there is nothing to show: \
             evaluate it with rope-cpu passkey or rope-cpu perplexity"
        ))),
        _ => Ok(()),
    }
}

/// Returns the baseline of a model's own settings, with angles counted in `intervals`.
fn own_baseline(model: &Model, intervals: usize) -> Result<Baseline, Error> {
    let plan = resolve(model, &Flags::default(), None);
    baseline(&plan.map_err(Error::usage)?, intervals)
}

/// Returns the baseline of a plan's model as trained, with angles counted in `intervals`.
fn baseline(plan: &rope::Plan, intervals: usize) -> Result<Baseline, Error> {
    Baseline::new(plan, intervals).ok_or_else(|| {
        Error::usage(format_args!(
            "the trained context must be from 1 to {POSITIONS_MAX} to count angles, but is {}",
            plan.original_context
        ))
    })
}

/// Parses a length, up to the limit for counting angles.
fn length(text: &str) -> Result<usize, String> {
    match args::at_least_one(text)? {
        tokens if tokens <= POSITIONS_MAX => Ok(tokens),
        _ => Err(format!("must be at most {POSITIONS_MAX}")),
    }
}

/// Parses the number of intervals of the circle.
fn intervals(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 2..=65536) => Ok(count),
        Ok(_) => Err("must be from 2 to 65536".into()),
        Err(_) => Err("not a whole number".into()),
    }
}
