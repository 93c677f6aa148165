//! Saves a sequence to a file: its tokens, their keys and values, and the settings of the computation.
//!
//! ```text
//! MAGIC, the length of the header (u64), the header (JSON), CRC-32 of the preceding bytes (u32)
//! tokens (u32 each), pages of the cache as in memory, states of recurrent layers (f32 each)
//! CRC-32 of all preceding bytes (u32)
//! ```
//! Numbers are little-endian. Keys and values are valid only for one model and one RoPE plan; a file of
//! another model or plan is rejected.

mod archive;
mod fingerprint;
mod folder;
mod header;

use std::io::{self, Read, Write};

use thiserror::Error;

pub use archive::{Archive, Outline};
#[doc(hidden)]
pub use folder::{Folder, Kind, Saved, mismatch};

use super::{Engine, Sequence, Session};
use crate::{Token, settings::Setting};

/// The size of a checksum in bytes.
const CHECKSUM: usize = 4;

/// An error while restoring a sequence from a file.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum Error {
    #[error("this is not a prompt cache of rope-cpu")]
    Foreign,
    #[error(
        "it was written by another version of rope-cpu, in a format that this version cannot read"
    )]
    Version,
    #[error("the file is damaged: {0}")]
    Damaged(&'static str),
    #[error("the file is damaged: it has {found} bytes instead of {expected}")]
    Size { found: u64, expected: u64 },
    #[error("it was written with another model or adapter, or with other scales of adapters")]
    Model,
    #[error("it was written with other RoPE settings: {written}; this run uses {now}")]
    Rope { written: String, now: String },
    #[error("its {part} are stored as {written}, but this run uses {now}: set {setting} {written}")]
    Cache { part: &'static str, setting: Setting, written: String, now: &'static str },
    #[error(
        "it was written with another {name}: {written}; this run has: {now}",
        name = Setting::SPARSE_PROMPT
    )]
    Prompt { written: String, now: String },
    #[error(
        "it holds {tokens} tokens, more than the context of {context}: choose a larger one with -c"
    )]
    Context { tokens: usize, context: usize },
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::Damaged("it is incomplete"),
            _ => Error::Io(error),
        }
    }
}

fn hexadecimal(hash: u128) -> String {
    format!("{hash:032x}")
}

impl Engine {
    /// Writes the first `len` tokens of a sequence, or all if there are fewer, to a file of the
    /// model with this [`fingerprint`](super::Model::fingerprint). Returns the number of tokens
    /// written.
    ///
    /// It writes none if a sliding window has dropped keys that are needed to continue from there,
    /// or if all tokens were computed again for a longer sequence. It writes only the kept ones if
    /// the context has shifted, and those up to a [rewind point](Sequence::rewind_point) if layers
    /// are recurrent.
    ///
    /// # Errors
    /// If `to` cannot be written.
    pub fn save(
        &self,
        sequence: &Sequence,
        model: u128,
        len: usize,
        to: impl Write,
    ) -> io::Result<usize> {
        self.archive(model).save(sequence, len, to)
    }

    /// Replaces a sequence by the one that [`Engine::save`] wrote to a file of `size` bytes.
    ///
    /// # Errors
    /// If the file is damaged, or is for another model or other settings; the sequence is then empty.
    pub fn restore(
        &self,
        sequence: &mut Sequence,
        model: u128,
        from: impl Read,
        size: u64,
    ) -> Result<(), Error> {
        sequence.truncate(0);
        self.archive(model).restore(sequence, from, size)
    }

    /// Returns an archive, which saves and restores sequences on other threads while the engine
    /// computes. The model has this [`fingerprint`](super::Model::fingerprint).
    pub fn archive(&self, model: u128) -> Archive {
        Archive {
            model: self.predictor().map_or(model, |_| fingerprint::with_predictor(model)),
            plan: self.rope().plan().clone(),
            options: self.options().clone(),
            capacity: self.capacity(),
            vocabulary: self.vocabulary(),
            empty: self.sequence(),
            team: self.threads().clone(),
        }
    }
}

impl Session {
    /// Writes the session's sequence like [`Engine::save`].
    ///
    /// ```no_run
    /// use std::fs::File;
    /// # use rope_cpu::{model::Model, rope::Flags};
    ///
    /// # let model = Model::open("model.gguf")?;
    /// # let mut session = model.session(&Flags::default(), 4096)?;
    /// let fingerprint = model.fingerprint();
    /// session.save(fingerprint, session.tokens().len(), File::create("story.cache")?)?;
    ///
    /// // Later, with the same model and RoPE settings:
    /// let file = File::open("story.cache")?;
    /// let size = file.metadata()?.len();
    /// session.restore(fingerprint, file, size)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Engine::save`].
    pub fn save(&self, model: u128, len: usize, to: impl Write) -> io::Result<usize> {
        self.engine.save(&self.sequence, model, len, to)
    }

    /// Reads the session's sequence like [`Engine::restore`].
    ///
    /// # Errors
    /// As for [`Engine::restore`].
    pub fn restore(&mut self, model: u128, from: impl Read, size: u64) -> Result<(), Error> {
        self.engine.restore(&mut self.sequence, model, from, size)
    }

    /// Returns an archive like [`Engine::archive`].
    pub fn archive(&self, model: u128) -> Archive {
        self.engine.archive(model)
    }
}

/// Returns the size in bytes of `tokens` tokens, their keys and values, `states` states, and the
/// checksum.
fn content(sequence: &Sequence, tokens: usize, states: usize) -> u64 {
    let memory = sequence.table.written_bytes(tokens, states);
    (size_of::<Token>() * tokens) as u64 + memory + CHECKSUM as u64
}

/// A reader or writer that computes the checksum of all bytes.
struct Checksummed<F> {
    inner: F,
    hash: crc32fast::Hasher,
}

impl<F> Checksummed<F> {
    fn new(inner: F) -> Self {
        Checksummed { inner, hash: crc32fast::Hasher::new() }
    }

    /// Returns the checksum of all bytes so far.
    fn sum(&self) -> [u8; CHECKSUM] {
        self.hash.clone().finalize().to_le_bytes()
    }
}

impl<F: Write> Write for Checksummed<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<F: Read> Read for Checksummed<F> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.hash.update(&bytes[..read]);
        Ok(read)
    }
}
