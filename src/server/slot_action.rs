//! Saves, restores and erases the sequences of slots.

use std::{
    fs::File,
    io::{
        self, BufReader,
        ErrorKind::{FileTooLarge, InvalidFilename, InvalidInput, QuotaExceeded, StorageFull},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rope_cpu::{
    batch::Scales,
    model::{Engine, Sequence},
    whole_file::{open_regular, regular_file, remove_abandoned},
};
use tracing::warn;

use super::error::ApiError;

/// An action on the sequence of a slot.
#[derive(Debug)]
pub enum SlotAction {
    /// Saves the sequence to a file.
    Save {
        /// The file.
        path: PathBuf,
        /// The fingerprint of the model.
        model: u128,
    },
    /// Loads the sequence from a file.
    Restore {
        /// The file.
        path: PathBuf,
        /// The fingerprint of the model.
        model: u128,
        /// The scales of adapters used to compute it.
        scales: Scales,
    },
    /// Empties the sequence.
    Erase,
}

/// The result of an action on the sequence of a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlotResult {
    /// The number of tokens saved, restored or erased.
    pub tokens: usize,
    /// The number of bytes written or read.
    pub bytes: u64,
    /// The time taken.
    pub time: Duration,
}

impl SlotAction {
    /// Performs the action on an idle slot.
    ///
    /// # Errors
    /// If the file cannot be read or written, or does not belong to the model. A disk that is full is
    /// an error of the server, and a wrong file one of the request.
    pub fn apply(&self, engine: &Engine, sequence: &mut Sequence) -> Result<SlotResult, ApiError> {
        let started = Instant::now();
        let (tokens, bytes) = match self {
            SlotAction::Save { path, model } => {
                let saved =
                    regular_file(path, |file| engine.save(sequence, *model, usize::MAX, file));
                (saved.map_err(|e| not_saved(path, &e))?, size(path)?)
            }
            SlotAction::Restore { path, model, scales } => {
                let file = open_regular(path, File::options().read(true));
                let file = file.map_err(|e| failed(path, e))?;
                let size = file.metadata().map_err(|e| failed(path, e))?.len();
                let from = BufReader::new(file);
                sequence.set_adapter_scales(scales).map_err(|e| failed(path, e))?;
                let restored = engine.restore(sequence, *model, from, size);
                restored.map_err(|e| failed(path, e))?;
                (sequence.tokens().len(), size)
            }
            SlotAction::Erase => {
                let tokens = sequence.tokens().len();
                *sequence = engine.sequence();
                (tokens, 0)
            }
        };
        Ok(SlotResult { tokens, bytes, time: started.elapsed() })
    }
}

/// Removes incomplete files of killed servers from the folder of saved slots.
pub fn remove_incomplete(folder: &Path) {
    for file in folder.read_dir().into_iter().flatten().flatten() {
        // Each API key has a folder.
        if file.file_type().is_ok_and(|kind| kind.is_dir()) && folder_of_owner(&file.path()) {
            remove_incomplete(&file.path());
        } else if let Err(e) = remove_abandoned(&file.path()) {
            warn!(target: "cache", "cannot remove {}: {e}", file.path().display());
        }
    }
}

/// Returns whether a folder is named like an owner's folder.
fn folder_of_owner(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn size(path: &Path) -> Result<u64, ApiError> {
    Ok(path.metadata().map_err(|e| failed(path, e))?.len())
}

/// Returns why a slot was not saved. The client chose the name of the file, and nothing else.
fn not_saved(path: &Path, error: &io::Error) -> ApiError {
    let message = failed(path, error).message;
    match error.kind() {
        InvalidInput | InvalidFilename => ApiError::invalid(message),
        StorageFull | QuotaExceeded | FileTooLarge => ApiError::no_room(format_args!(
            "{message}: the slot was not saved; free space in the folder of --slot-save-path, or raise its limit"
        )),
        _ => ApiError::internal(format_args!("{message}: the slot was not saved")),
    }
}

/// Returns an error that names the file without its folder.
fn failed(path: &Path, error: impl std::fmt::Display) -> ApiError {
    let name = path.file_name().unwrap_or_default();
    ApiError::invalid(format_args!("{}: {error}", name.display()))
}
