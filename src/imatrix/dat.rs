//! llama.cpp's binary files of importance matrices, from before GGUF:
//!
//! ```text
//! entries: i32
//! each: length of its name: i32, name, calls: i32, values: i32, f32 values, times `calls`
//! chunks: i32, length of the text's name: i32, name      (may be missing)
//! ```

use super::{Entry, Error, Imatrix};

/// Maximum bytes of a name.
const NAME_MAX: i64 = 1 << 12;

/// Reads a file. Every length is checked against the rest of the file.
pub fn read(bytes: &[u8]) -> Result<Imatrix, Error> {
    let mut reader = Reader { rest: bytes, length: bytes.len() };
    let mut imatrix = Imatrix::default();
    let entries = reader.count("the number of entries", 1, 1 << 16)?;
    for number in 1..=entries {
        let of = |what: &str| format!("{what} of entry {number}");
        let length = reader.count(&of("the length of the name"), 1, NAME_MAX)?;
        let name = String::from_utf8_lossy(reader.take(&of("the name"), length)?);
        let calls = reader.count(&of("the number of calls"), 0, i64::from(i32::MAX))?;
        let values = reader.count(&of("the number of values"), 1, i64::from(i32::MAX))?;
        let numbers = reader.take(&of("the importance"), values.saturating_mul(4))?;
        let numbers = numbers.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        // Without calls, the values are means already.
        imatrix.insert(&name, Entry::new(numbers.collect(), vec![calls.max(1) as f32]))?;
    }
    if !reader.rest.is_empty() {
        imatrix.chunks = reader.count("the number of chunks", 0, i64::from(i32::MAX))? as u32;
    }
    if !reader.rest.is_empty() {
        let length = reader.count("the length of the text's name", 0, NAME_MAX)?;
        let name = reader.take("the text's name", length)?;
        imatrix.datasets.push(String::from_utf8_lossy(name).into_owned());
    }
    Ok(imatrix)
}

struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, what: &str, count: usize) -> Result<&'a [u8], Error> {
        let short = || Error::Short { what: what.into(), length: self.length };
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn count(&mut self, what: &str, least: i64, most: i64) -> Result<usize, Error> {
        let bytes = self.take(what, 4)?;
        let found = i64::from(bytes.as_chunks().0.first().map_or(0, |b| i32::from_le_bytes(*b)));
        match (least..=most).contains(&found) {
            true => Ok(found as usize),
            false => Err(Error::Count { what: what.into(), found, least, most }),
        }
    }
}
