//! The command line: parsing it and running its command.

mod args;
mod argv;
pub mod bench;
mod documents;
pub mod embed;
mod environment;
mod error;
mod escapes;
pub mod eval;
mod extension;
mod flags;
pub mod imatrix;
mod import;
pub mod inspect;
mod launch;
mod list;
mod llama;
mod load;
mod log;
pub mod machine;
mod method_runs;
mod methods;
mod names;
pub mod open;
mod opened;
mod pager;
pub mod passkey;
pub mod perplexity;
mod plot;
mod progress;
mod ps;
mod pull;
pub mod quantize;
pub mod read;
mod resources;
mod rm;
pub mod rope;
pub mod run;
mod sampling;
pub mod serve;
mod shelf;
pub mod shell;
pub mod sweep;
mod table;
mod text;
mod time;
pub mod tokenize;
mod unicode;
mod wording;

use std::{
    env,
    ffi::OsString,
    fmt,
    io::{IsTerminal, Write},
    path::Path,
    process::ExitCode,
    slice,
    sync::OnceLock,
};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};
use error::Error;
use indicatif::{ProgressBar, ProgressStyle};

use rope_cpu::{
    platform::{self, interrupt},
    rope::Plan,
    shelf::Entry,
};

/// Runs GGUF language models on the CPU, past the context they were trained for
#[derive(Debug, Parser)]
#[command(
    name = "rope-cpu",
    bin_name = "rope-cpu",
    version = env!("BUILD_VERSION"),
    term_width = 79,
    args_conflicts_with_subcommands = true,
    args_override_self = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = EXAMPLES,
    after_long_help = run_details(),
)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Subcommands>,
    #[command(flatten)]
    run: run::Args,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Generate text with a model, or converse with it (the default)
    #[command(after_help = EXAMPLES, after_long_help = run_details())]
    Run(Box<run::Args>),
    Serve(Box<serve::Args>),
    /// Converse with a model in the browser
    ///
    /// Serves the model at a free port of this machine, as `rope-cpu serve` does, and opens the
    /// page there.
    #[command(mut_arg("port", |port| port.default_value("0")))]
    #[command(mut_arg("log_verbosity", |level| level.default_value("2")))]
    Open(Box<serve::Args>),
    Launch(Box<launch::Args>),
    Read(Box<read::Args>),

    Pull(pull::Args),
    List(list::ListArgs),
    Show(list::ShowArgs),
    Rm(rm::RmArgs),
    Cp(rm::CpArgs),
    Import(import::Args),
    Ps(ps::PsArgs),
    Stop(ps::StopArgs),

    Embed(Box<embed::Args>),
    /// Measure the speed of a model, as llama-bench does
    Bench(Box<bench::Args>),
    /// Measure speed at increasing depths, as llama-sweep-bench does
    Sweep(Box<sweep::Args>),
    Perplexity(Box<perplexity::Args>),
    Passkey(Box<passkey::Args>),
    Eval(Box<eval::Args>),
    /// Explain and compare RoPE methods
    Rope(Box<rope::Args>),
    /// Show the contents of a model file
    Inspect(inspect::InspectArgs),
    Quantize(quantize::Args),
    Imatrix(Box<imatrix::Args>),
    Machine(machine::Args),
    Tokenize(tokenize::TokenizeArgs),
    Detokenize(tokenize::DetokenizeArgs),
    /// Print a completion script for a shell
    Completions(shell::CompletionsArgs),
    /// Print words for completion scripts
    #[command(hide = true)]
    Complete(shell::CompleteArgs),
    /// Print the manual page
    Man(shell::ManArgs),
}

const EXAMPLES: &str = "\
Examples:
  rope-cpu -m model.gguf
      converse with the model
  rope-cpu -m model.gguf -st -p 'Why is the sky blue?'
      one answer
  rope-cpu -m model.gguf --ctx 16384 --rope-freq-scale 0.5 -no-cnv -f long.txt
      continue a text twice as long as the model was trained for
  rope-cpu -m model.gguf --ctx 32768 -ctk q8_0 -ctv q8_0 --dry-run
      show the memory that this needs, and exit";

/// Text printed for a command line without arguments.
const START: &str = "\
rope-cpu runs GGUF language models on the CPU, past the context they were trained for.

  rope-cpu -hf bartowski/Llama-3.2-1B-Instruct-GGUF     fetch a model once; converse with it
  rope-cpu run Llama-3.2-1B                             converse with a model on the disk, by name
  rope-cpu -m model.gguf                                converse with a model in a file
  rope-cpu -m model.gguf -st -p 'Why is the sky blue?'  one answer
  rope-cpu -m model.gguf -c 32k --rope-scaling auto     a longer context than the trained one
  rope-cpu open -m model.gguf                           converse in the browser
  rope-cpu serve -m model.gguf                          serve OpenAI's interface over HTTP

