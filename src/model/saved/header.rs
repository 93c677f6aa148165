//! The header of a session file.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use super::{CHECKSUM, Checksummed, Error};
use crate::json;

/// The first bytes; the last of them is the version of the format. Versions differ in at least two
/// bits, so that a single wrong bit is reported as damage.
const MAGIC: &[u8; 8] = b"ropecpu8";
/// The first bytes of all versions.
const MAGIC_STEM: &[u8] = b"ropecpu";
/// The largest size of a header in bytes.
const HEADER_MAX: u64 = 64 << 10;

/// The settings that the tokens were computed with.
#[derive(Serialize, Deserialize)]
pub(super) struct Header {
    /// The [`fingerprint`](crate::model::Model::fingerprint) of the model, in hexadecimal.
    pub model: String,
    /// A hash of the RoPE plan, in hexadecimal.
    pub rope: String,
    /// The RoPE plan as a line, for error messages.
    pub rope_line: String,
    pub keys: String,
    pub values: String,
    /// The settings of sparse prompts as a line, if the tokens have keys of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sparse_prompt: Option<String>,
    pub tokens: usize,
    /// The lengths with a state of recurrent layers, in ascending order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<usize>,
    /// The number of bytes that follow the header and its checksum.
    pub content: u64,
}

impl Header {
    /// Writes the part of the file before the tokens.
    pub fn write(&self, to: &mut Checksummed<impl Write>) -> io::Result<()> {
        let header = serde_json::to_vec(self)?;
        to.write_all(MAGIC)?;
        to.write_all(&(header.len() as u64).to_le_bytes())?;
        to.write_all(&header)?;
        let sum = to.sum();
        to.write_all(&sum)
    }

    /// Reads and checks the part before the tokens, of a file of `size` bytes.
    pub fn read(from: &mut Checksummed<impl Read>, size: u64) -> Result<Self, Error> {
        let mut magic = [0; MAGIC.len()];
        let present = &mut magic[..size.min(MAGIC.len() as u64) as usize];
        from.read_exact(present)?;
        let short = Err(Error::Damaged("it ends within its header"));
        if present.len() < MAGIC.len() {
            return if MAGIC.starts_with(present) { short } else { Err(Error::Foreign) };
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
