//! A copy of a file with other metadata and more tensors.
//!
//! Everything else is copied byte for byte.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use super::{
    GgmlType, Gguf, Value, split,
    writer::{Entry, Writer},
};

/// What is other in the copy.
#[derive(Clone, Debug, Default)]
pub struct Changes<'c> {
    /// Keys and their new values; `None` where a key is to be gone.
    pub keys: BTreeMap<String, Option<Value<'c>>>,
    /// Rows of f32 by their names; they replace tensors that are there.
    pub rows: BTreeMap<&'c str, Vec<f32>>,
}

impl Changes<'_> {
    /// The keys of `gguf`, changed. A copy is one file, also of a model in several.
    pub fn keys_of<'a>(&'a self, gguf: &Gguf<'a>) -> Vec<(&'a str, Value<'a>)> {
        let gone = |key| split::KEYS.contains(&key) || self.keys.contains_key(key);
        let kept = gguf.metadata().iter().filter(|(key, _)| !gone(key));
        let new = self.keys.iter().filter_map(|(key, value)| Some((&key[..], (*value)?)));
        kept.chain(new).collect()
    }
}

/// Writes the copy.
///
/// # Errors
/// Those of `out`.
pub fn copy(gguf: &Gguf<'_>, changes: &Changes<'_>, out: impl Write) -> io::Result<()> {
    let kept = gguf.tensors().iter().filter(|tensor| !changes.rows.contains_key(tensor.name));
    let shapes: Vec<[u64; 1]> = changes.rows.values().map(|row| [row.len() as u64]).collect();
    let rows = changes.rows.keys().zip(&shapes);
    let rows = rows.map(|(name, shape)| Entry { name, shape, ggml_type: GgmlType::F32 });
    let tensors: Vec<Entry> = kept.clone().map(Entry::from).chain(rows).collect();

    let mut writer = Writer::new(out, gguf.alignment(), &changes.keys_of(gguf), &tensors)?;
    for tensor in kept {
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
