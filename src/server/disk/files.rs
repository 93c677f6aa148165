//! The files of the cache on disk, and the thread that reads and writes them.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File},
    io::{self, BufReader},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, Sender},
    },
    time::{Instant, SystemTime},
};

use rope_cpu::{
    model::{
        Sequence,
        saved::{Archive, Error},
    },
    whole_file::{open_regular, regular_file, remove_abandoned},
};
use tracing::{info, warn};

use super::{Entry, State};

/// The extension of files.
const EXTENSION: &str = "sequence";

/// The folder of the cache.
pub struct Files {
    folder: PathBuf,
    archive: Arc<Archive>,
}

/// A task of the thread.
pub enum Work {
    /// Write a sequence to a file.
    Save { name: String, sequence: Box<Sequence>, used: SystemTime },
    /// Read a file.
    Load { name: String },
    /// Remove a file.
    Remove { name: String },
}

/// The result of a task.
pub enum Done {
    /// A sequence was written; the file has no bytes if that failed.
    Saved { name: String, bytes: u64 },
    /// A sequence was read; `None` if that failed.
    Loaded { name: String, sequence: Option<Box<Sequence>> },
}

impl Files {
    /// Opens the folder, which is created if it does not exist.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn open(folder: PathBuf, archive: Arc<Archive>) -> io::Result<Self> {
        // Others are not to read conversations.
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(Files { folder, archive })
    }

    /// Lists the files. Those that are damaged are removed; those of another model or of other settings
    /// are listed without tokens.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn list(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for file in fs::read_dir(&self.folder)? {
            let path = file?.path();
            match path.extension().and_then(OsStr::to_str) {
                Some(EXTENSION) => match self.entry(&path) {
                    Ok(entry) => entries.extend(entry),
                    Err(e) => discard(&path, &e),
                },
                _ if is_of_cache(&path) => {
                    if let Err(e) = remove_abandoned(&path) {
                        warn!(target: "cache", "cannot remove {}: {e}", path.display());
                    }
                }
                _ => {}
            }
        }
        Ok(entries)
    }

    fn entry(&self, path: &Path) -> Result<Option<Entry>, Error> {
        let Some(name) = path.file_stem().and_then(OsStr::to_str) else { return Ok(None) };
        let file = open_regular(path, File::options().read(true))?;
        let metadata = file.metadata()?;
        let tokens = match self.archive.tokens(BufReader::new(file), metadata.len()) {
            Ok(tokens) => tokens,
            Err(
                Error::Model | Error::Rope { .. } | Error::Cache { .. } | Error::Context { .. },
            ) => Vec::new(),
            Err(e) => return Err(e),
        };
        Ok(Some(Entry {
            name: name.into(),
            tokens,
            bytes: metadata.len(),
            used: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            state: State::Ready,
        }))
    }

    /// Does what is received, until the sender is dropped.
    pub fn work(&self, received: &Receiver<Work>, report: &Sender<Done>) {
        for work in received {
            let done = match work {
                Work::Save { name, sequence, used } => {
                    let bytes = self.save(&name, &sequence, used);
                    Done::Saved { name, bytes }
                }
                Work::Load { name } => {
                    let sequence = self.load(&name);
                    Done::Loaded { name, sequence }
                }
                Work::Remove { name } => {
                    // Another server may have removed it.
                    let _ = fs::remove_file(self.path(&name));
                    continue;
                }
            };
            // The scheduler does not read the results of its last requests.
            let _ = report.send(done);
        }
    }

    fn save(&self, name: &str, sequence: &Sequence, used: SystemTime) -> u64 {
        let (path, started) = (self.path(name), Instant::now());
        let saved = regular_file(&path, |file| self.archive.save(sequence, usize::MAX, file));
        let saved = saved.and_then(|tokens| {
            let file = File::options().write(true).open(&path)?;
            file.set_modified(used)?;
            Ok((tokens, file.metadata()?.len()))
        });
        match saved {
            Ok((tokens, bytes)) if tokens == sequence.tokens().len() => {
                log("saved", &path, tokens, bytes, started);
                bytes
            }
            // Not all of it can be continued from a file: after a shift of the context.
            Ok(_) => {
                let _ = fs::remove_file(&path);
                0
            }
            Err(e) => {
                warn!(target: "cache", "cannot write {}: {e}", path.display());
                0
            }
        }
    }

    fn load(&self, name: &str) -> Option<Box<Sequence>> {
        let (path, started) = (self.path(name), Instant::now());
        let read = open_regular(&path, File::options().read(true).write(true)).map_err(Error::from);
        let read = read.and_then(|file| {
            let bytes = file.metadata()?.len();
            let sequence = self.archive.sequence(BufReader::new(&file), bytes)?;
            // So that it counts as used after the end of this server, too. Failing that, it is older.
            let _ = file.set_modified(SystemTime::now());
            Ok((sequence, bytes))
        });
        match read {
            Ok((sequence, bytes)) => {
                log("restored", &path, sequence.tokens().len(), bytes, started);
                Some(Box::new(sequence))
            }
            Err(e) => {
                discard(&path, &e);
                None
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name).with_extension(EXTENSION)
    }
}

/// Reports a file that cannot be used, and removes it if its contents are invalid.
fn discard(path: &Path, error: &Error) {
    let removed = match error {
        Error::Io(_) => "",
        // Failing that, it is reported again.
        _ if fs::remove_file(path).is_ok() => " and removed",
        _ => "",
    };
    warn!(target: "cache", "{} is ignored{removed}: {error}", path.display());
}

/// Returns whether an incomplete file would become one of the cache.
fn is_of_cache(path: &Path) -> bool {
    path.to_string_lossy().contains(&format!(".{EXTENSION}."))
}

fn log(what: &str, path: &Path, tokens: usize, bytes: u64, started: Instant) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let time_ms = started.elapsed().as_micros() as f64 / 1e3;
    info!(target: "cache", file = %name, tokens, bytes, time_ms, "{what}");
}
