//! Options that are set by environment variables: `ROPE_CPU_` and the option's long name, or
//! llama.cpp's `LLAMA_ARG_*`. They are inserted into the command line before its own options, which
//! have priority.

use std::{
    ffi::{OsStr, OsString},
    fmt::Display,
    sync::OnceLock,
};

use clap::{Arg, Command};

use super::{
    error::Error,
    llama::{self, Program, Treatment, Value},
    names,
};

/// The section on variables at the end of the long help.
pub const HELP: &str = "\
Environment:
  Every option can also be set by a variable, ROPE_CPU_ and its long name:
  ROPE_CPU_CACHE_TYPE_K=q8_0, ROPE_CPU_NO_ESCAPE=on. Variables of llama.cpp are
  read if [env: ...] lists them. Others of either prefix are ignored, with a
  note.
  The command line has priority, then ROPE_CPU_*, then LLAMA_ARG_*. In bench,
  quantize, tokenize, detokenize, inspect and machine, variables set only the
  model and --isa; in the commands of rope, all options except --ctx.";

/// The prefix of rope-cpu's variables.
const OURS: &str = "ROPE_CPU_";

/// The commands that share option meanings with llama-cli.
const LIKE_LLAMA_CLI: [&str; 12] = [
    "rope-cpu",
    "run",
    "serve",
    "open",
    "launch",
    "read",
    "sweep",
    "passkey",
    "perplexity",
    "eval",
    "embed",
    "imatrix",
];

/// The commands of `rope`. Variables do not set their --ctx: a value for `run` may be 0.
const ROPE: [&str; 7] =
    ["explain", "compare", "disturbance", "bake", "advise", "attention", "tune"];

/// The options with the same meaning in every command.
const EVERYWHERE: [&str; 12] = [
    "api-key",
    "hf-file",
    "hf-repo",
    "hf-token",
    "host",
    "isa",
    "manage-key",
    "model",
    "models-dir",
    "offline",
    "port",
    "presets",
];

/// Returns whether a variable can set an option of a command. Commands with other options than
/// llama-cli accept only the variables in [`EVERYWHERE`].
fn can_be_set(command: &str, option: &Arg) -> bool {
    let all = LIKE_LLAMA_CLI.contains(&command);
    match option.get_long() {
        None | Some("help" | "version") => false,
        Some(long) if ROPE.contains(&command) => long != "ctx",
        // It would conflict with a FILE that is given without an option.
        Some("model") if command == "inspect" => false,
        Some(long) => all || EVERYWHERE.contains(&long),
    }
}

/// A variable that is set, and the option that it sets.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    pub name: String,
    /// The argument: `--name` or `--name=value`.
    pub option: OsString,
}

/// Returns the variables that set options of the command of `argv` that are not given there.
///
/// # Errors
/// If the variable of a switch is neither on nor off.
pub fn variables(
    root: &Command,
    argv: &[OsString],
    value: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<Variable>, Error> {
    let (command, _) = command_of(root, argv);
    let typed: Vec<&Arg> = options(command).filter(|option| is_given(option, argv)).collect();
    let is_overridden = |option: &Arg| {
        typed.iter().any(|typed| {
            typed.get_id() == option.get_id()
                || command
                    .get_arg_conflicts_with(typed)
                    .iter()
                    .any(|a| a.get_id() == option.get_id())
                || command
                    .get_arg_conflicts_with(option)
                    .iter()
                    .any(|a| a.get_id() == typed.get_id())
        })
    };
    let mut found = Vec::new();
    for option in options(command).filter(|option| !is_overridden(option)) {
        let set = |name: String| Some((value(&name).filter(|value| !value.is_empty())?, name));
        let Some((value, name)) = variable_names(option).into_iter().find_map(set) else {
            continue;
        };
        let shown = format!("environment variable {name}");
        if let Some(option) = argument(command, option, &shown, &value)? {
            found.push(Variable { name, option });
        }
    }
    Ok(found)
}

/// The variables that set options of this run, once its command line is parsed.
static APPLIED: OnceLock<Vec<Variable>> = OnceLock::new();

/// Stores the variables of this run for [`origin`].
pub fn store(variables: Vec<Variable>) {
    // Fails only the second time, and a process parses one command line.
    let _ = APPLIED.set(variables);
}

/// Returns the names and values of the variables that set options of this run. A switch has the value
/// `on`.
pub fn applied() -> Vec<(String, String)> {
    let applied = APPLIED.get().into_iter().flatten();
    let value = |option: &OsString| {
        let text = option.to_string_lossy();
        text.split_once('=').map_or("on".into(), |(_, value)| value.to_string())
    };
    applied.map(|variable| (variable.name.clone(), value(&variable.option))).collect()
}

/// Returns an option with its value in the user's form, for messages: `--ctx 512`, or
/// `LLAMA_ARG_CTX_SIZE=512` if a variable sets it.
pub fn origin(long: &str, value: impl Display) -> String {
    let option = format!("--{long}=");
    let applied = APPLIED.get().into_iter().flatten();
    let given = applied.map(|variable| (variable, variable.option.to_string_lossy()));
    let mut given =
        given.filter_map(|(v, text)| Some((v, text.strip_prefix(&option)?.to_string())));
    match given.next() {
        Some((variable, value)) => format!("{}={value}", variable.name),
        None => format!("--{long} {value}"),
    }
}

/// Returns `argv` with the options of `variables` before its own.
pub fn extended(root: &Command, argv: &[OsString], variables: &[Variable]) -> Vec<OsString> {
    let (_, words) = command_of(root, argv);
    let (command, typed) = argv.split_at(words.min(argv.len()));
    let options = variables.iter().map(|variable| &variable.option);
    command.iter().chain(options).chain(typed).cloned().collect()
}

/// Returns notes on variables in `environment` that match no option. They are not errors, since
/// other versions and other programs may use them.
///
/// A variable counts if it has rope-cpu's prefix or, in commands like llama-cli, llama.cpp's.
pub fn notes(
    root: &Command,
    argv: &[OsString],
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<String> {
    let (command, _) = command_of(root, argv);
    let like_llama_cli = LIKE_LLAMA_CLI.contains(&command.get_name());
    let mut known = Vec::new();
    add_names(root, &mut known);
    let left_out = environment.filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| !known.contains(name))?;
        let treatment = match name.strip_prefix(names::VARIABLE) {
            Some(ending) if like_llama_cli => treatment(ending, &value),
            _ if name.starts_with(OURS) => UNKNOWN,
            _ => return None,
        };
        (!value.is_empty()).then_some((name, treatment))
    });
    let mut left_out: Vec<_> = left_out.collect();
    left_out.sort_by(|(a, _), (b, _)| a.cmp(b));
    llama::notes(&left_out)
}

