//! Removes models and adds aliases.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    Entry, Error, Shelf, Store, find,
    presets::{Choice, Preset, Presets},
};

/// The result of [`Shelf::remove`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The name that was removed.
    pub name: String,
    /// The files that were removed.
    pub files: Vec<PathBuf>,
    /// The space that they took.
    pub bytes: u64,
    /// Names of the same model. If any, its file stays.
    pub shared: Vec<String>,
}

impl Shelf {
    /// Removes a model by its exact name. If other names share it, removes the name alone.
    ///
    /// # Errors
    /// If no model has this name, another program owns it, or a file cannot be removed.
    pub fn remove(&self, name: &str) -> Result<Removed, Error> {
        let entry = self.exact(name)?;
        let all = self.entries()?;
        let same = |other: &&Entry| other.name != entry.name && same_file(other, &entry);
        let shared: Vec<Entry> = all.iter().filter(same).cloned().collect();
        let names = || shared.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>();
        if let Some(preset) = entry.presets.first() {
            Presets::remove(&preset.path, &preset.name)?;
            // The file of a model whose own name was removed before.
            let orphan = shared.is_empty() && self.is_blob(&entry.path);
            let files = if orphan { entry.paths.clone() } else { Vec::new() };
            let shared = match names() {
                // A preset is often named after its model.
                shared if shared.is_empty() && !orphan => vec![preset.model.clone()],
                shared => shared,
            };
            return removed(name, files, shared);
        }
        match entry.store {
            Store::Hub => self.remove_from_hub(&entry, &shared),
            Store::Folder if shared.is_empty() => removed(name, entry.paths, Vec::new()),
            Store::Folder => Err(Error::Shared { name: name.into(), names: names() }),
            store => Err(Error::Foreign { name: name.into(), store }),
        }
    }

    /// Gives a model another name: an alias in the file of presets.
    ///
    /// # Errors
    /// If no model is named `from`, `to` is taken, or the file cannot be written.
    pub fn copy(&self, from: &str, to: &str) -> Result<Entry, Error> {
        let entry = self.find(from)?;
        if self.entries()?.iter().any(|entry| entry.name == to) {
            return Err(Error::Taken { name: to.into() });
        }
        let path = self.options().presets.as_ref().ok_or(Error::NoPresets)?;
        Presets::insert(path, to, &entry.name, &[])?;
        self.exact(to)
    }

    /// Returns a model with further options under another name, which is in no file yet:
    /// [`Shelf::write`] adds it to the file of presets. `to` may be the name of a preset, which then is
    /// replaced, and its options stay if `from` is the same name.
    ///
    /// # Errors
    /// If no model is named `from`, `to` is the name of a file or cannot be a name, or presets would
    /// refer to each other.
    pub fn draft(&self, from: &str, to: &str, choices: Vec<Choice>) -> Result<Entry, Error> {
        find::check(to)?;
        let path = self.options().presets.clone().ok_or(Error::NoPresets)?;
        let base = self.find(from)?;
        if to == "*" || self.models()?.0.contains_key(to) {
            return Err(Error::Taken { name: to.into() });
        }
        let mut draft =
            Preset { name: to.into(), model: base.name.clone(), choices, path, line: 0 };
        let mut chain = base.presets.clone();
        if base.name == to && !chain.is_empty() {
            let old = chain.remove(0);
            let presets = self.presets()?;
            let (new, is_global) = (&draft.choices, |old: &Choice| presets.is_global(old));
            let is_kept =
                |old: &Choice| !is_global(old) && new.iter().all(|new| new.key != old.key);
            let kept: Vec<_> = old.choices.into_iter().filter(is_kept).collect();
            draft.choices.extend(kept);
            draft.model = old.model;
        }
        if chain.iter().any(|preset| preset.name == to) {
            let names = [to.into(), base.name].into_iter();
            return Err(Error::Circle { names: names.chain([to.into()]).collect() });
        }
        chain.insert(0, draft);
        Ok(base.with_preset(to, chain))
    }

