//! `/model`: the names of models, and another one for a conversation.

use std::path::Path;

use super::{
    Args, Conversation, conversation::Question, files::Files, line::LineEditor, ready, settings,
    writer::Writer,
};
use crate::cli::{error::Error, note, run_args_of};
use rope_cpu::{
    model::Model,
    shelf::{Entry, Shelf},
};

/// A conversation that another model continues.
pub struct Changed {
    /// The model, which is open.
    pub model: Model,
    /// The options that it was opened with.
    pub args: Args,
    /// Its name.
    pub name: String,
    /// The name of the model before it.
    pub before: String,
    /// The conversation so far.
    pub conversation: Conversation,
    /// The terminal with its files, settings and last question.
    pub desk: Desk,
}

/// A model that was opened by its name, with its options and the name.
pub type Opened = (Model, Args, String);

/// The terminal's part of a conversation, which does not depend on the model.
pub struct Desk {
    /// The input.
    pub lines: LineEditor,
    /// The files before the next question.
    pub files: Files,
    /// The last question, if it has no answer.
    pub unanswered: Option<Question>,
    /// The arguments of each `/set` that set a value, one for each name.
    pub sets: Vec<String>,
}

impl Desk {
    /// Creates the part for a new conversation.
    pub fn new(lines: LineEditor) -> Self {
        Desk { lines, files: Files::default(), unanswered: None, sets: Vec::new() }
    }

    /// Sets again what was set for the model before.
    pub fn repeat_settings(&self, writer: &mut Writer, args: &Args) {
        for typed in &self.sets {
            if let Err(error) = settings::run(typed, writer, args) {
                note(error);
            }
        }
    }

    /// Records the argument of a `/set`, for the next model.
    pub fn record(&mut self, typed: &str) {
        let name = |typed: &str| typed.split_whitespace().next().map(String::from);
        if typed.split_whitespace().nth(1).is_some() {
            self.sets.retain(|other| name(other) != name(typed));
            self.sets.push(typed.into());
        }
    }
}

/// The model of a conversation, as the shelf knows it.
#[derive(Clone, Copy)]
pub struct Current<'c> {
    /// Its name, if it was opened by one.
    pub name: Option<&'c str>,
    /// Its file.
    pub path: &'c Path,
}

impl Current<'_> {
    fn is(&self, entry: &Entry) -> bool {
        let same = || match (self.path.canonicalize(), entry.path.canonicalize()) {
            (Ok(path), Ok(other)) => path == other,
            _ => self.path == entry.path,
        };
        match self.name {
            Some(name) => entry.name == name,
            None => entry.presets.is_empty() && same(),
        }
    }

    /// Returns the name, or the file's.
    pub fn shown(&self) -> String {
        let file = || self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.name.map_or_else(file, String::from)
    }
}

/// Prints the names of the shelf, with a star before the current model.
///
/// # Errors
/// If the shelf cannot be read.
pub fn list(shelf: &Shelf, current: Current<'_>) -> Result<(), Error> {
    let entries = shelf.entries().map_err(Error::usage)?;
    if !entries.iter().any(|entry| current.is(entry)) {
        note(format_args!("* {}", current.path.display()));
    }
    for entry in &entries {
        let mark = if current.is(entry) { '*' } else { ' ' };
        note(format_args!("{mark} {}", entry.name.escape_debug()));
    }
    if entries.is_empty() {
        note("(there are no other models: download one with `rope-cpu pull USER/MODEL`)");
    }
    Ok(())
}

/// Opens the model with a name of the shelf. Returns its options and its name, or `None` if it is the
/// current one.
///
/// # Errors
/// If no model or several have the name, or it cannot continue the conversation.
pub fn open(shelf: &Shelf, name: &str, current: Current<'_>) -> Result<Option<Opened>, Error> {
    let stays = |error: &dyn std::fmt::Display| {
        Error::usage(format_args!("/model {name}: {error}; {} stays", current.shown()))
    };
    let entry = shelf.find(name).map_err(|error| stays(&error))?;
    if current.is(&entry) {
        note(format_args!("({} is the model of this conversation)", entry.name));
        return Ok(None);
    }
    let args = run_args_of(&entry).map_err(|error| stays(&error))?;
    let model = ready::open(&args).map_err(|error| stays(&error))?;
    Ok(Some((model, args, entry.name)))
}
