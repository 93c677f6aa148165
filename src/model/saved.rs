//! A session in a file: its tokens, their keys and values, and what these were computed with.
//!
//! ```text
//! MAGIC, the length of the header (u64), the header (JSON), CRC-32 of these (u32)
//! tokens (u32 each), pages of the cache as they are
//! CRC-32 of all before it (u32)
//! ```
//! Numbers are little-endian. Keys and values fit one model and one plan of RoPE alone: a file of
//! another one is refused.

mod fingerprint;
mod header;

use std::io::{self, Read, Write};

use thiserror::Error;
use twox_hash::XxHash3_128;

pub use self::fingerprint::fingerprint;
use self::header::Header;
use super::{Session, session::SEQUENCE};
use crate::Token;

/// Bytes of a checksum.
const CHECKSUM: usize = 4;

/// Why a file cannot be read into a session.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Error {
    #[error("this is no session of rope-cpu")]
    Foreign,
    #[error("it was written by another version of rope-cpu, in a format that this one cannot read")]
    Version,
    #[error("the file is damaged: {0}")]
    Damaged(&'static str),
    #[error("the file is damaged: it has {found} bytes instead of {expected}")]
    Size { found: u64, expected: u64 },
    #[error("it was written with another model or adapter")]
    Model,
    #[error("it was written with other RoPE settings: {written}; now in force is {now}")]
    Rope { written: String, now: String },
    #[error(
        "its {part} are stored as {written}, and now they would be as {now}: give {flag} {written}"
    )]
    Cache { part: &'static str, flag: &'static str, written: String, now: &'static str },
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
            io::ErrorKind::UnexpectedEof => Error::Damaged("it ends early"),
            _ => Error::Io(error),
        }
    }
}

fn hexadecimal(hash: u128) -> String {
    format!("{hash:032x}")
}

impl Session<'_> {
    /// Writes the first `len` tokens, or all if there are fewer, to a file of the model with this
    /// [`fingerprint()`]. Returns how many were written: none, where a sliding window has dropped
    /// keys that would be needed to go on from there, or where all was computed again for a
    /// longer sequence; and no more than are kept, where the context has shifted.
    ///
    /// # Errors
    /// If `to` cannot be written.
    pub fn save(&mut self, model: u128, len: usize, to: impl Write) -> io::Result<usize> {
        let len = len.min(self.uninterrupted_prefix());
        let rope = self.rope();
        let rotated_alike =
            rope.plan().by_position() || rope.effective_length(len) == self.effective_length;
        let len = if rotated_alike && self.cache.holds(SEQUENCE, len) { len } else { 0 };
        let mut to = Checked::new(to);
        self.header(model, len).write(&mut to)?;
        for token in &self.tokens()[..len] {
            to.write_all(&token.to_le_bytes())?;
        }
        self.cache.write(SEQUENCE, len, &mut to)?;
        let sum = to.sum();
        to.write_all(&sum)?;
        to.flush()?;
        Ok(len)
    }

    /// Reads what [`Session::save`] wrote, a file of `size` bytes, in place of what was read.
    ///
    /// # Errors
    /// If the file is not one for this model and these settings; the session is then empty.
    pub fn restore(&mut self, model: u128, from: impl Read, size: u64) -> Result<(), Error> {
        self.truncate(0);
        let mut from = Checked::new(from);
        let header = Header::read(&mut from, size)?;
        let tokens = header.tokens;
        self.check(model, header)?;
        let tokens = (0..tokens)
            .map(|_| {
                let mut token = [0; size_of::<Token>()];
                from.read_exact(&mut token)?;
                Ok(Token::from_le_bytes(token))
            })
            .collect::<io::Result<Vec<_>>>()?;
        let read = self.cache.read(&self.team, SEQUENCE, tokens.len(), &mut from);
        let sum = from.sum();
        let mut expected = [0; CHECKSUM];
        let read = read.and_then(|()| from.read_exact(&mut expected));
        let known = |token: &Token| (*token as usize) < self.vocabulary();
        if read.is_err() || sum != expected || !tokens.iter().all(known) {
            self.cache.truncate(SEQUENCE, 0);
            read?;
            return Err(Error::Damaged("its content is wrong"));
        }
        self.resume(tokens);
        Ok(())
    }

    fn header(&self, model: u128, tokens: usize) -> Header {
        let identity = self.rope().plan().identity(tokens);
        Header {
            model: hexadecimal(model),
            rope: hexadecimal(XxHash3_128::oneshot(&identity)),
            rope_line: self.rope().plan().to_string(),
            keys: self.options.keys.name().into(),
            values: self.options.values.name().into(),
            tokens,
            content: self.content(tokens),
        }
    }

    /// Bytes of so many tokens, of their keys and values, and of the checksum.
    fn content(&self, tokens: usize) -> u64 {
        (size_of::<Token>() * tokens) as u64 + self.cache.written_bytes(tokens) + CHECKSUM as u64
    }

    /// Whether what follows a header of a file can be read, and belongs to this model and plan.
    fn check(&self, model: u128, written: Header) -> Result<(), Error> {
        if written.model != hexadecimal(model) {
            return Err(Error::Model);
        }
        // A count that the file cannot hold is not reckoned with.
        let wrong_count = Err(Error::Damaged("its header counts tokens that it does not hold"));
        if written.tokens as u64 > written.content / size_of::<Token>() as u64 {
            return wrong_count;
        }
        if written.tokens > self.capacity() {
            return Err(Error::Context { tokens: written.tokens, context: self.context() });
        }
        let now = self.header(model, written.tokens);
        if written.rope != now.rope {
            return Err(Error::Rope { written: written.rope_line, now: now.rope_line });
        }
        let options = &self.options;
        for (part, flag, written, now) in [
            ("keys", "-ctk", written.keys, options.keys.name()),
            ("values", "-ctv", written.values, options.values.name()),
        ] {
            if written != now {
                return Err(Error::Cache { part, flag, written, now });
            }
        }
        if written.content == now.content { Ok(()) } else { wrong_count }
    }
}

/// What goes through it is added to a checksum.
struct Checked<F> {
    inner: F,
    hash: crc32fast::Hasher,
}

impl<F> Checked<F> {
    fn new(inner: F) -> Self {
        Checked { inner, hash: crc32fast::Hasher::new() }
    }

    /// The checksum of what has gone through.
    fn sum(&self) -> [u8; CHECKSUM] {
        self.hash.clone().finalize().to_le_bytes()
    }
}

impl<F: Write> Write for Checked<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<F: Read> Read for Checked<F> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.hash.update(&bytes[..read]);
        Ok(read)
    }
}