    /// Writes the preset of a [draft](Shelf::draft).
    ///
    /// # Errors
    /// If the file of presets cannot be written.
    pub fn write(&self, draft: &Entry) -> Result<(), Error> {
        draft.presets.first().map_or(Ok(()), Presets::replace)
    }

    /// Returns the model with exactly this name: a part of a name must not remove or replace one.
    fn exact(&self, name: &str) -> Result<Entry, Error> {
        match self.find(name)? {
            entry if entry.name.eq_ignore_ascii_case(name) => Ok(entry),
            entry => Err(Error::None { name: name.into(), near: vec![entry.name] }),
        }
    }

    /// Removes a model of the hub's cache: its links in all commits, and its files unless they have
    /// other names.
    fn remove_from_hub(&self, entry: &Entry, shared: &[Entry]) -> Result<Removed, Error> {
        let (aliases, links): (Vec<&Entry>, Vec<&Entry>) =
            shared.iter().partition(|entry| !entry.presets.is_empty());
        let blobs: Vec<PathBuf> =
            entry.paths.iter().filter_map(|path| path.canonicalize().ok()).collect();
        let names: Vec<String> = shared.iter().map(|entry| entry.name.clone()).collect();
        if links.is_empty() {
            // Aliases keep the file without its name. The parts of a model need their names.
            match &blobs[..] {
                [blob] => {
                    for alias in &aliases {
                        if let Some(preset) = alias.presets.last() {
                            Presets::set_model(
                                &preset.path,
                                &preset.name,
                                &blob.to_string_lossy(),
                            )?;
                        }
                    }
                }
                _ if aliases.is_empty() => {}
                _ => return Err(Error::Shared { name: entry.name.clone(), names }),
            }
        }
        let mut files = Vec::new();
        for (path, blob) in entry.paths.iter().zip(&blobs) {
            files.extend(links_to(blob, path));
        }
        if shared.is_empty() {
            files.extend(blobs.into_iter().filter(|blob| !entry.paths.contains(blob)));
        }
        removed(&entry.name, files, names)
    }

    /// Returns whether a file is a blob of the hub's cache that no snapshot links to.
    fn is_blob(&self, path: &Path) -> bool {
        let cache = self.options().hub_cache.as_ref().and_then(|cache| cache.canonicalize().ok());
        let inside = cache.is_some_and(|cache| path.starts_with(cache));
        inside && path.parent().and_then(Path::file_name).is_some_and(|name| name == "blobs")
    }
}

/// Returns whether two names have the same file.
fn same_file(one: &Entry, other: &Entry) -> bool {
    let real = |entry: &Entry| entry.path.canonicalize().ok();
    one.path == other.path || (real(one).is_some() && real(one) == real(other))
}

/// Returns the links to a blob with the file name of `path`, in all snapshots of a repository.
fn links_to(blob: &Path, path: &Path) -> Vec<PathBuf> {
    // REPO/snapshots/COMMIT/FILE, where FILE may be in folders.
    let snapshots = path.ancestors().find(|folder| folder.ends_with("snapshots"));
    let mut links = vec![path.to_path_buf()];
    let Some(snapshots) = snapshots else { return links };
    let inside = path.strip_prefix(snapshots).ok();
    let file: PathBuf = inside.into_iter().flat_map(|inside| inside.iter().skip(1)).collect();
    for commit in fs::read_dir(snapshots).into_iter().flatten().flatten() {
        let link = commit.path().join(&file);
        if link != path && link.canonicalize().is_ok_and(|target| target == blob) {
            links.push(link);
        }
    }
    links
}

/// Removes files. Those that another program has removed meanwhile are as good as removed.
fn removed(name: &str, files: Vec<PathBuf>, shared: Vec<String>) -> Result<Removed, Error> {
    let mut bytes = 0;
    for path in &files {
        let size = path.symlink_metadata().map_or(0, |metadata| metadata.len());
        match fs::remove_file(path) {
            Ok(()) => bytes += size,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(Error::Write { path: path.clone(), source }),
        }
    }
    Ok(Removed { name: name.into(), files, bytes, shared })
}