rope-cpu -h lists the options and all commands; rope-cpu help COMMAND explains one.";

/// Returns the sections at the end of the long help of `run`.
fn run_details() -> String {
    let commands = run::command_list().replace('\n', "\n  ");
    format!("{EXAMPLES}\n\nCommands in a conversation:\n  {commands}\n\n{}", environment::HELP)
}

/// Returns the definition of the command line, with the names of options in its help.
fn definition() -> clap::Command {
    let shown = |command: &str, option| environment::shown(command, names::shown(option));
    names::change(CommandLine::command(), &shown)
}

/// Returns the definition of the command line, for completions and the manual.
pub fn command() -> clap::Command {
    let mut command = definition();
    command.build();
    command
}

/// Parses the command line together with the environment variables that add to it.
fn parse(command: &clap::Command, argv: &[OsString]) -> Result<CommandLine, ExitCode> {
    let parser = names::for_clap(definition());
    let read = |argv: &[OsString]| {
        let matches = parser.clone().try_get_matches_from(argv);
        let line = matches.and_then(|matches| CommandLine::from_arg_matches(&matches));
        line.map_err(|error| wording::reworded(error, argv))
    };
    let variables = environment::variables(command, argv, |name| env::var_os(name));
    let variables = variables.map_err(|error| error.report())?;
    let with = |variables: &[_]| read(&environment::extended(command, argv, variables));
    let line = with(&variables).map_err(|together| {
        // Finds out whether the arguments alone are wrong, or a variable.
        if let Err(message) = with(&[]) {
            if argv.len() <= 1 {
                note(START);
                list::suggest();
                return ExitCode::from(2);
            }
            match message.kind() {
                ErrorKind::DisplayHelp => pager::print(&message.render().to_string()),
                // stdout may be closed early.
                _ => _ = message.print(),
            }
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
    let named = environment::extended(command, argv, &variables);
    environment::store(variables);
    match shelf::with_paths(command, &named).map_err(|error| error.report())? {
        None => Ok(line),
        // An option of a preset may have an invalid value.
        Some(named) => read(&named.argv()).map_err(|_| {
            let fails = |argv: &[OsString]| Some(wording::first_line(&read(argv).err()?));
            Error::usage(named.explain(fails)).report()
        }),
    }
}

/// The command line of this process, in clap's form.
static TYPED: OnceLock<Vec<OsString>> = OnceLock::new();

/// Returns the options of a server for a model of the shelf.
///
/// # Errors
/// If an option of a preset is invalid, with its place.
fn serve_args_of(entry: &Entry) -> Result<serve::Args, Error> {
    match line_of(entry)?.command {
        Some(Subcommands::Serve(args) | Subcommands::Open(args)) => Ok(*args),
        _ => Err(Error::usage("only serve and open have models of the shelf")),
    }
}

/// Returns the options of `run` for another model of the shelf.
///
/// # Errors
/// If an option of a preset is invalid, with its place.
fn run_args_of(entry: &Entry) -> Result<run::Args, Error> {
    match line_of(entry)? {
        CommandLine { command: Some(Subcommands::Run(args)), .. } => Ok(*args),
        CommandLine { run, .. } => Ok(run),
    }
}

/// Returns the long names of the typed options.
fn typed_options() -> Vec<String> {
    let typed = TYPED.get().into_iter().flatten().take_while(|arg| *arg != "--");
    let names = typed.filter_map(|arg| arg.to_str()?.strip_prefix("--"));
    names.map(|name| name.split('=').next().unwrap_or(name).into()).collect()
}

/// Returns the model of the shelf that the command line names, if any.
fn typed_entry() -> Option<Entry> {
    shelf::entry_of(TYPED.get()?)
}

/// Returns the command line for a model of the shelf. It has the typed options, the options of
/// environment variables, and the options of the model's presets.
///
/// # Errors
/// If an option of a preset is invalid, with its place.
fn line_of(entry: &Entry) -> Result<CommandLine, Error> {
    let command = command();
    let typed = TYPED.get().map(Vec::as_slice).unwrap_or_default();
    let typed = shelf::with_model(&command, typed, entry);
    let variables = environment::variables(&command, &typed, |name| env::var_os(name))?;
    let argv = environment::extended(&command, &typed, &variables);
    let named = shelf::with_presets(&command, &argv, entry)?;
    let parser = names::for_clap(definition());
    let read = |argv: &[OsString]| {
        let matches = parser.clone().try_get_matches_from(argv);
        let line = matches.and_then(|matches| CommandLine::from_arg_matches(&matches));
        line.map_err(|error| wording::reworded(error, argv))
    };
    read(&named.argv()).map_err(|_| {
        Error::usage(named.explain(|argv| Some(wording::first_line(&read(argv).err()?))))
    })
}

/// Runs a command line; `argv` starts with the program's name.
pub fn run(argv: Vec<OsString>) -> ExitCode {
    platform::prepare_terminal();
    platform::report_file_size_limit();
    let command = command();
    let mut typed = match argv::normalize(&command, argv) {
        Ok(typed) => typed,
        Err(error) => return error.report(),
    };
    typed.argv = shelf::with_bare_name(&command, &typed.argv);
    TYPED.get_or_init(|| typed.argv.clone());
    let line = match parse(&command, &typed.argv) {
        Ok(line) => line,
        Err(code) => return code,
    };
    let log = match &line.command {
        Some(Subcommands::Serve(args) | Subcommands::Open(args)) => {
            Some((args.log.clone(), args.listen.verbose))
        }
        Some(Subcommands::Launch(args)) => Some((args.log(), args.serve.listen.verbose)),
        _ => None,
    };
    if let Some((log, verbose)) = log
        && let Err(error) = log.start(verbose)
    {
        return error.report();
    }
    let unread = environment::notes(&command, &typed.argv, env::vars_os());
    for text in typed.notes.iter().chain(&unread) {
        note(format_args!("note: {text}"));
    }
    let result = match line.command {
        None => run::run(&line.run),
        Some(Subcommands::Run(args)) => run::run(&args),
        Some(Subcommands::Serve(args)) => serve::run(&args),
        Some(Subcommands::Open(args)) => open::run(&args),
        Some(Subcommands::Launch(args)) => match launch::run(&args) {
            // An agent that a signal ended has no code.
            Ok(status) => return ExitCode::from(status.code().unwrap_or(1).clamp(0, 255) as u8),
            Err(error) => Err(error),
        },
        Some(Subcommands::Read(args)) => read::run(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Pull(args)) => pull::run(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::List(args)) => list::list(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Show(args)) => list::show(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Rm(args)) => rm::rm(&args),
        Some(Subcommands::Cp(args)) => rm::cp(&args),
        Some(Subcommands::Import(args)) => import::run(&args),
        Some(Subcommands::Ps(args)) => ps::ps(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Stop(args)) => ps::stop(&args),
        Some(Subcommands::Embed(args)) => embed::run(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Bench(args)) => bench::run(&args),
        Some(Subcommands::Sweep(args)) => sweep::run(&args),
        Some(Subcommands::Perplexity(args)) => {
            perplexity::run(&args, &mut std::io::stdout().lock())
        }
        Some(Subcommands::Passkey(args)) => passkey::run(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Eval(args)) => eval::run(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Rope(args)) => rope::run(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Inspect(args)) => inspect::run(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Quantize(args)) => quantize::run(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Imatrix(args)) => imatrix::run(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Machine(args)) => machine::run(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Tokenize(args)) => {
            tokenize::tokenize(&args, &mut std::io::stdout().lock())
        }
        Some(Subcommands::Completions(args)) => {
            shell::completions(&args, &mut std::io::stdout().lock())
        }
        Some(Subcommands::Complete(args)) => shell::complete(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Man(args)) => shell::man(&args, &mut std::io::stdout().lock()),
        Some(Subcommands::Detokenize(args)) => {
            tokenize::detokenize(&args, &mut std::io::stdout().lock())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

/// Installs handlers, so that Ctrl-C and SIGTERM stop the computation.
///
/// # Errors
/// If the system rejects a handler.
fn handle_interrupts() -> Result<(), Error> {
    interrupt::install().map_err(|e| Error::failed(format_args!("cannot handle Ctrl-C: {e}")))
}

/// Checks before the long computation that the output can be a file.
///
/// # Errors
/// If it is a directory, or its folder does not exist.
fn check_output(output: &Path) -> Result<(), Error> {
    let shown = output.display();
    if output.is_dir() {
        return Err(Error::usage(format_args!("{shown} is a directory: give the name of a file")));
    }
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.is_dir()) {
        Some(folder) => {
            let folder = folder.display();
            Err(Error::usage(format_args!("{shown}: the folder {folder} does not exist")))
        }
        None => Ok(()),
    }
}

/// Prints a line to stderr, or to the log. A failure is ignored, since it could only be reported
/// there.
fn note(text: impl fmt::Display) {
    let text = text.to_string();
    let text = flags::with_flags(&text);
    if !args::log::note(&text) {
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

/// Prints the warnings of a plan to stderr.
fn warn(plan: &Plan) {
    for warning in &plan.warnings {
        note(format_args!("warning: {warning}"));
    }
}

/// Returns a progress bar on stderr of `length` steps, which is hidden if stderr is not a terminal.
fn bar(length: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent} %, {eta} left");
    let bar = ProgressBar::new(length);
    if let Ok(style) = style { bar.with_style(style) } else { bar }
}
