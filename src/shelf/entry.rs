//! A model on the disk.

use std::{fmt, path::PathBuf, sync::Arc, time::SystemTime};

use super::{
    Error,
    details::{Details, Fit, Headers},
    presets::Preset,
};

/// A model on the disk, under one of its names.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The unique name, for [`Shelf::find`](super::Shelf::find).
    pub name: String,
    /// The model file, or the first of its parts.
    pub path: PathBuf,
    /// All parts of the model, in order.
    pub paths: Vec<PathBuf>,
    /// The size of all parts.
    pub bytes: u64,
    /// The store that has it.
    pub store: Store,
    /// When the first part was last written, if the system reports it.
    pub modified: Option<SystemTime>,
    /// The SHA-256 in hexadecimal digits, if the store records it.
    pub digest: Option<String>,
    /// The presets that this name stands for, the most specific one first. Empty for the name of a
    /// file.
    pub presets: Vec<Preset>,
    /// The options that its store gives it: the parameters, the system message and the adapters of
    /// ollama. They are in no file of presets.
    pub of_store: Option<Preset>,
    pub(super) headers: Arc<Headers>,
}

/// A place where models lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Store {
    /// The folder of models.
    Folder,
    /// The cache of the Hugging Face Hub.
    Hub,
    /// llama.cpp's cache.
    LlamaCpp,
    /// LM Studio's folder.
    LmStudio,
    /// Jan's folder.
    Jan,
    /// ollama's store.
    Ollama,
}

impl Store {
    /// Returns the name: `folder`, `hub`, `llama.cpp`, `lm-studio`, `jan` or `ollama`.
    pub fn name(self) -> &'static str {
        match self {
            Store::Folder => "folder",
            Store::Hub => "hub",
            Store::LlamaCpp => "llama.cpp",
            Store::LmStudio => "lm-studio",
            Store::Jan => "jan",
            Store::Ollama => "ollama",
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Entry {
    /// Reads the header of the model file. It is read once, as long as the file does not change.
    ///
    /// # Errors
    /// If the file cannot be read or is not a GGUF file.
    pub fn details(&self) -> Result<Details, Error> {
        self.headers.details(&self.path, self.bytes)
    }

    /// Returns whether the model fits in the memory that is available now, and the context that
    /// does.
    ///
    /// # Errors
    /// If the file cannot be read, or rope-cpu does not run its architecture.
    pub fn fit(&self) -> Result<Fit, Error> {
        Fit::of(&self.path)
    }

    /// Returns the name of the model that this name stands for; `None` for the name of a file.
    pub fn alias_of(&self) -> Option<&str> {
        self.presets.first().map(|preset| &preset.model[..])
    }

    /// Returns the lists of its options: of its presets, and of its store. The first one that has an
    /// option has priority.
    pub fn options(&self) -> Vec<Preset> {
        self.presets.iter().chain(&self.of_store).cloned().collect()
    }

    /// Returns this model under the name of a preset.
    pub(super) fn with_preset(&self, name: &str, presets: Vec<Preset>) -> Entry {
        Entry { name: name.into(), presets, ..self.clone() }
    }
}
