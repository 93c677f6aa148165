//! Commands to the scheduler.

use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rope_cpu::{
    model::Engine,
    whole_file::{open_regular, regular_file, remove_abandoned},
};
use tokio::sync::oneshot;
use tracing::warn;

use super::{adapters::Scales, error::ApiError, job::Job, slot::Slot};

/// A command.
pub enum Command {
    /// Computes an answer.
    Answer(Box<Job>),
    /// Ends the scheduler. Answers that are left are cut off.
    End,
    /// Does something with the sequence of an idle slot.
    Slot {
        /// The number of the slot.
        id: usize,
        /// The action.
        action: SlotAction,
        /// Receives the result.
        reply: oneshot::Sender<Result<SlotResult, ApiError>>,
    },
}

/// An action on the sequence of a slot.
#[derive(Debug)]
pub enum SlotAction {
    /// Writes it to a file.
    Save {
        /// The file.
        path: PathBuf,
        /// The fingerprint of the model.
        model: u128,
    },
    /// Replaces it by that of a file.
    Restore {
        /// The file.
        path: PathBuf,
        /// The fingerprint of the model.
        model: u128,
        /// The scales of adapters that it was computed with.
        scales: Scales,
    },
    /// Empties it.
    Erase,
}

/// The result of an action on the sequence of a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlotResult {
    /// The number of tokens saved, restored or erased.
    pub tokens: usize,
    /// The number of bytes written or read.
    pub bytes: u64,
    /// The time that it took.
    pub time: Duration,
}

impl SlotAction {
    /// Acts on an idle slot.
    ///
    /// # Errors
    /// If the file cannot be read or written, or does not belong to the model.
    pub fn apply(&self, engine: &Engine, slot: &mut Slot) -> Result<SlotResult, ApiError> {
        let started = Instant::now();
        let (tokens, bytes) = match self {
            SlotAction::Save { path, model } => {
                let saved = regular_file(path, |file| {
                    engine.save(&slot.sequence, *model, usize::MAX, file)
                });
                (saved.map_err(|e| failed(path, e))?, size(path)?)
            }
            SlotAction::Restore { path, model, scales } => {
                let file = open_regular(path, File::options().read(true));
                let file = file.map_err(|e| failed(path, e))?;
                let size = file.metadata().map_err(|e| failed(path, e))?.len();
                let from = BufReader::new(file);
                slot.sequence.set_adapter_scales(scales).map_err(|e| failed(path, e))?;
                let restored = engine.restore(&mut slot.sequence, *model, from, size);
                restored.map_err(|e| failed(path, e))?;
                (slot.sequence.tokens().len(), size)
            }
            SlotAction::Erase => {
                let tokens = slot.sequence.tokens().len();
                slot.sequence = engine.sequence();
                (tokens, 0)
            }
        };
        Ok(SlotResult { tokens, bytes, time: started.elapsed() })
    }
}

/// Removes the files that servers which were killed left incomplete in the folder of saved slots.
pub fn remove_incomplete(folder: &Path) {
    for file in folder.read_dir().into_iter().flatten().flatten() {
        if let Err(e) = remove_abandoned(&file.path()) {
            warn!(target: "cache", "cannot remove {}: {e}", file.path().display());
        }
    }
}

fn size(path: &Path) -> Result<u64, ApiError> {
    Ok(path.metadata().map_err(|e| failed(path, e))?.len())
}

/// Returns an error that names the file, but not its folder.
fn failed(path: &Path, error: impl std::fmt::Display) -> ApiError {
    let name = path.file_name().unwrap_or_default();
    ApiError::invalid(format_args!("{}: {error}", name.display()))
}
