//! Names of models in a command line: each becomes the path of its file, and a preset's options are
//! inserted before those that are typed.

mod presets;

use std::{
    ffi::{OsStr, OsString},
    path::Path,
};

use clap::Command;
use rope_cpu::shelf::{self, Entry, Shelf};

use super::{args::ShelfArgs, environment, error::Error, note};

use presets::Placed;
pub use presets::check;

impl From<shelf::Error> for Error {
    fn from(error: shelf::Error) -> Self {
        match error {
            shelf::Error::Read { .. } | shelf::Error::Write { .. } => Error::failed(error),
            error => Error::usage(error),
        }
    }
}

/// A command line with the paths of models.
pub struct Named {
    argv: Vec<OsString>,
    /// The number of words before the options.
    words: usize,
    /// The options of presets.
    options: Vec<Placed>,
}

/// The options that take a model.
const MODELS: [&str; 2] = ["--model=", "--spec-draft-model="];

/// The options that say where a model is from.
const SOURCES: [&str; 3] = ["--model=", "--hf-repo=", "--hf-file="];

/// The commands that take a model without `-m`.
const BARE: [&str; 5] = ["rope-cpu", "run", "serve", "open", "launch"];

/// Returns `argv`, which is in clap's form, with `--model=NAME` in place of a bare name of a model.
/// Without a command, a word that no model's name resembles stays: clap reports it.
pub fn with_bare_name(root: &Command, argv: &[OsString]) -> Vec<OsString> {
    let (command, words) = environment::command_of(root, argv);
    let mut changed = argv.to_vec();
    let is_given = |arg: &OsString| {
        let text = arg.as_encoded_bytes();
        text.starts_with(b"--model=") || text.starts_with(b"--hf-repo=")
    };
    if !BARE.contains(&command.get_name()) || argv.iter().any(is_given) {
        return changed;
    }
    let options = argv.iter().enumerate().skip(words).take_while(|(_, arg)| *arg != "--");
    let bare = options.filter_map(|(at, arg)| Some((at, arg.to_str()?)));
    // The first word of `launch` is an agent.
    let before = usize::from(command.get_name() == "launch");
    let mut bare = bare.filter(|(_, text)| !text.starts_with('-'));
    let Some((at, name)) = bare.nth(before) else { return changed };
    let resembles = || match shelf_of(argv).find(name) {
        Ok(_) | Err(shelf::Error::Several { .. }) => true,
        Err(shelf::Error::None { near, .. }) => !near.is_empty() || name.contains('/'),
        Err(shelf::Error::Name { .. }) => false,
        // The stores or presets cannot be read: the message says why.
        Err(_) => true,
    };
    if !is_path(OsStr::new(name)) && (command.get_name() != "rope-cpu" || resembles()) {
        changed[at] = format!("--model={name}").into();
    }
    changed
}

/// Returns `argv` with the paths of models in place of their names, and the options of presets.
/// `None` if it has no such name.
///
/// # Errors
/// If no model or several have a name, or an option of a preset does not exist.
pub fn with_paths(root: &Command, argv: &[OsString]) -> Result<Option<Named>, Error> {
    let (command, words) = environment::command_of(root, argv);
    let mut shelf = None;
    let mut changed = Vec::new();
    let mut chosen = Vec::new();
    let end = argv.iter().position(|arg| arg == "--").unwrap_or(argv.len());
    for arg in &argv[..end] {
        let named = MODELS.iter().find_map(|option| {
            let name = arg.to_str()?.strip_prefix(option)?;
            (!is_path(OsStr::new(name))).then_some((*option, name))
        });
        let Some((option, name)) = named else {
            changed.push(arg.clone());
            continue;
        };
        let entry = match shelf.get_or_insert_with(|| shelf_of(argv)).find(name) {
            // A folder has its own message, for example, and so has a draft model that nothing
            // drafts with.
            Err(shelf::Error::None { .. }) if Path::new(name).exists() || option != MODELS[0] => {
                changed.push(arg.clone());
                continue;
            }
            entry => entry?,
        };
        let mut path = OsString::from(option);
        path.push(&entry.path);
        changed.push(path);
        if option == MODELS[0] {
            chosen.extend(entry.options());
        }
    }
    if shelf.is_none() {
        return Ok(None);
    }
    let (options, notes) = presets::arguments(root, command, argv, &chosen)?;
    notes.iter().for_each(|text| note(format_args!("note: {text}")));
    changed.extend_from_slice(&argv[end..]);
    Ok(Some(Named { argv: changed, words, options }))
}

