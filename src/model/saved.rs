//! Saving a sequence to a file: its tokens, their keys and values, and the settings of the computation.
//!
//! ```text
//! MAGIC, the length of the header (u64), the header (JSON), CRC-32 of the preceding bytes (u32)
//! tokens (u32 each), pages of the cache as in memory
//! CRC-32 of all preceding bytes (u32)
//! ```
//! Numbers are little-endian. Keys and values are valid only for one model and one RoPE plan; a file of
//! another model or plan is rejected.

mod fingerprint;
mod header;

use std::io::{self, Read, Write};

use thiserror::Error;
use twox_hash::XxHash3_128;

use self::header::Header;
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
    #[error("it was written with another model or adapter")]
    Model,
    #[error("it was written with other RoPE settings: {written}; this run uses {now}")]
    Rope { written: String, now: String },
    #[error("its {part} are stored as {written}, but this run uses {now}: set {setting} {written}")]
    Cache { part: &'static str, setting: Setting, written: String, now: &'static str },
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
    /// Writes the first `len` tokens of a sequence, or all if there are fewer, to a file of the model
    /// with this [`fingerprint`](super::Model::fingerprint). Returns the number of tokens written: none if a sliding window has
    /// dropped keys that are needed to continue from there, or if all tokens were computed again for
    /// a longer sequence; and only the kept ones if the context has shifted.
    ///
    /// # Errors
    /// If `to` cannot be written.
    pub fn save(
        &self,
        sequence: &Sequence,
        model: u128,
        len: usize,
        to: impl Write + Send,
    ) -> io::Result<usize> {
        let len = len.min(sequence.uninterrupted_prefix());
        let len = self.reusable(sequence, len, len);
        let mut to = Checksummed::new(to);
        self.header(sequence, model, len).write(&mut to)?;
        for token in &sequence.tokens()[..len] {
            to.write_all(&token.to_le_bytes())?;
        }
        sequence.table.write(self.team(), len, &mut to)?;
        let sum = to.sum();
        to.write_all(&sum)?;
        to.flush()?;
        Ok(len)
    }

    /// Replaces a sequence by the one that [`Engine::save`] wrote to a file of `size` bytes.
    ///
    /// # Errors
    /// If the file is damaged, or is for another model or other settings; the sequence is then empty.
    pub fn restore(
        &self,
        sequence: &mut Sequence,
        model: u128,
        from: impl Read + Send,
        size: u64,
    ) -> Result<(), Error> {
        sequence.truncate(0);
        let mut from = Checksummed::new(from);
        let header = Header::read(&mut from, size)?;
        let tokens = header.tokens;
        self.check_header(sequence, model, header)?;
        let tokens = (0..tokens)
            .map(|_| {
                let mut token = [0; size_of::<Token>()];
                from.read_exact(&mut token)?;
                Ok(Token::from_le_bytes(token))
            })
            .collect::<io::Result<Vec<_>>>()?;
        let read = sequence.table.read(self.team(), tokens.len(), &mut from);
        let sum = from.sum();
        let mut expected = [0; CHECKSUM];
        let read = read.and_then(|()| from.read_exact(&mut expected));
        let known = |token: &Token| (*token as usize) < self.vocabulary();
        if read.is_err() || sum != expected || !tokens.iter().all(known) {
            sequence.table.truncate(0);
            read?;
            return Err(Error::Damaged("its content is invalid"));
        }
        sequence.resume(tokens, self.rope().plan());
        Ok(())
    }

    fn header(&self, sequence: &Sequence, model: u128, tokens: usize) -> Header {
        let plan = self.rope().plan();
        Header {
            model: hexadecimal(model),
            rope: hexadecimal(XxHash3_128::oneshot(&plan.identity(tokens))),
            rope_line: plan.to_string(),
            keys: self.options().keys.name().into(),
            values: self.options().values.name().into(),
            tokens,
            content: content(sequence, tokens),
        }
    }

    /// Checks that a file with this header is for this model, plan and options.
    fn check_header(&self, sequence: &Sequence, model: u128, written: Header) -> Result<(), Error> {
        if written.model != hexadecimal(model) {
            return Err(Error::Model);
        }
        // Checksummed before the sizes are computed, which could overflow.
        let wrong_count = Err(Error::Damaged("its header does not match its size"));
        if written.tokens as u64 > written.content / size_of::<Token>() as u64 {
            return wrong_count;
        }
        if written.tokens > self.capacity() {
            let context = self.options().context;
            return Err(Error::Context { tokens: written.tokens, context });
        }
        let now = self.header(sequence, model, written.tokens);
        if written.rope != now.rope {
            return Err(Error::Rope { written: written.rope_line, now: now.rope_line });
        }
        let options = self.options();
        for (part, setting, written, now) in [
            ("keys", Setting::CACHE_TYPE_K, written.keys, options.keys.name()),
            ("values", Setting::CACHE_TYPE_V, written.values, options.values.name()),
        ] {
            if written != now {
                return Err(Error::Cache { part, setting, written, now });
            }
        }
        if written.content == now.content { Ok(()) } else { wrong_count }
    }
}

impl Session {
    /// Writes the session's sequence like [`Engine::save`].
    ///
    /// # Errors
    /// As for [`Engine::save`].
    pub fn save(&self, model: u128, len: usize, to: impl Write + Send) -> io::Result<usize> {
        self.engine.save(&self.sequence, model, len, to)
    }

    /// Reads the session's sequence like [`Engine::restore`].
    ///
    /// # Errors
    /// As for [`Engine::restore`].
    pub fn restore(&mut self, model: u128, from: impl Read + Send, size: u64) -> Result<(), Error> {
        self.engine.restore(&mut self.sequence, model, from, size)
    }
}

/// Returns the size in bytes of `tokens` tokens, their keys and values, and the checksum.
fn content(sequence: &Sequence, tokens: usize) -> u64 {
    (size_of::<Token>() * tokens) as u64 + sequence.table.written_bytes(tokens) + CHECKSUM as u64
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
