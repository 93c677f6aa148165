//! The stores that models lie in, each read as its program writes it.

mod folder;
pub mod hub;
mod jan;
mod llama_cpp;
mod lm_studio;
mod names;
mod ollama;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{Error, Options, Store, presets::Choice};
use crate::gguf::{is_later_part, part_names};

/// A model in a store.
pub struct Found {
    pub name: String,
    /// All parts, in order.
    pub paths: Vec<PathBuf>,
    pub store: Store,
    pub digest: Option<String>,
    pub modified: Option<SystemTime>,
    pub bytes: u64,
    /// The options that the store gives the model.
    pub choices: Vec<Choice>,
}

/// The models of all stores, in the order of precedence.
#[derive(Default)]
pub struct Scan {
    pub found: Vec<Found>,
    /// Notes about files that were left out, one sentence each.
    pub notes: Vec<String>,
}

/// How many models a shelf has at most. The others are left out, with a note.
const MODELS_MAX: usize = 10_000;

/// How deep folders in a store may be nested.
const DEPTH_MAX: usize = 6;

/// Reads all stores.
///
/// # Errors
/// If the folder of models cannot be read.
pub fn scan(options: &Options) -> Result<Scan, Error> {
    let mut scan = Scan::default();
    if let Some(folder) = &options.models_dir {
        folder::scan(folder, &mut scan)
            .map_err(|source| Error::Read { path: folder.clone(), source })?;
    }
    if let Some(cache) = &options.hub_cache {
        scan.store(cache, hub::scan);
    }
    for (folders, read) in [
        (&options.llama_cpp, llama_cpp::scan as Read),
        (&options.lm_studio, lm_studio::scan),
        (&options.jan, jan::scan),
        (&options.ollama, ollama::scan),
    ] {
        for folder in folders {
            scan.store(folder, read);
        }
    }
    Ok(scan)
}

/// Reads a store in a folder.
type Read = fn(&Path, &mut Scan) -> io::Result<()>;

impl Scan {
    /// Reads a store, if its folder exists.
    fn store(&mut self, folder: &Path, read: Read) {
        match read(folder, self) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.notes.push(format!("{}: cannot be read: {error}", folder.display()));
            }
            _ => {}
        }
    }

    /// Adds a model with all of its parts, given the first one. A file that cannot be read gives a
    /// note, and `None`.
    pub fn add(
        &mut self,
        name: String,
        first: &Path,
        store: Store,
        digest: Option<String>,
    ) -> Option<&mut Found> {
        if self.found.len() == MODELS_MAX {
            self.note(first, format_args!("not listed: {MODELS_MAX} models are listed before it"));
            return None;
        }
        if let Err(error) = super::find::check(&name) {
            self.note(first, error);
            return None;
        }
        let paths = parts(first);
        let mut bytes = 0;
        let mut modified = None;
        for path in &paths {
            match path.metadata() {
                Ok(metadata) if metadata.is_file() => {
                    bytes += metadata.len();
                    modified = modified.or(metadata.modified().ok());
                }
                Ok(_) => {
                    self.note(path, "not listed: it is not a file");
                    return None;
                }
                Err(error) => {
                    self.note(path, format_args!("not listed: {error}"));
                    return None;
                }
            }
        }
        let choices = Vec::new();
        self.found.push(Found { name, paths, store, digest, modified, bytes, choices });
        self.found.last_mut()
    }

    fn note(&mut self, path: &Path, text: impl std::fmt::Display) {
        // One note for all that is left out at the end.
        if self.notes.len() < MODELS_MAX {
            self.notes.push(format!("{}: {text}", path.display()));
        }
    }

    /// Returns whether a store already has a model with this name.
    fn has(&self, store: Store, name: &str) -> bool {
        self.found.iter().any(|found| found.store == store && found.name == name)
    }
}

/// Returns the paths of all parts of a model, given the first one.
fn parts(first: &Path) -> Vec<PathBuf> {
    let names = first.file_name().and_then(|name| part_names(name.to_str()?));
    match names {
        Some(names) => names.iter().map(|name| first.with_file_name(name)).collect(),
        None => vec![first.into()],
    }
}

/// Returns the model files in a folder and its subfolders, sorted, without later parts and without
/// files that accompany a model. `depth` limits the nesting.
fn models(folder: &Path, depth: usize) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            if depth > 0 {
                // A folder that cannot be read has no models for this user.
                found.extend(models(&path, depth - 1).unwrap_or_default());
            }
        } else if path.file_name().and_then(|name| name.to_str()).is_some_and(is_model) {
            found.push(path);
        }
        if found.len() > MODELS_MAX {
            break;
        }
    }
    // Files of the folder itself come first.
    found.sort_by_cached_key(|path| (path.components().count(), path.clone()));
    Ok(found)
}

/// Returns whether a file name is a model's, or its first part's.
fn is_model(name: &str) -> bool {
    let ending = Path::new(name).extension();
    ending.is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"))
        && !is_later_part(name)
        && !crate::hub::accompanies_model(name)
}

/// Reads a small text file of a store.
fn small_text(path: &Path) -> io::Result<String> {
    const BYTES_MAX: u64 = 1 << 20;
    let metadata = path.metadata()?;
    if !metadata.is_file() || metadata.len() > BYTES_MAX {
        let text = format!("it is not a file of up to {BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    fs::read_to_string(path)
}

/// Returns whether `path` is within `folder`, after all links are followed.
fn is_within(path: &Path, folder: &Path) -> bool {
    match (path.canonicalize(), folder.canonicalize()) {
        (Ok(path), Ok(folder)) => path.starts_with(folder),
        _ => false,
    }
}
