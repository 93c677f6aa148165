//! Errors of the shelf.

use std::{io, path::PathBuf};

use thiserror::Error;

use super::Store;
use crate::{gguf, model};

/// An error of the shelf. The message says what to do about it.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum Error {
    #[error(
        "{} is not the name of a model: give up to {max} characters without control characters",
        escaped(name)
    )]
    Name { name: String, max: usize },
    #[error(
        "no file and no model is named {}{}; `rope-cpu list` shows all, `rope-cpu pull USER/MODEL` downloads one",
        escaped(name),
        nearest(near)
    )]
    None { name: String, near: Vec<String> },
    #[error("{} stands for several models: name one of {}", escaped(name), listed(names))]
    Several { name: String, names: Vec<String> },
    #[error(
        "{} is already the name of a model: choose another one, or remove it first with `rope-cpu rm {}`",
        escaped(name),
        escaped(name)
    )]
    Taken { name: String },
    #[error("{} belongs to {store}, and rope-cpu does not change its files: {}", escaped(name), advice(*store, name))]
    Foreign { name: String, store: Store },
    #[error(
        "{} has other names that need its files: remove {} as well",
        escaped(name),
        listed(names)
    )]
    Shared { name: String, names: Vec<String> },
    #[error("presets refer to each other in a circle: {}", listed(names))]
    Circle { names: Vec<String> },
    #[error("there is no folder for presets: set ROPE_CPU_PRESETS or HOME")]
    NoPresets,
    #[error("{path}:{line}: {reason}", path = path.display())]
    Preset { path: PathBuf, line: usize, reason: String },
    #[error("{path} is in llama-server's format, which rope-cpu only reads: add the name in the file, or use a .toml file",
        path = path.display())]
    ReadOnly { path: PathBuf },
    #[error("cannot read {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {path}: {source}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{reason}")]
    Unreadable { reason: String },
    #[error(transparent)]
    Gguf(#[from] gguf::Error),
    #[error(transparent)]
    Model(#[from] model::Error),
    #[error("{reason}")]
    Plan { reason: String },
}

/// Formats the names to choose from after "no model is named".
fn nearest(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!(": did you mean {}?", listed(near)),
    }
}

/// How many names a message lists.
const NAMES_MAX: usize = 12;

/// Joins names, escaped for a terminal.
fn listed(names: &[String]) -> String {
    let mut text: Vec<String> = names.iter().take(NAMES_MAX).map(|name| escaped(name)).collect();
    if names.len() > NAMES_MAX {
        text.push(format!("{} more", names.len() - NAMES_MAX));
    }
    text.join(", ")
}

/// How a model of another program is removed.
fn advice(store: Store, name: &str) -> String {
    let name = escaped(name.strip_suffix(&format!("@{store}")).unwrap_or(name));
    match store {
        Store::Ollama => format!("use `ollama rm {name}`"),
        Store::LmStudio => "remove it in LM Studio, under My Models".into(),
        Store::Jan => "remove it in Jan's settings".into(),
        Store::LlamaCpp => "delete the file that `rope-cpu show` names".into(),
        Store::Folder | Store::Hub => "delete its file".into(),
    }
}

/// Returns a name from outside, escaped for a terminal.
fn escaped(name: &str) -> String {
    gguf::escaped(name, 300)
}
