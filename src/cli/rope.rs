//! `rope-cpu rope`: what RoPE methods do to a model's frequencies, in words, numbers and drawings.

mod bake;
mod compare;
mod disturbance;
mod explain;
mod plot;

use std::io::Write;

use clap::Subcommand;

use super::{
    args::{self, ModelArgs, all_overrides},
    error::Error,
    methods::Method,
};
use rope_cpu::{
    eval::rope::{Baseline, POSITIONS_MAX, View},
    gguf::{File, Gguf},
    model::Model,
    rope::{self, Flags, Scaling, Sourced, short},
};

/// The options of `rope`.
#[derive(Clone, Debug, clap::Args)]
#[command(subcommand_value_name = "WHAT", subcommand_help_heading = "What")]
pub struct Args {
    #[command(subcommand)]
    #[allow(missing_docs, reason = "see the type: a comment here would be help text")]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Say what is in force, why, and what it does to each pair of dimensions
    Explain(Box<explain::Args>),
    /// Write a copy of a model that llama.cpp runs with a scaling
    Bake(Box<bake::Args>),
    /// Show methods side by side for a model and some lengths
    Compare(Box<compare::Args>),
    /// Measure how much a longer context disturbs trained angles
    Disturbance(Box<disturbance::Args>),
}

/// Runs the command.
///
/// # Errors
/// Bad usage or a bad file, or output that is not taken.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    match &args.what {
        What::Explain(args) => explain::run(args, out),
        What::Bake(args) => bake::run(args, out),
        What::Compare(args) => compare::run(args, out),
        What::Disturbance(args) => disturbance::run(args, out),
    }
}

/// A model, open to be looked at.
struct Subject<'a> {
    gguf: &'a Gguf<'a>,
    model: &'a Model<'a>,
}

/// Opens a model and hands it to `look`.
fn open(args: &ModelArgs, look: impl FnOnce(&Subject) -> Result<(), Error>) -> Result<(), Error> {
    let file = File::open(args.file()?).map_err(Error::usage)?;
    let overrides = all_overrides(&args.override_kv);
    let gguf = file.parse(&overrides).map_err(Error::usage)?;
    let model = Model::load(&gguf).map_err(|e| args.named(e))?;
    look(&Subject { gguf: &gguf, model: &model })
}

impl Subject<'_> {
    /// What is in force for a context of this length, or else of the trained one.
    fn resolve(&self, flags: &Flags, length: Option<usize>) -> Result<rope::Plan, rope::Error> {
        let config = &self.model.config;
        let context = match length {
            Some(length) => Sourced::flag(length, format!("--ctx {length}")),
            None => {
                let key = format!("{}.context_length", config.architecture.name);
                Sourced::key(config.context_train, self.gguf.metadata().origin(&key))
            }
        };
        args::resolve(flags, self.gguf, self.model, context)
    }

    /// The model as its file says, its angles counted in so many intervals.
    fn baseline(&self, intervals: usize) -> Result<Baseline, Error> {
        let plan = self.resolve(&Flags::default(), None);
        baseline(&plan.map_err(Error::usage)?, intervals)
    }

    /// Methods at a length, and why others are missing.
    fn views(
        &self,
        baseline: &Baseline,
        methods: &[Method],
        length: usize,
    ) -> (Vec<View>, Vec<(Method, rope::Error)>) {
        let (mut views, mut missing) = (Vec::new(), Vec::new());
        for method in methods {
            match self.resolve(&baseline.flags(&method.flags), Some(length)) {
                Ok(plan) => {
                    views.push(View { name: method.name.clone(), ..baseline.view(plan, length) })
                }
                Err(error) => missing.push((method.clone(), error)),
            }
        }
        (views, missing)
    }
}

/// Every method that acts on frequencies, by just what a length needs.
fn every_method() -> Vec<Method> {
    let acting = Scaling::ALL.into_iter().filter(|scaling| scaling.acts_on_frequencies());
    acting.map(Method::from).collect()
}

/// Checks that a method of `flag` has frequencies to look at.
///
/// # Errors
/// If it acts on attention instead.
fn acts_on_frequencies(method: &Method, flag: &str) -> Result<(), Error> {
    match method.flags.scaling {
        Some(scaling) if !scaling.acts_on_frequencies() => Err(Error::usage(format_args!(
            "{flag} {method}: it acts on attention and leaves all angles as they are, so that there is \
             nothing to show; rope-cpu passkey and perplexity compare what models make of it"
        ))),
        _ => Ok(()),
    }
}

/// The model that a plan is for, as trained, its angles counted in so many intervals.
fn baseline(plan: &rope::Plan, intervals: usize) -> Result<Baseline, Error> {
    Baseline::new(plan, intervals).ok_or_else(|| {
        Error::usage(format_args!(
            "the angles of 1 to {POSITIONS_MAX} positions can be counted: the model was trained for {}",
            plan.original_context
        ))
    })
}

/// A length whose angles can be counted.
fn length(text: &str) -> Result<usize, String> {
    match args::at_least_one(text)? {
        tokens if tokens <= POSITIONS_MAX => Ok(tokens),
        _ => Err(format!("at most {POSITIONS_MAX} are possible")),
    }
}

/// A number of intervals that a circle can be cut into.
fn intervals(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 2..=65536) => Ok(count),
        Ok(_) => Err("choose from 2 to 65536".into()),
        Err(_) => Err("not a whole number".into()),
    }
}
