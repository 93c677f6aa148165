//! Copies a GGUF file with changed metadata and added tensors.
//!
//! All other data is copied byte for byte.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use super::{
    GgmlType, Gguf, Value, split,
    writer::{Entry, Writer},
};

/// The changes to make in a copy.
#[derive(Clone, Debug, Default)]
pub struct Changes<'c> {
    /// The changed keys with their new values; `None` removes a key.
    pub keys: BTreeMap<String, Option<Value<'c>>>,
    /// One-dimensional f32 tensors by name, which replace existing tensors of the same name.
    pub rows: BTreeMap<&'c str, Vec<f32>>,
}

impl Changes<'_> {
    /// Returns the keys of `gguf` with the changes applied.
    ///
    /// The keys of a split model's parts are left out, since a copy is always a single file.
    pub fn keys_of<'a>(&'a self, gguf: &Gguf<'a>) -> Vec<(&'a str, Value<'a>)> {
        let changed = |key| split::KEYS.contains(&key) || self.keys.contains_key(key);
        let unchanged = gguf.metadata().iter().filter(|(key, _)| !changed(key));
        let new = self.keys.iter().filter_map(|(key, value)| Some((&key[..], (*value)?)));
        unchanged.chain(new).collect()
    }
}

/// Writes a copy of `gguf` with `changes` to `out`.
///
/// # Errors
///
/// Returns an error if writing to `out` fails.
pub fn copy(gguf: &Gguf<'_>, changes: &Changes<'_>, out: impl Write) -> io::Result<()> {
    let unchanged = gguf.tensors().iter().filter(|tensor| !changes.rows.contains_key(tensor.name));
    let shapes: Vec<[u64; 1]> = changes.rows.values().map(|row| [row.len() as u64]).collect();
    let rows = changes.rows.keys().zip(&shapes);
    let rows = rows.map(|(name, shape)| Entry { name, shape, ggml_type: GgmlType::F32 });
    let tensors: Vec<Entry> = unchanged.clone().map(Entry::from).chain(rows).collect();

    let mut writer = Writer::new(out, gguf.alignment(), &changes.keys_of(gguf), &tensors)?;
    for tensor in unchanged {
        writer.write(tensor.bytes)?;
        writer.pad()?;
    }
    for row in changes.rows.values() {
        let bytes: Vec<u8> = row.iter().flat_map(|value| value.to_le_bytes()).collect();
        writer.write(&bytes)?;
        writer.pad()?;
    }
    Ok(())
}