/// The treatment of a variable with rope-cpu's prefix that matches no option.
const UNKNOWN: Treatment = Treatment::Ignored("ignored, since rope-cpu has no such option");

/// Adds the names of the variables of all options of a command and its subcommands.
fn add_names(command: &Command, all: &mut Vec<String>) {
    all.extend(options(command).flat_map(variable_names));
    command.get_subcommands().for_each(|command| add_names(command, all));
}

/// Returns the treatment of llama.cpp's variable `LLAMA_ARG_{ending}`, which matches no option.
fn treatment(ending: &str, value: &OsStr) -> Treatment {
    let name = match ending {
        "N_PARALLEL" => "parallel".into(),
        _ => ending.replace('_', "-").to_lowercase(),
    };
    let on = switch(value);
    let option = Program::CLI.find(&format!("--{name}"));
    let opposite = Program::CLI.find(&format!("--no-{name}"));
    match (option, opposite) {
        (Some((Value::No, _)), Some((_, opposite))) if on == Some(false) => opposite,
        (Some((Value::OneOf(list) | Value::Optional(list), treatment)), _) => {
            let has = |word| list.contains(&word);
            let is_listed = value.to_str().is_some_and(has) || on == Some(true) && has("on");
            if is_listed { treatment } else { Treatment::Unsupported("") }
        }
        (Some((_, treatment)), _) => treatment,
        (None, _) => Treatment::Unsupported(""),
    }
}

/// Adds llama.cpp's variable to the long help of an option that it can set in a command.
pub fn shown(command: &str, option: Arg) -> Arg {
    match names::variable(&option).filter(|_| can_be_set(command, &option)) {
        Some(variable) => {
            let help = option.get_long_help().or(option.get_help());
            let help = format!("{}\n\n[env: {variable}]", help.cloned().unwrap_or_default());
            option.long_help(help)
        }
        None => option,
    }
}

/// Returns the command that `argv` names, and the number of words that name it, including the
/// program's name.
pub fn command_of<'c>(root: &'c Command, argv: &[OsString]) -> (&'c Command, usize) {
    let (mut command, mut words) = (root, 1);
    while let Some(next) = argv.get(words).and_then(|arg| command.find_subcommand(arg)) {
        (command, words) = (next, words + 1);
    }
    (command, words)
}

/// Returns the options of a command that variables can set.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|option| can_be_set(command.get_name(), option))
}

/// Returns whether `argv`, in clap's form, has an option.
pub fn is_given(option: &Arg, argv: &[OsString]) -> bool {
    let name = format!("--{}", option.get_long().unwrap_or_default());
    let options = argv.iter().take_while(|arg| *arg != "--").map(|arg| arg.to_string_lossy());
    options.into_iter().any(|arg| arg.split_once('=').map_or(&*arg, |(name, _)| name) == name)
}

/// Returns the names of an option's variables, in order of priority.
fn variable_names(option: &Arg) -> Vec<String> {
    let ours = |long: &str| format!("{OURS}{}", long.replace('-', "_").to_uppercase());
    names::longs(option).map(ours).chain(names::variable(option).map(String::from)).collect()
}

/// Returns the argument for an option that a variable or a preset sets; `None` for a switch that is
/// off by default. `name` is the variable or the place in messages.
///
/// # Errors
/// If the value of a switch is neither on nor off.
pub fn argument(
    command: &Command,
    option: &Arg,
    name: &str,
    value: &OsStr,
) -> Result<Option<OsString>, Error> {
    let long = option.get_long().unwrap_or_default();
    if option.get_action().takes_values() {
        let mut typed = OsString::from(format!("--{long}="));
        typed.push(value);
        return Ok(Some(typed));
    }
    match switch(value) {
        // llama.cpp ignores the value of these.
        _ if name.contains(" LLAMA_ARG_NO_") => Ok(Some(format!("--{long}").into())),
        Some(true) => Ok(Some(format!("--{long}").into())),
        Some(false) => {
            let opposite = format!("no-{long}");
            let exists = command.get_arguments().any(|arg| arg.get_long() == Some(&opposite));
            Ok(exists.then(|| format!("--{opposite}").into()))
        }
        None => Err(Error::usage(format_args!(
            "{name} is {value:?}: the value for --{long} must be on or off"
        ))),
    }
}

/// Parses a switch with llama.cpp's words; `None` if it is not one of them.
fn switch(value: &OsStr) -> Option<bool> {
    match value.to_str()? {
        "on" | "enabled" | "true" | "1" => Some(true),
        "off" | "disabled" | "false" | "0" => Some(false),
        _ => None,
    }
}
