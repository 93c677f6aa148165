//! The beginning of a session's file.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use super::{CHECKSUM, Checked, Error};
use crate::json;

/// The last byte is the version of the format. Versions differ in two bits or more, so that one
/// that is wrong by a single bit is known as damage.
const MAGIC: &[u8; 8] = b"ropecpu2";
/// What all versions begin with.
const MAGIC_STEM: &[u8] = b"ropecpu";
/// A header is smaller than this.
const HEADER_MAX: u64 = 64 << 10;

/// What the tokens were computed with.
#[derive(Serialize, Deserialize)]
pub(super) struct Header {
    /// The [`fingerprint()`](super::fingerprint()) of the model, in hexadecimal.
    pub model: String,
    /// A hash of the plan of RoPE, in hexadecimal.
    pub rope: String,
    /// The plan as a line, to tell the user.
    pub rope_line: String,
    pub keys: String,
    pub values: String,
    pub tokens: usize,
    /// Bytes that follow the header and its checksum.
    pub content: u64,
}

impl Header {
    /// Writes what comes before the tokens.
    pub fn write(&self, to: &mut Checked<impl Write>) -> io::Result<()> {
        let header = serde_json::to_vec(self)?;
        to.write_all(MAGIC)?;
        to.write_all(&(header.len() as u64).to_le_bytes())?;
        to.write_all(&header)?;
        let sum = to.sum();
        to.write_all(&sum)
    }

    /// Reads and checks what comes before the tokens of a file of `size` bytes.
    pub fn read(from: &mut Checked<impl Read>, size: u64) -> Result<Self, Error> {
        let mut magic = [0; MAGIC.len()];
        let there = &mut magic[..size.min(MAGIC.len() as u64) as usize];
        from.read_exact(there)?;
        let short = Err(Error::Damaged("it ends within its header"));
        if there.len() < MAGIC.len() {
            return if MAGIC.starts_with(there) { short } else { Err(Error::Foreign) };
        }
        match (u64::from_le_bytes(magic) ^ u64::from_le_bytes(*MAGIC)).count_ones() {
            0 => {}
            1 => return Err(Error::Damaged("its first bytes are wrong")),
            _ if magic.starts_with(MAGIC_STEM) => return Err(Error::Version),
            _ => return Err(Error::Foreign),
        }
        let before = (MAGIC.len() + size_of::<u64>()) as u64;
        if size < before {
            return short;
        }
        let mut length = [0; size_of::<u64>()];
        from.read_exact(&mut length)?;
        let length = u64::from_le_bytes(length);
        let wrong = Error::Damaged("its header does not match its checksum");
        if length > HEADER_MAX {
            return Err(wrong);
        }
        let end = before + length + CHECKSUM as u64;
        if size < end {
            return short;
        }
        let mut header = vec![0; length as usize];
        from.read_exact(&mut header)?;
        let sum = from.sum();
        let mut expected = [0; CHECKSUM];
        from.read_exact(&mut expected)?;
        if sum != expected {
            return Err(wrong);
        }
        let unreadable = || Error::Damaged("its header cannot be read");
        let header = String::from_utf8(header).map_err(|_| unreadable())?;
        let header: Header = json::parse(&header).map_err(|_| unreadable())?;
        let expected = end.saturating_add(header.content);
        if size != expected {
            return Err(Error::Size { found: size, expected });
        }
        Ok(header)
    }
}
