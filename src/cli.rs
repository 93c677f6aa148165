//! The command line: what may be typed, and which command runs.

mod args;
mod argv;
pub mod bench;
mod error;
mod escapes;
pub mod inspect;
mod llama_bench;
mod llama_cli;
mod log;
pub mod machine;
mod methods;
pub mod passkey;
pub mod perplexity;
mod plot;
mod resources;
pub mod rope;
pub mod run;
pub mod sweep;
mod table;
mod text;
pub mod tokenize;

use std::{ffi::OsString, fmt, io::Write, process::ExitCode};

use clap::{CommandFactory, Parser, Subcommand};
use error::Error;

/// Runs GGUF language models on the CPU, past the context they were trained for
#[derive(Debug, Parser)]
#[command(
    name = "rope-cpu",
    version,
    term_width = 79,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = EXAMPLES,
)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Subcommands>,
    #[command(flatten)]
    run: run::Args,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Write text with a model, or converse with it (the default)
    #[command(after_help = EXAMPLES)]
    Run(Box<run::Args>),

    /// Measure how fast a model runs, as llama-bench does
    Bench(Box<bench::Args>),
    /// Measure how speed falls with depth, as llama-sweep-bench does
    Sweep(Box<sweep::Args>),
    Perplexity(Box<perplexity::Args>),
    Passkey(Box<passkey::Args>),
    /// Explain and compare RoPE methods
    Rope(Box<rope::Args>),
    /// Show what is in a model file
    Inspect(inspect::InspectArgs),
    Machine(machine::Args),
    Tokenize(tokenize::TokenizeArgs),
    Detokenize(tokenize::DetokenizeArgs),
}

const EXAMPLES: &str = "\
Examples:
  rope-cpu -m model.gguf
      converse with the model
  rope-cpu -m model.gguf --ctx 16384 --rope-freq-scale 0.5 -f long.txt
      continue a text twice as long as the model was trained for
  rope-cpu -m model.gguf -cnv -st -p 'Why is the sky blue?'
      one answer
  rope-cpu -m model.gguf --ctx 32768 -ctk q8_0 -ctv q8_0 --dry-run
      show the memory that this would take, and stop";

/// What may be typed, for those who read it rather than run it.
pub fn command() -> clap::Command {
    let mut command = CommandLine::command();
    command.build();
    command
}

/// Runs what was typed; `argv` starts with the program's name.
pub fn run(argv: Vec<OsString>) -> ExitCode {
    let typed = match argv::normalize(&command(), argv) {
        Ok(typed) => typed,
        Err(error) => return error.report(),
    };
    let line = match CommandLine::try_parse_from(typed.argv) {
        Ok(line) => line,
        Err(message) => {
            // Help is asked for and goes to stdout; a reader that left early is no matter.
            let _ = message.print();
            return ExitCode::from(message.exit_code().clamp(0, 255) as u8);
        }
    };
    for text in &typed.notes {
        note(format_args!("note: {text}"));
    }
    let result = match line.command {
        None => run::run(&line.run),
        Some(Subcommands::Run(args)) => run::run(&args),
        Some(Subcommands::Bench(args)) => bench::run(&args),
        Some(Subcommands::Sweep(args)) => sweep::run(&args),
        Some(Subcommands::Perplexity(args)) => {
            perplexity::run(&args, &mut std::io::stdout().lock())
        }
        Some(Subcommands::Passkey(args)) => passkey::run(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Rope(args)) => rope::run(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Inspect(args)) => {
            inspect::run(&args, &mut std::io::stdout().lock()).map_err(Error::from)
        }
        Some(Subcommands::Machine(args)) => machine::run(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Tokenize(args)) => {
            tokenize::tokenize(&args, &mut std::io::stdout().lock()).map_err(Error::from)
        }
        Some(Subcommands::Detokenize(args)) => {
            tokenize::detokenize(&args, &mut std::io::stdout().lock()).map_err(Error::from)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

/// A line on stderr. Where that cannot be written to, there is nobody to tell.
fn note(text: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
