//! Presets: names with a model and options, in a file.
//!
//! ```toml
//! [big-context]
//! model = "SmolLM2"
//! ctx = 65536
//! rope-scaling = "yarn"
//! ```
//!
//! Keys are the long names of options. A section without `model` gives options to the model that it
//! is named after. `["*"]` has options of every preset. llama-server's files have
//! the same sections in another syntax; they are read if their name ends in `.ini`.
//!
//! This module does not know which options exist: a front end checks them, and the line of each is
//! in its message.

mod ini;
mod ollama;
mod toml;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

pub use ollama::{OfOllama, option as option_of_ollama, parameter as parameter_of_ollama};

use super::{Entry, Error};

/// The presets of a file.
#[derive(Clone, Debug, Default)]
pub struct Presets {
    path: PathBuf,
    list: Vec<Preset>,
    /// The options of every preset.
    global: Vec<Choice>,
}

/// A name with a model and options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preset {
    /// The name.
    pub name: String,
    /// The name or the path of the model, or the name of another preset.
    pub model: String,
    /// The options, in the order of the file. Options of every preset follow.
    pub choices: Vec<Choice>,
    /// The file.
    pub path: PathBuf,
    /// The line of the name, from 1.
    pub line: usize,
}

/// An option of a preset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The option's long name, without dashes.
    pub key: String,
    /// Its value, or several values of an option that can be repeated. Switches are `true` or
    /// `false`.
    pub values: Vec<String>,
    /// The line, from 1; 0 for an option that is not in a file of presets.
    pub line: usize,
}

/// Larger files are refused.
const BYTES_MAX: u64 = 1 << 20;

/// How many presets may refer to each other.
const CHAIN_MAX: usize = 8;

/// A file's sections before they are checked: a name, its line, and its options.
struct Section {
    name: String,
    line: usize,
    choices: Vec<Choice>,
}

/// An error in a file: the line and the reason.
type Fault = (usize, String);

