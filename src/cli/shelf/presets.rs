//! The options of presets as arguments of a command.

use std::{ffi::OsString, fmt::Display};

use clap::{Arg, Command};
use rope_cpu::shelf::presets::{Choice, Preset};

use crate::cli::{environment, error::Error, llama::Program, names};

/// How similar an option must be to be proposed, from 0 to 1.
const SIMILAR: f64 = 0.75;

/// llama-server's keys that are not options.
const OF_ROUTER: [&str; 3] = ["dedup-cache-models", "load-on-startup", "stop-timeout"];

/// An option of a preset: its place in the file, and its arguments.
pub struct Placed {
    pub place: String,
    pub words: Vec<OsString>,
}

/// Returns the options of presets as arguments of a command, and notes about those that it does not
/// have. The first preset has priority. Options that `typed` has are left out.
///
/// # Errors
/// If no command has an option. The message has the file, the line and the nearest option.
pub fn arguments(
    root: &Command,
    command: &Command,
    typed: &[OsString],
    presets: &[Preset],
) -> Result<(Vec<Placed>, Vec<String>), Error> {
    let mut arguments: Vec<Placed> = Vec::new();
    let mut notes = Vec::new();
    for preset in presets {
        let before: Vec<OsString> =
            arguments.iter().flat_map(|placed: &Placed| placed.words.clone()).collect();
        for choice in &preset.choices {
            match argument(root, command, preset, choice)? {
                Found::Option(option, words) => {
                    let is_given = |argv: &[OsString]| environment::is_given(option, argv);
                    if !is_given(typed) && !is_given(&before) {
                        arguments.push(Placed { place: place(preset, choice), words });
                    }
                }
                Found::Unused(reason) => {
                    notes.push(format!("{}: {} {reason}", place(preset, choice), choice.key));
                }
            }
        }
    }
    Ok((arguments, notes))
}

/// Checks that commands have all options of a preset, and that their values are valid in the first
/// command that has them.
///
/// # Errors
/// As for [`arguments`].
pub fn check(root: &Command, preset: &Preset) -> Result<(), Error> {
    preset.choices.iter().try_for_each(|choice| {
        let command = root.find_subcommand("run").unwrap_or(root);
        argument(root, command, preset, choice).map(|_| ())
    })
}

/// The meaning of a preset's key.
enum Found<'c> {
    /// An option of the command, and its arguments.
    Option(&'c Arg, Vec<OsString>),
    /// An option that has no effect in the command, with the reason.
    Unused(String),
}

fn argument<'c>(
    root: &Command,
    command: &'c Command,
    preset: &Preset,
    choice: &Choice,
) -> Result<Found<'c>, Error> {
    let wrong =
        |reason: &dyn Display| Error::usage(format_args!("{}: {reason}", place(preset, choice)));
    let Some(option) = find(command, &choice.key) else {
        if OF_ROUTER.contains(&&choice.key[..]) {
            return Ok(Found::Unused("has no effect: it is for llama-server's router".into()));
        }
        if root.get_subcommands().any(|other| find(other, &choice.key).is_some()) {
            return Ok(Found::Unused(format!("has no effect in {}", command.get_name())));
        }
        let value = choice.values.first().map(String::as_str);
        for name in [format!("--{}", choice.key), format!("-{}", choice.key)] {
            // As on a command line: options of llama.cpp that change no result are ignored.
            let program = Program::of("serve");
            let treated = match program.ignored(&name, value, None) {
                Ok(treated) => treated,
                Err(error) => return Err(wrong(&error)),
            };
            if treated.is_some() {
                return Ok(Found::Unused("is ignored, as on the command line".into()));
            }
        }
        let near = nearest(root, &choice.key).map(|near| format!("; did you mean {near}?"));
        let key = choice.key.escape_debug();
        return Err(wrong(&format_args!("no option is named {key}{}", near.unwrap_or_default())));
    };
    let mut words = Vec::new();
    for value in &choice.values {
        let argument =
            environment::argument(command, option, &place(preset, choice), value.as_ref());
        words.extend(argument?);
    }
    Ok(Found::Option(option, words))
}

/// Returns the option that a key names: its long name, a short one, or llama.cpp's variable.
fn find<'c>(command: &'c Command, key: &str) -> Option<&'c Arg> {
    let is_variable = |option: &&Arg| names::variable(option) == Some(key);
    names::find(command, &format!("--{key}"))
        .or_else(|| names::find(command, &format!("-{key}")))
        .or_else(|| command.get_arguments().find(is_variable))
        .filter(|option| !matches!(option.get_id().as_str(), "help" | "version"))
}

/// Returns the option of any command with the most similar name.
fn nearest(root: &Command, key: &str) -> Option<String> {
    let commands = ["run", "serve"].into_iter().filter_map(|name| root.find_subcommand(name));
    let longs = commands.flat_map(Command::get_arguments).flat_map(names::longs);
    let rated = longs.map(|long| (strsim::jaro_winkler(long, key), long));
    let (similarity, near) = rated.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (similarity >= SIMILAR).then(|| near.to_string())
}

/// Returns where an option is, for messages.
fn place(preset: &Preset, choice: &Choice) -> String {
    match choice.line {
        0 => format!("{} of {}", choice.key, preset.name.escape_debug()),
        line => format!("{}:{line}", preset.path.display()),
    }
}