/// Returns `argv` with a model of the shelf, in place of any other.
pub fn with_model(root: &Command, argv: &[OsString], entry: &Entry) -> Vec<OsString> {
    let (_, words) = environment::command_of(root, argv);
    let mut model = OsString::from(MODELS[0]);
    model.push(&entry.path);
    let is_model = |arg: &OsString| {
        let text = arg.as_encoded_bytes();
        SOURCES.iter().any(|option| text.starts_with(option.as_bytes()))
    };
    let end = argv.iter().position(|arg| arg == "--").unwrap_or(argv.len());
    let (options, rest) = argv.split_at(end);
    let mut changed: Vec<_> = options.iter().filter(|arg| !is_model(arg)).cloned().collect();
    changed.insert(words.min(changed.len()), model);
    changed.extend_from_slice(rest);
    changed
}

/// Returns `argv` with the options of a model's presets.
///
/// # Errors
/// If an option of a preset does not exist.
pub fn with_presets(root: &Command, argv: &[OsString], entry: &Entry) -> Result<Named, Error> {
    let (command, words) = environment::command_of(root, argv);
    let (options, notes) = presets::arguments(root, command, argv, &entry.options())?;
    notes.iter().for_each(|text| note(format_args!("note: {text}")));
    Ok(Named { argv: argv.to_vec(), words, options })
}

/// Returns the model of the shelf that `argv` names; `None` for a file and for one of the hub.
pub fn entry_of(argv: &[OsString]) -> Option<Entry> {
    let mut models = argv.iter().take_while(|arg| *arg != "--");
    let name = models.find_map(|arg| arg.to_str()?.strip_prefix(MODELS[0]))?;
    let is_name = !is_path(OsStr::new(name));
    is_name.then(|| shelf_of(argv).find(name).ok()).flatten()
}

impl Named {
    /// Returns the command line.
    pub fn argv(&self) -> Vec<OsString> {
        self.with(&self.options)
    }

    /// Returns the message of the error that `parse` reports, after the place of the option that
    /// causes it.
    pub fn explain(&self, parse: impl Fn(&[OsString]) -> Option<String>) -> String {
        let mut alone = self.options.iter().map(|option| (option, parse(&self.with([option]))));
        match alone.find_map(|(option, reason)| Some((&option.place, reason?))) {
            Some((place, reason)) => format!("{place}: {reason}"),
            None => parse(&self.argv()).unwrap_or_default(),
        }
    }

    /// Returns the command line with some of the presets' options, before those that are typed.
    fn with<'a>(&'a self, options: impl IntoIterator<Item = &'a Placed>) -> Vec<OsString> {
        let mut argv = self.argv.clone();
        let words = options.into_iter().flat_map(|option| option.words.iter().cloned());
        argv.splice(self.words..self.words, words);
        argv
    }
}

/// Returns whether a word is an existing file, or looks like the path of one.
fn is_path(word: &OsStr) -> bool {
    let path = Path::new(word);
    let text = word.to_string_lossy();
    let starts = ["/", "./", "../", "~", ".\\", "..\\", "\\"];
    path.is_file()
        || path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"))
        || starts.iter().any(|start| text.starts_with(start))
        || text.as_bytes().get(1..3) == Some(b":\\")
        || text.is_empty()
}

/// Returns the shelf with the folders that `argv` gives.
fn shelf_of(argv: &[OsString]) -> Shelf {
    let last = |option: &str| {
        let value = |arg: &OsString| Some(arg.to_str()?.strip_prefix(option)?.into());
        argv.iter().rev().find_map(value)
    };
    let args = ShelfArgs { models_dir: last("--models-dir="), presets: last("--presets=") };
    args.shelf()
}