impl Presets {
    /// Reads a file. A file that does not exist has no presets.
    ///
    /// # Errors
    /// If it cannot be read or is not a list of presets.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let sections = text(path)?.map(|text| match is_ini(path) {
            true => ini::sections(&text),
            false => toml::sections(&text),
        });
        let fault = |(line, reason)| Error::Preset { path: path.into(), line, reason };
        let sections = sections.transpose().map_err(fault)?.unwrap_or_default();
        let mut presets = Presets { path: path.into(), ..Self::default() };
        for section in sections {
            presets.add(section).map_err(fault)?;
        }
        for preset in &mut presets.list {
            let more = presets.global.iter();
            let more = more.filter(|choice| preset.choices.iter().all(|own| own.key != choice.key));
            preset.choices.extend(more.cloned().collect::<Vec<_>>());
        }
        Ok(presets)
    }

    fn add(&mut self, section: Section) -> Result<(), Fault> {
        let Section { name, line, mut choices } = section;
        let mut model = None;
        for key in ["model", "m", "LLAMA_ARG_MODEL", "hf-repo", "hf", "hfr", "LLAMA_ARG_HF_REPO"] {
            if let Some(at) = choices.iter().position(|choice| choice.key == key) {
                let choice = choices.remove(at);
                let [value] = &choice.values[..] else {
                    return Err((choice.line, format!("{key} must be one name or path")));
                };
                if let Some(earlier) = model.replace(value.clone()) {
                    let reason =
                        format!("{} has two models: {earlier} and {value}", name.escape_debug());
                    return Err((choice.line, reason));
                }
            }
        }
        if name == "*" {
            if model.is_some() {
                return Err((
                    line,
                    "[*] has options of every preset, and cannot have a model".into(),
                ));
            }
            self.global = choices;
            return Ok(());
        }
        super::find::check(&name).map_err(|error| (line, error.to_string()))?;
        let model = model.unwrap_or_else(|| name.clone());
        self.list.push(Preset { name, model, choices, path: self.path.clone(), line });
        Ok(())
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the presets in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Preset> {
        self.list.iter()
    }

    /// Returns the preset with this name.
    pub fn get(&self, name: &str) -> Option<&Preset> {
        self.list.iter().find(|preset| preset.name == name)
    }

    /// Returns whether an option is one of every preset.
    pub(super) fn is_global(&self, choice: &Choice) -> bool {
        self.global.contains(choice)
    }

    /// Follows a preset to a model. Returns the model that `model` finds, and the presets on the
    /// way, the first one first.
    pub(super) fn resolve(
        &self,
        name: &str,
        model: &dyn Fn(&str) -> Result<Entry, Error>,
    ) -> Result<(Entry, Vec<Preset>), Error> {
        let mut chain: Vec<Preset> = Vec::new();
        let mut next = name;
        while let Some(preset) = self.get(next) {
            let names = || chain.iter().map(|preset| preset.name.clone());
            if names().any(|known| known == next) || chain.len() == CHAIN_MAX {
                return Err(Error::Circle { names: names().chain([next.into()]).collect() });
            }
            chain.push(preset.clone());
            next = &preset.model;
            if preset.model == preset.name {
                break;
            }
        }
        Ok((model(next)?, chain))
    }

    /// Adds a preset to the file at `path`, which is created if necessary. Comments and the other
    /// presets stay as they are.
    ///
    /// # Errors
    /// If the name is taken, or the file is an `.ini` file or cannot be written.
    pub fn insert(path: &Path, name: &str, model: &str, choices: &[Choice]) -> Result<(), Error> {
        super::find::check(name)?;
        edit(path, |document| match document.contains_key(name) || name == "*" {
            true => Err(Error::Taken { name: name.into() }),
            false => {
                document.insert(name, toml::section(model, choices));
                Ok(())
            }
        })
    }

    /// Writes a preset to its file, in place of one with this name.
    ///
    /// # Errors
    /// If the file is an `.ini` file or cannot be written.
    pub(super) fn replace(preset: &Preset) -> Result<(), Error> {
        edit(&preset.path, |document| {
            document.insert(&preset.name, toml::section(&preset.model, &preset.choices));
            Ok(())
        })
    }

    /// Removes a preset from the file at `path`.
    ///
    /// # Errors
    /// If the file is an `.ini` file or cannot be written.
    pub fn remove(path: &Path, name: &str) -> Result<(), Error> {
        edit(path, |document| {
            document.remove(name);
            Ok(())
        })
    }

    /// Changes the model of a preset in the file at `path`.
    pub(super) fn set_model(path: &Path, name: &str, model: &str) -> Result<(), Error> {
        edit(path, |document| {
            document[name]["model"] = toml_edit::value(model);
            Ok(())
        })
    }
}

fn is_ini(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("ini"))
}

/// Reads a file; `None` if it does not exist.
fn text(path: &Path) -> Result<Option<String>, Error> {
    let failed = |source| Error::Read { path: path.into(), source };
    let metadata = match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata.map_err(failed)?,
    };
    if !metadata.is_file() || metadata.len() > BYTES_MAX {
        let reason = format!("it is not a file of up to {BYTES_MAX} bytes");
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, reason)));
    }
    fs::read_to_string(path).map(Some).map_err(failed)
}

/// Changes a file in TOML. Other programs see the old or the new file, never a part of it.
fn edit(
    path: &Path,
    change: impl FnOnce(&mut toml_edit::DocumentMut) -> Result<(), Error>,
) -> Result<(), Error> {
    if is_ini(path) {
        return Err(Error::ReadOnly { path: path.into() });
    }
    let text = text(path)?.unwrap_or_default();
    let mut document = text.parse().map_err(|error| {
        let (line, reason) = toml::fault(&text, &error);
        Error::Preset { path: path.into(), line, reason }
    })?;
    change(&mut document)?;
    let document = document.to_string();
    let failed = |source| Error::Write { path: path.into(), source };
    if document.len() as u64 > BYTES_MAX {
        let reason = format!("presets have more than {BYTES_MAX} bytes: shorten them");
        return Err(failed(io::Error::new(io::ErrorKind::InvalidData, reason)));
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    // A link stays a link.
    let target = path.canonicalize().unwrap_or_else(|_| path.into());
    let new = target.with_extension(format!("{}.tmp", std::process::id()));
    let written = fs::write(&new, document).and_then(|()| fs::rename(&new, &target));
    written.map_err(|error| {
        let _ = fs::remove_file(&new);
        failed(error)
    })
}
