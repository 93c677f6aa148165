//! Reads the header in one pass, and checks every value before using it.

use super::limits::*;
use super::tensors::Layout;
use super::types::{Lookup, lookup};
use super::{Array, Error, Metadata, Value, ValueType, quoted};

/// The fixed part at the start of a file.
pub(super) struct Header {
    pub version: u32,
    pub tensors: u64,
    pub keys: u64,
}

/// A reader over the bytes of a file.
pub(super) struct Scanner<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Scanner<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, total: bytes.len() }
    }

    /// Returns the number of bytes read so far.
    pub fn offset(&self) -> u64 {
        (self.total - self.rest.len()) as u64
    }

    /// Reads the magic, the version and the counts.
    pub fn header(&mut self) -> Result<Header, Error> {
        if !self.rest.starts_with(b"GGUF") {
            return Err(Error::Magic { found: other_format(self.rest) });
        }
        self.bytes(4, || "the magic".into())?;
        match self.u32(|| "the version".into())? {
            1 => Err(Error::Version1),
            // A version is a small number: with its bytes swapped, the lower 16 bits are zero.
            v if v != 0 && v & 0xffff == 0 => Err(Error::BigEndian { version: v.swap_bytes() }),
            version @ 2..=3 => {
                let tensors = self.u64(|| "the count of tensors".into())?;
                let keys = self.u64(|| "the count of metadata keys".into())?;
                self.check_count("metadata keys", keys, KEYS_MAX, PAIR_BYTES_MIN)?;
                self.check_count("tensors", tensors, TENSORS_MAX, TENSOR_BYTES_MIN)?;
                Ok(Header { version, tensors, keys })
            }
            version => Err(Error::Version { version }),
        }
    }

    /// Reads all key-value pairs.
    pub fn metadata(&mut self, keys: u64) -> Result<Metadata<'a>, Error> {
        let mut metadata = Metadata::default();
        for index in 0..keys {
            let key = self.key(index)?;
            let value = self.value(key)?;
            if metadata.insert(key, value) {
                return Err(Error::KeyTwice { key: quoted(key) });
            }
        }
        Ok(metadata)
    }

    /// Reads the list of tensors. Does not check whether their data is in the file.
    pub fn tensors(&mut self, count: u64) -> Result<Vec<Layout<'a>>, Error> {
        self.check_count("tensors", count, TENSORS_MAX, TENSOR_BYTES_MIN)?;
        (0..count).map(|index| self.tensor(index)).collect()
    }

    fn key(&mut self, index: u64) -> Result<&'a str, Error> {
        let reading = || format!("metadata key number {index}");
        let bytes = self.u64(reading)?;
        if bytes == 0 {
            return Err(Error::KeyEmpty { index });
        }
        if bytes > KEY_BYTES_MAX {
            return Err(Error::KeyLong { index, bytes, max: KEY_BYTES_MAX });
        }
        let text = self.bytes(bytes, reading)?;
        str::from_utf8(text)
            .map_err(|_| Error::KeyUtf8 { index, key: quoted(&String::from_utf8_lossy(text)) })
    }

    fn value(&mut self, key: &str) -> Result<Value<'a>, Error> {
        let number = self.u32(|| reading_value(key))?;
        let unknown = || Error::ValueType { key: quoted(key), number };
        match ValueType::from_number(number).ok_or_else(unknown)? {
            ValueType::String => Ok(Value::String(self.string(key)?)),
            ValueType::Array => Ok(Value::Array(self.array(key)?)),
            fixed => {
                let size = fixed.size().ok_or_else(unknown)?;
                let bytes = self.bytes(size as u64, || reading_value(key))?;
                if fixed == ValueType::Bool {
                    check_bools(key, bytes)?;
                }
                Value::fixed(fixed, bytes).ok_or_else(unknown)
            }
        }
    }

    fn string(&mut self, key: &str) -> Result<&'a [u8], Error> {
        let bytes = self.u64(|| reading_value(key))?;
        let remaining = self.rest.len() as u64;
        if bytes > remaining {
            return Err(Error::StringLength { key: quoted(key), bytes, remaining });
        }
        self.bytes(bytes, || reading_value(key))
    }

    fn array(&mut self, key: &str) -> Result<Array<'a>, Error> {
        let number = self.u32(|| reading_value(key))?;
        let element = ValueType::from_number(number)
            .ok_or_else(|| Error::ElementType { key: quoted(key), number })?;
        let len = self.u64(|| reading_value(key))?;
        // The minimum size of an element; a string takes at least the 8 bytes of its length.
        let element_bytes = match element {
            ValueType::Array => return Err(Error::NestedArray { key: quoted(key) }),
            other => other.size().unwrap_or(8) as u64,
        };
        let remaining = self.rest.len() as u64;
        let bytes = len.checked_mul(element_bytes).filter(|&bytes| bytes <= remaining);
        let Some(bytes) = bytes else {
            let element = element.name();
            return Err(Error::ArrayLength { key: quoted(key), len, element, remaining });
        };
        let start = self.rest;
        if element == ValueType::String {
            for _ in 0..len {
                self.string(key)?;
            }
        } else {
            self.bytes(bytes, || reading_value(key))?;
        }
        let bytes = &start[..start.len() - self.rest.len()];
        if element == ValueType::Bool {
            check_bools(key, bytes)?;
        }
        // The cast is lossless: at least `len` bytes are in memory.
        Ok(Array { element, len: len as usize, bytes })
    }

    fn tensor(&mut self, index: u64) -> Result<Layout<'a>, Error> {
        let name = self.tensor_name(index)?;
        let reading = || format!("the entry of tensor {}", quoted(name));
        let count = self.u32(reading)?;
        if !(1..=DIMENSIONS_MAX).contains(&count) {
            return Err(Error::DimensionCount { tensor: quoted(name), count });
        }
        let mut dims = [1; DIMENSIONS_MAX as usize];
        for dim in &mut dims[..count as usize] {
            *dim = self.u64(reading)?;
        }
        let number = self.u32(reading)?;
        let tensor = || quoted(name);
        let ggml_type = match lookup(number) {
            Lookup::Known(known) => known,
            Lookup::Removed { name, instead } => {
                return Err(Error::TypeRemoved { tensor: tensor(), number, name, instead });
            }
            Lookup::Fork { name } => {
                return Err(Error::TypeFork { tensor: tensor(), number, name });
            }
            Lookup::Unknown => return Err(Error::TypeUnknown { tensor: tensor(), number }),
        };
        let offset = self.u64(reading)?;
        Layout::new(name, dims, count as usize, ggml_type, offset)
    }

    fn tensor_name(&mut self, index: u64) -> Result<&'a str, Error> {
        let reading = || format!("the name of tensor number {index}");
        let bytes = self.u64(reading)?;
        if bytes == 0 {
            return Err(Error::NameEmpty { index });
        }
        if bytes > TENSOR_NAME_BYTES_MAX {
            return Err(Error::NameLong { index, bytes, max: TENSOR_NAME_BYTES_MAX });
        }
        let text = self.bytes(bytes, reading)?;
        str::from_utf8(text)
            .map_err(|_| Error::NameUtf8 { index, name: quoted(&String::from_utf8_lossy(text)) })
    }

    fn check_count(
        &self,
        what: &'static str,
        count: u64,
        max: u64,
        bytes_each: u64,
    ) -> Result<(), Error> {
        let remaining = self.rest.len() as u64;
        if count > max {
            return Err(Error::Count { what, count, max });
        }
        if count * bytes_each > remaining {
            return Err(Error::CountBeyondFile { what, count, remaining });
        }
        Ok(())
    }

    fn bytes(&mut self, len: u64, reading: impl Fn() -> String) -> Result<&'a [u8], Error> {
        let remaining = self.rest.len() as u64;
        match usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len)) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(Error::Truncated { reading: reading(), needed: len, remaining }),
        }
    }

    fn chunk<const N: usize>(&mut self, reading: impl Fn() -> String) -> Result<[u8; N], Error> {
        let remaining = self.rest.len() as u64;
        let (chunk, rest) = self.rest.split_first_chunk().ok_or_else(|| Error::Truncated {
            reading: reading(),
            needed: N as u64,
            remaining,
        })?;
        self.rest = rest;
        Ok(*chunk)
    }

    fn u32(&mut self, reading: impl Fn() -> String) -> Result<u32, Error> {
        self.chunk(reading).map(u32::from_le_bytes)
    }

    fn u64(&mut self, reading: impl Fn() -> String) -> Result<u64, Error> {
        self.chunk(reading).map(u64::from_le_bytes)
    }
}

