//! The thread that reads and writes the files of the cache on disk.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{Receiver, Sender},
    time::{Instant, SystemTime},
};

use crate::model::{
    Sequence,
    saved::{Error, Folder, Kind, Saved},
};
use tracing::{info, warn};

/// A task for the thread.
pub enum Work {
    /// Write a sequence to a file.
    Save { name: String, kind: Kind, sequence: Box<Sequence>, used: SystemTime },
    /// Read a file.
    Load { name: String, kind: Kind },
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

/// Executes tasks until the sender is dropped. A task that panics counts as failed, so requests
/// that wait for it continue.
pub fn work(folder: &Folder, received: &Receiver<Work>, report: &Sender<Done>) {
    for work in received {
        let done = match work {
            Work::Save { name, kind, sequence, used } => {
                let bytes = unless_panics(|| save(folder, &name, kind, &sequence, used));
                Done::Saved { name, bytes }
            }
            Work::Load { name, kind } => {
                let sequence = unless_panics(|| load(folder, &name, kind));
                Done::Loaded { name, sequence }
            }
            Work::Remove { name } => {
                if let Err(e) = folder.remove(&name) {
                    let path = folder.path_of(&name);
                    warn!(target: "cache", "cannot remove {}: {e}", path.display());
                }
                continue;
            }
        };
        // At the end, the scheduler no longer reads results.
        let _ = report.send(done);
    }
}

/// Returns the result of a task, or the default, which means a failure.
fn unless_panics<T: Default>(task: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(task)).unwrap_or_default()
}

fn save(folder: &Folder, name: &str, kind: Kind, sequence: &Sequence, used: SystemTime) -> u64 {
    let (len, started) = (sequence.tokens().len(), Instant::now());
    match folder.write(sequence, len, kind, used) {
        Ok(Saved { name, bytes, .. }) => {
            log("saved", &name, len, bytes, started);
            bytes
        }
        Err(e) => {
            warn!(target: "cache", "cannot write {}: {e}", folder.path_of(name).display());
            0
        }
    }
}

fn load(folder: &Folder, name: &str, kind: Kind) -> Option<Box<Sequence>> {
    let started = Instant::now();
    match folder.sequence(name) {
        Ok((sequence, bytes)) => {
            log("restored", name, sequence.tokens().len(), bytes, started);
            Some(Box::new(sequence))
        }
        Err(e) => {
            discard(folder, name, kind, &e);
            None
        }
    }
}

/// Reports an unusable file, and removes a conversation with invalid contents.
pub fn discard(folder: &Folder, name: &str, kind: Kind, error: &Error) {
    let path = folder.path_of(name);
    let removed = match (kind, error) {
        (_, Error::Io(_)) | (Kind::Document, _) => "",
        // If this fails, the next start reports the file again.
        (Kind::Conversation { .. }, _) if folder.remove(name).is_ok() => " and removed",
        (Kind::Conversation { .. }, _) => "",
    };
    warn!(target: "cache", "{} is ignored{removed}: {error}", path.display());
}

fn log(what: &str, name: &str, tokens: usize, bytes: u64, started: Instant) {
    let time_ms = started.elapsed().as_micros() as f64 / 1e3;
    info!(target: "cache", file = %name, tokens, bytes, time_ms, "{what}");
}
