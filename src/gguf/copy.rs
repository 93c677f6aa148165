//! A copy of a file with other metadata and more tensors, written by gguf-rs.
//!
//! Tensor data is copied byte for byte. What gguf-rs cannot write as it is (numbers of some widths,
//! text that is not UTF-8, tensor types whose size it gets wrong) is refused and never changed.

use std::{collections::BTreeMap, path::Path};

use gguf_rs::writer::{GGUFWriter, MetadataValue, TensorInfo, calculate_tensor_size};
use thiserror::Error;

use super::{Gguf, Tensor, Value, quoted};

/// Why there is no copy.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum Error {
    #[error("metadata key {key} is {what}, which gguf-rs cannot write")]
    Key { key: String, what: String },
    #[error("tensor {name} is {found}, which gguf-rs cannot write")]
    Type { name: String, found: &'static str },
    #[error("cannot write {path}: {reason}", path = path.display())]
    Write { path: std::path::PathBuf, reason: String },
}

/// What is other in the copy.
#[derive(Clone, Debug, Default)]
pub struct Changes<'c> {
    /// Keys and their new values; `None` where a key is to be gone.
    pub keys: BTreeMap<String, Option<Value<'c>>>,
    /// Rows of f32 by their names; they replace tensors that are there.
    pub rows: BTreeMap<&'c str, Vec<f32>>,
}

/// Writes the copy to `path`. If that fails, what is there is incomplete.
///
/// # Errors
/// What cannot be written, or where.
pub fn copy(gguf: &Gguf<'_>, changes: &Changes<'_>, path: &Path) -> Result<(), Error> {
    let failed =
        |e: &dyn std::fmt::Display| Error::Write { path: path.into(), reason: e.to_string() };
    let writer = GGUFWriter::new(path, 3).map_err(|e| failed(&e))?;
    let mut writer = writer.with_alignment(gguf.alignment());

    let kept = gguf.metadata().iter().filter(|(key, _)| !changes.keys.contains_key(*key));
    let new = changes.keys.iter().filter_map(|(key, value)| Some((&key[..], (*value)?)));
    for (key, value) in kept.chain(new) {
        add(&mut writer, key, value)?;
    }
    let kept = gguf.tensors().iter().filter(|tensor| !changes.rows.contains_key(tensor.name));
    let tensors: Vec<&Tensor> = kept.collect();
    for tensor in &tensors {
        let number = tensor.ggml_type.number;
        let info =
            TensorInfo { name: tensor.name.into(), shape: tensor.shape().into(), dtype: number };
        if calculate_tensor_size(&info).ok() != Some(tensor.bytes.len() as u64) {
            let found = tensor.ggml_type.name;
            return Err(Error::Type { name: quoted(tensor.name).to_string(), found });
        }
        writer.add_tensor(info);
    }
    for (name, row) in &changes.rows {
        let shape = vec![row.len() as u64];
        writer.add_tensor(TensorInfo { name: name.to_string(), shape, dtype: 0 });
    }
    writer.write().map_err(|e| failed(&e))?;
    for (index, tensor) in tensors.iter().enumerate() {
        writer.write_tensor_data(index, tensor.bytes).map_err(|e| failed(&e))?;
    }
    for (index, row) in (tensors.len()..).zip(changes.rows.values()) {
        let bytes: Vec<u8> = row.iter().flat_map(|value| value.to_le_bytes()).collect();
        writer.write_tensor_data(index, &bytes).map_err(|e| failed(&e))?;
    }
    writer.finalize().map_err(|e| failed(&e))
}

fn add(writer: &mut GGUFWriter, key: &str, value: Value<'_>) -> Result<(), Error> {
    let refused = |what: String| Error::Key { key: quoted(key).to_string(), what };
    let text = |bytes: &[u8]| {
        let text = String::from_utf8(bytes.into());
        text.map_err(|_| refused("text that is not UTF-8".into()))
    };
    match value {
        Value::String(bytes) => writer.add_metadata(key, &text(bytes)?),
        Value::U32(x) => writer.add_metadata_u32(key, x),
        Value::I32(x) => writer.add_metadata_i32(key, x),
        Value::U64(x) => writer.add_metadata_u64(key, x),
        Value::F32(x) => writer.add_metadata_f32(key, x),
        Value::Bool(x) => writer.add_metadata_bool(key, x),
        // It would forget of what type there are none.
        Value::Array(array) if array.len == 0 => return Err(refused(value.describe())),
        Value::Array(array) => {
            let items = array.values().map(|value| {
                Ok(match value {
                    Value::U8(x) => MetadataValue::Uint8(x),
                    Value::I8(x) => MetadataValue::Int8(x),
                    Value::U16(x) => MetadataValue::Uint16(x),
                    Value::I16(x) => MetadataValue::Int16(x),
                    Value::U32(x) => MetadataValue::Uint32(x),
                    Value::I32(x) => MetadataValue::Int32(x),
                    Value::F32(x) => MetadataValue::Float32(x),
                    Value::Bool(x) => MetadataValue::Bool(x),
                    Value::String(bytes) => MetadataValue::String(text(bytes)?),
                    Value::U64(x) => MetadataValue::Uint64(x),
                    Value::I64(x) => MetadataValue::Int64(x),
                    Value::F64(x) => MetadataValue::Float64(x),
                    Value::Array(_) => return Err(refused("an array of arrays".into())),
                })
            });
            writer.add_metadata_array(key, items.collect::<Result<_, _>>()?);
        }
        other => return Err(refused(other.describe())),
    }
    Ok(())
}
