//! Every model on the disk, by name: downloaded ones, those in a folder, and those of other programs.
//!
//! A [`Shelf`] reads the stores as they are at the moment, and copies nothing:
//!
//! | store | names |
//! |---|---|
//! | the folder of models | the file's name, without `.gguf` |
//! | the cache of the Hugging Face Hub | `USER/MODEL:QUANT` |
//! | llama.cpp's cache | `USER/MODEL:QUANT`, or the file's name |
//! | LM Studio's | `USER/MODEL:QUANT` |
//! | Jan's | the name of the model's folder |
//! | ollama's | `NAME:TAG` |
//!
//! If two stores have a name, it is the first store's, in the order of this table. The other model
//! is `NAME@STORE`, such as `qwen:latest@ollama`. Presets add names with options; an alias is a
//! preset without options.
//!
//! The contents of a store are untrusted: a manifest that names a file outside of its store gives a
//! note, and the other models are listed.
//!
//! ```no_run
//! use rope_cpu::shelf::{Options, Shelf};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let shelf = Shelf::new(Options::from_variables(|name| std::env::var(name).ok()));
//! for entry in shelf.entries()? {
//!     println!("{} {} MB", entry.name, entry.bytes / 1_000_000);
//! }
//! let entry = shelf.find("SmolLM2")?;
//! println!("{}", entry.details()?.format);
//! # Ok(())
//! # }
//! ```

mod change;
mod details;
mod entry;
mod error;
mod find;
mod first;
mod options;
pub mod presets;
mod stores;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

pub use change::Removed;
pub use details::{Details, Fit};
pub use entry::{Entry, Store};
pub use error::Error;
pub use first::{Suggestion, suggestions};
pub use options::Options;

use details::Headers;
use presets::{Preset, Presets};
use stores::{Found, Scan};

/// The models on the disk. Each call reads the stores again.
#[derive(Clone, Debug)]
pub struct Shelf {
    options: Options,
    /// Headers that were read before, for as long as their files do not change.
    headers: Arc<Headers>,
}

/// The models on the disk, and what could not be read.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The models and presets, sorted by name.
    pub entries: Vec<Entry>,
    /// Files and presets that were left out, one sentence each.
    pub notes: Vec<String>,
}

impl Shelf {
    /// Creates a shelf. Nothing is read yet.
    pub fn new(options: Options) -> Self {
        Shelf { options, headers: Arc::default() }
    }

    /// Returns the folders and files of the shelf.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns every model on the disk, sorted by name.
    ///
    /// # Errors
    /// If the folder of models or the file of presets cannot be read. Any other store that cannot
    /// be read is left out: see [`Shelf::listing`].
    pub fn entries(&self) -> Result<Vec<Entry>, Error> {
        Ok(self.listing()?.entries)
    }

    /// Returns every model on the disk, sorted by name, with notes about what is left out.
    ///
    /// # Errors
    /// As for [`Shelf::entries`].
    pub fn listing(&self) -> Result<Listing, Error> {
        let (mut models, mut notes) = self.models()?;
        let presets = self.presets()?;
        let mut added = Vec::new();
        for preset in presets.iter() {
            match presets.resolve(&preset.name, &|name| self.base(&models, &presets, name)) {
                Ok((base, chain)) => added.push(base.with_preset(&preset.name, chain)),
                Err(error) => notes.push(format!(
                    "{}: [{}] is not listed: {error}",
                    presets.path().display(),
                    preset.name.escape_debug()
                )),
            }
        }
        models.extend(added.into_iter().map(|entry| (entry.name.clone(), entry)));
        Ok(Listing { entries: models.into_values().collect(), notes })
    }

    /// Finds a model by its name: in upper or lower case, without its quant or tag, or by a part of
    /// it that no other name has.
    ///
    /// # Errors
    /// If no model or several match, with the names to choose from, or the shelf cannot be read.
    pub fn find(&self, name: &str) -> Result<Entry, Error> {
        let (models, _) = self.models()?;
        let presets = self.presets()?;
        if presets.get(name).is_some() {
            let (base, chain) =
                presets.resolve(name, &|name| self.base(&models, &presets, name))?;
            return Ok(base.with_preset(name, chain));
        }
        let entries = self.listing()?.entries;
        find::find(entries.iter(), name).cloned()
    }

    /// Reads the file of presets.
    ///
    /// # Errors
    /// If it exists but cannot be read, or is not a list of presets.
    pub fn presets(&self) -> Result<Presets, Error> {
        match &self.options.presets {
            Some(path) => Presets::read(path),
            None => Ok(Presets::default()),
        }
    }

    /// Returns the model that a preset stands on: a file, whose relative path starts at the file of
    /// presets, or a name of a store.
    fn base(
        &self,
        models: &BTreeMap<String, Entry>,
        presets: &Presets,
        name: &str,
    ) -> Result<Entry, Error> {
        let path = presets.path().parent().unwrap_or("".as_ref()).join(name);
        if !path.is_file() {
            return find::find(models.values(), name).cloned();
        }
        let mut scan = Scan::default();
        scan.add(name.into(), &path, Store::Folder, None);
        match scan.found.pop() {
            Some(found) => Ok(self.entry(name.into(), found)),
            None => Err(Error::Unreadable { reason: scan.notes.concat() }),
        }
    }

    fn entry(&self, name: String, found: Found) -> Entry {
        let Found { name: own_name, paths, store, digest, modified, bytes, choices } = found;
        let of_store = (!choices.is_empty()).then(|| Preset {
            name: own_name.clone(),
            model: own_name,
            choices,
            path: paths.first().cloned().unwrap_or_default(),
            line: 0,
        });
        Entry {
            name,
            path: paths.first().cloned().unwrap_or_default(),
            paths,
            bytes,
            store,
            modified,
            digest,
            presets: Vec::new(),
            of_store,
            headers: self.headers.clone(),
        }
    }

    /// Returns the models without presets, by unique names.
    fn models(&self) -> Result<(BTreeMap<String, Entry>, Vec<String>), Error> {
        let Scan { found, notes } = stores::scan(&self.options)?;
        let mut models = BTreeMap::new();
        for found in found {
            let name = match models.contains_key(&found.name) {
                true => unique(&models, &format!("{}@{}", found.name, found.store.name())),
                false => found.name.clone(),
            };
            models.insert(name.clone(), self.entry(name, found));
        }
        Ok((models, notes))
    }
}

/// Returns `name`, or `name-2` and so on if it is taken.
fn unique(taken: &BTreeMap<String, Entry>, name: &str) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_string()).chain(numbered);
    names.find(|name| !taken.contains_key(name)).unwrap_or_default()
}

/// A list of paths, for options with several folders.
type Folders = Vec<PathBuf>;
