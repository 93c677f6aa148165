//! A session in a file: its tokens, their keys and values, and what these were computed with.
//!
//! ```text
//! MAGIC, the length of the header (u64), the header (JSON)
//! tokens (u32 each), pages of the cache as they are
//! CRC-32 of all before it (u32)
//! ```
//! Numbers are little-endian. Keys and values fit one model and one plan of RoPE alone: a file of
//! another one is refused.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Adapter, Config, Session, session::SEQUENCE};
use crate::{Token, gguf::Gguf, json};

const MAGIC: &[u8; 8] = b"ropecpu1";
/// A header is smaller than this.
const HEADER_MAX: u64 = 64 << 10;

/// What the tokens were computed with.
#[derive(Serialize, Deserialize)]
struct Header {
    model: u32,
    rope: u32,
    /// The plan as a line, to tell the user.
    rope_line: String,
    keys: String,
    values: String,
    tokens: usize,
}

/// Why a file cannot be read into a session.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Error {
    #[error("this is no session of rope-cpu")]
    Foreign,
    #[error("the file is damaged: {0}")]
    Damaged(&'static str),
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
    Io(#[from] io::Error),
}

/// Tells models apart: a number made of what they are like, of what adapts them, and of the
/// beginning of each tensor.
pub fn fingerprint(gguf: &Gguf<'_>, config: &Config, adapters: &[Adapter<'_>]) -> u32 {
    const SAMPLE: usize = 4096;
    let mut hash = crc32fast::Hasher::new();
    hash.update(format!("{config:?}").as_bytes());
    adapters.iter().for_each(|adapter| hash.update(&adapter.scale.to_le_bytes()));
    let adapting = adapters.iter().flat_map(|adapter| &adapter.tensors);
    for tensor in gguf.tensors().iter().chain(adapting) {
        hash.update(tensor.name.as_bytes());
        hash.update(tensor.ggml_type.name.as_bytes());
        hash.update(&tensor.bytes[..tensor.bytes.len().min(SAMPLE)]);
    }
    hash.finalize()
}

impl Session<'_> {
    /// Writes the first `len` tokens, or all if there are fewer, to a file of the model with this
    /// [`fingerprint`]. Returns how many were written: none, where a sliding window has dropped
    /// keys that would be needed to go on from there, or where all was computed again for a
    /// longer sequence; and no more than are kept, where the context has shifted.
    ///
    /// # Errors
    /// If `to` cannot be written.
    pub fn save(&mut self, model: u32, len: usize, to: impl Write) -> io::Result<usize> {
        let len = len.min(self.intact());
        let rope = self.rope();
        let rotated_alike =
            rope.plan().by_position() || rope.effective_length(len) == self.effective_length;
        let len = if rotated_alike && self.cache.holds(SEQUENCE, len) { len } else { 0 };
        let mut to = Checked::new(to);
        let header = serde_json::to_vec(&self.header(model, len))?;
        to.write_all(MAGIC)?;
        to.write_all(&(header.len() as u64).to_le_bytes())?;
        to.write_all(&header)?;
        for token in &self.tokens()[..len] {
            to.write_all(&token.to_le_bytes())?;
        }
        self.cache.write(SEQUENCE, len, &mut to)?;
        let sum = to.hash.finalize();
        to.inner.write_all(&sum.to_le_bytes())?;
        to.inner.flush()?;
        Ok(len)
    }

    /// Reads what [`Session::save`] wrote, a file of `size` bytes, in place of what was read.
    ///
    /// # Errors
    /// If the file is not one for this model and these settings; the session is then empty.
    pub fn restore(&mut self, model: u32, from: impl Read, size: u64) -> Result<(), Error> {
        self.truncate(0);
        let mut from = Checked::new(from);
        let mut magic = [0; MAGIC.len()];
        let mut length = [0; 8];
        let short = |_| Error::Foreign;
        from.read_exact(&mut magic).map_err(short)?;
        from.read_exact(&mut length).map_err(short)?;
        let length = u64::from_le_bytes(length);
        if &magic != MAGIC || length > HEADER_MAX {
            return Err(Error::Foreign);
        }
        let mut header = vec![0; length as usize];
        from.read_exact(&mut header)?;
        let header = String::from_utf8(header).map_err(|_| Error::Foreign)?;
        let header: Header = json::parse(&header).map_err(|_| Error::Damaged("its header"))?;
        let tokens = header.tokens;
        self.check(model, header, size)?;
        let before = (MAGIC.len() + 8) as u64 + length;
        let expected = before + 4 * tokens as u64 + self.cache.written_bytes(tokens) + 4;
        if size != expected {
            return Err(Error::Damaged("its length"));
        }
        let tokens = (0..tokens)
            .map(|_| {
                let mut token = [0; size_of::<Token>()];
                from.read_exact(&mut token)?;
                Ok(Token::from_le_bytes(token))
            })
            .collect::<io::Result<Vec<_>>>()?;
        let read = self.cache.read(&self.team, SEQUENCE, tokens.len(), &mut from);
        let sum = from.hash.finalize();
        let mut expected = [0; 4];
        let read = read.and_then(|()| from.inner.read_exact(&mut expected));
        let known = |token: &Token| (*token as usize) < self.vocabulary();
        if read.is_err() || sum != u32::from_le_bytes(expected) || !tokens.iter().all(known) {
            self.cache.truncate(SEQUENCE, 0);
            read?;
            return Err(Error::Damaged("its checksum"));
        }
        self.resume(tokens);
        Ok(())
    }

    fn header(&self, model: u32, tokens: usize) -> Header {
        Header {
            model,
            rope: crc32fast::hash(&self.rope().plan().identity(tokens)),
            rope_line: self.rope().plan().to_string(),
            keys: self.options.keys.name().into(),
            values: self.options.values.name().into(),
            tokens,
        }
    }

    fn check(&self, model: u32, written: Header, size: u64) -> Result<(), Error> {
        if written.model != model {
            return Err(Error::Model);
        }
        // Each takes four bytes at least, so that no number is believed that the file cannot hold.
        if written.tokens as u64 > size / 4 {
            return Err(Error::Damaged("its length"));
        }
        if written.tokens > self.room() {
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
        Ok(())
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
