//! The command line: what may be typed, and which command runs.

mod args;
mod argv;
pub mod bench;
mod environment;
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
pub mod quantize;
mod resources;
pub mod rope;
pub mod run;
pub mod shell;
pub mod sweep;
mod table;
mod text;
mod time;
pub mod tokenize;
mod wording;

use std::{
    env,
    ffi::OsString,
    fmt,
    io::{IsTerminal, Write},
    process::ExitCode,
    slice,
};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use error::Error;
use indicatif::{ProgressBar, ProgressStyle};

use rope_cpu::{platform::interrupt, rope::Plan};

/// Runs GGUF language models on the CPU, past the context they were trained for
#[derive(Debug, Parser)]
#[command(
    name = "rope-cpu",
    version,
    term_width = 79,
    args_conflicts_with_subcommands = true,
    args_override_self = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = EXAMPLES,
    after_long_help = format!("{EXAMPLES}\n\n{}", environment::HELP),
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
    #[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", environment::HELP))]
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
    Quantize(quantize::Args),
    Machine(machine::Args),
    Tokenize(tokenize::TokenizeArgs),
    Detokenize(tokenize::DetokenizeArgs),
    /// Print what a shell needs to complete command lines of rope-cpu
    Completions(shell::CompletionsArgs),
    /// Print the manual page
    Man(shell::ManArgs),
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
    let mut command = environment::described(CommandLine::command());
    command.build();
    command
}

/// Reads what was typed, and the environment variables that add to it.
fn parse(command: &clap::Command, argv: &[OsString]) -> Result<CommandLine, ExitCode> {
    let read = |argv: &[OsString]| {
        let matches = command.clone().try_get_matches_from(argv);
        let line = matches.and_then(|matches| CommandLine::from_arg_matches(&matches));
        line.map_err(|error| wording::reworded(error, argv))
    };
    let variables = environment::variables(command, argv, |name| env::var_os(name));
    let variables = variables.map_err(|error| error.report())?;
    let with = |variables: &[_]| read(&environment::extended(command, argv, variables));
    let line = with(&variables).map_err(|together| {
        // What was typed is wrong, or else a variable, or two that do not go together.
        if let Err(message) = with(&[]) {
            // Help is asked for and goes to stdout; a reader that left early is no matter.
            let _ = message.print();
            return ExitCode::from(message.exit_code().clamp(0, 255) as u8);
        }
        let alone =
            variables.iter().find_map(|v| Some((v.name.clone(), with(slice::from_ref(v)).err()?)));
        let (names, message) = alone.unwrap_or_else(|| {
            let names: Vec<_> = variables.iter().map(|v| &v.name[..]).collect();
            (names.join(", "), together)
        });
        let reason = wording::first_line(&message);
        Error::usage(format_args!("environment variable {names}: {reason}")).report()
    })?;
    environment::keep(variables);
    Ok(line)
}

/// Runs what was typed; `argv` starts with the program's name.
pub fn run(argv: Vec<OsString>) -> ExitCode {
    let command = command();
    let typed = match argv::normalize(&command, argv) {
        Ok(typed) => typed,
        Err(error) => return error.report(),
    };
    let line = match parse(&command, &typed.argv) {
        Ok(line) => line,
        Err(code) => return code,
    };
    let unread = environment::notes(&command, &typed.argv, env::vars_os());
    for text in typed.notes.iter().chain(&unread) {
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
        Some(Subcommands::Quantize(args)) => quantize::run(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Machine(args)) => machine::run(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Tokenize(args)) => {
            tokenize::tokenize(&args, &mut std::io::stdout().lock()).map_err(Error::from)
        }
        Some(Subcommands::Completions(args)) => {
            shell::completions(&args, &mut std::io::stdout().lock())
        }
        Some(Subcommands::Man(args)) => shell::man(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Detokenize(args)) => {
            tokenize::detokenize(&args, &mut std::io::stdout().lock()).map_err(Error::from)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

/// From now on Ctrl-C and SIGTERM stop what is being computed.
///
/// # Errors
/// Where the system refuses a handler.
fn handle_interrupts() -> Result<(), Error> {
    interrupt::install().map_err(|e| Error::failed(format_args!("cannot handle Ctrl-C: {e}")))
}

/// A line on stderr. Where that cannot be written to, there is nobody to tell.
fn note(text: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// What is to be feared of a plan, on stderr.
fn warn(plan: &Plan) {
    for warning in &plan.warnings {
        note(format_args!("warning: {warning}"));
    }
}

/// A bar on stderr for work of such a length. Where that is no terminal, it is not shown.
fn bar(length: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent} %, {eta} left");
    let bar = ProgressBar::new(length);
    if let Ok(style) = style { bar.with_style(style) } else { bar }
}