fn reading_value(key: &str) -> String {
    format!("the value of metadata key {}", quoted(key))
}

fn check_bools(key: &str, bytes: &[u8]) -> Result<(), Error> {
    match bytes.iter().find(|&&byte| byte > 1) {
        Some(&byte) => Err(Error::Bool { key: quoted(key), byte }),
        None => Ok(()),
    }
}

/// Guesses the format of a file without the magic, for the error message.
fn other_format(bytes: &[u8]) -> &'static str {
    const KINDS: [(&[u8], &str); 9] = [
        (b"FUGG", "it is a GGUF file of swapped byte order, which is not supported"),
        (b"lmgg", "it is a GGML model from before GGUF: convert it again"),
        (b"fmgg", "it is a GGML (ggmf) model from before GGUF: convert it again"),
        (b"tjgg", "it is a GGML (ggjt) model from before GGUF: convert it again"),
        (b"algg", "it is a GGML adapter (ggla) from before GGUF: convert it again"),
        (b"PK\x03\x04", "it is a zip archive, such as a PyTorch model: convert it to GGUF"),
        (b"version https://git-lfs", "it is a Git LFS pointer: fetch the file that it refers to"),
        (b"<!DOCTYPE", "it is a web page: the download has failed"),
        (b"<html", "it is a web page: the download has failed"),
    ];
    match KINDS.iter().find(|(prefix, _)| bytes.starts_with(prefix)) {
        Some((_, what)) => what,
        None if bytes.get(8) == Some(&b'{') => "it may be a safetensors file: convert it to GGUF",
        None => "it does not begin with \"GGUF\"",
    }
}
