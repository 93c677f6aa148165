//! Writes a GGUF file from start to end, tensor by tensor.
//!
//! gguf-rs (0.1.8) has a writer, but it cannot copy every model. Its sizes are too small for BF16,
//! IQ4_NL and integers, and too large for MXFP4. It does not support types from 40 (NVFP4) on. It
//! sorts keys and cannot add numbers of 8 or 16 bits. It turns empty arrays into byte arrays, and
//! writes zeros before all data.

use std::io::{self, Read, Write};

use super::{GgmlType, Tensor, Value};

/// A tensor's entry in the header.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The name.
    pub name: &'a str,
    /// The dimensions, the length of a row first.
    pub shape: &'a [u64],
    /// The encoding of the values.
    pub ggml_type: GgmlType,
}

impl<'a> From<&'a Tensor<'_>> for Entry<'a> {
    fn from(tensor: &'a Tensor<'_>) -> Self {
        Entry { name: tensor.name, shape: tensor.shape(), ggml_type: tensor.ggml_type }
    }
}

impl Entry<'_> {
    /// Returns the size of the data in bytes; rows are whole blocks.
    pub fn bytes(&self) -> u64 {
        let blocks = self.shape.iter().product::<u64>() / self.ggml_type.block_len;
        blocks * self.ggml_type.block_bytes
    }
}

/// Writes the data of a GGUF file after its header.
pub struct Writer<W> {
    out: W,
    alignment: u64,
    /// The number of bytes written since the last padding.
    written: u64,
}

/// Maximum bytes of one write.
const PART: usize = 64 << 10;

impl<W: Write> Writer<W> {
    /// Writes the header. Then write the data in the order of `tensors`: for each tensor, call
    /// [`write`](Self::write) one or more times, then [`pad`](Self::pad) once.
    ///
    /// # Errors
    ///
    /// Returns an error if writing to `out` fails.
    pub fn new<'v>(
        out: W,
        alignment: u64,
        keys: &[(&str, Value<'v>)],
        tensors: &[Entry<'_>],
    ) -> io::Result<Self> {
        let mut writer = Writer { out, alignment, written: 0 };
        writer.write(b"GGUF")?;
        writer.write(&3u32.to_le_bytes())?;
        writer.write(&(tensors.len() as u64).to_le_bytes())?;
        writer.write(&(keys.len() as u64).to_le_bytes())?;
        for (key, value) in keys {
            writer.string(key.as_bytes())?;
            writer.write(&(value.value_type() as u32).to_le_bytes())?;
            writer.value(*value)?;
        }
        let mut offset: u64 = 0;
        for tensor in tensors {
            writer.string(tensor.name.as_bytes())?;
            writer.write(&(tensor.shape.len() as u32).to_le_bytes())?;
            for dim in tensor.shape {
                writer.write(&dim.to_le_bytes())?;
            }
            writer.write(&tensor.ggml_type.number.to_le_bytes())?;
            writer.write(&offset.to_le_bytes())?;
            offset = (offset + tensor.bytes()).next_multiple_of(alignment);
        }
        writer.pad()?;
        Ok(writer)
    }

    /// Writes a part of a tensor's data.
    ///
    /// # Errors
    ///
    /// Returns an error if writing to the output fails.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        // Write in parts, so that a buffered writer copies them. If the system read the map itself
        // and found the file shortened, the error would name no file.
        bytes.chunks(PART).try_for_each(|part| self.out.write_all(part))
    }

    /// Completes a tensor: pads its data up to the alignment.
    ///
    /// # Errors
    ///
    /// Returns an error if writing to the output fails.
    pub fn pad(&mut self) -> io::Result<()> {
        let padding = self.written.next_multiple_of(self.alignment) - self.written;
        self.written = 0;
        io::copy(&mut io::repeat(0).take(padding), &mut self.out).map(drop)
    }

    fn string(&mut self, text: &[u8]) -> io::Result<()> {
        self.write(&(text.len() as u64).to_le_bytes())?;
        self.write(text)
    }

    fn value(&mut self, value: Value<'_>) -> io::Result<()> {
        match value {
            Value::U8(x) => self.write(&x.to_le_bytes()),
            Value::I8(x) => self.write(&x.to_le_bytes()),
            Value::U16(x) => self.write(&x.to_le_bytes()),
            Value::I16(x) => self.write(&x.to_le_bytes()),
            Value::U32(x) => self.write(&x.to_le_bytes()),
            Value::I32(x) => self.write(&x.to_le_bytes()),
            Value::U64(x) => self.write(&x.to_le_bytes()),
            Value::I64(x) => self.write(&x.to_le_bytes()),
            Value::F32(x) => self.write(&x.to_le_bytes()),
            Value::F64(x) => self.write(&x.to_le_bytes()),
            Value::Bool(x) => self.write(&[x.into()]),
            Value::String(text) => self.string(text),
            Value::Array(array) => {
                self.write(&(array.element as u32).to_le_bytes())?;
                self.write(&(array.len as u64).to_le_bytes())?;
                self.write(array.bytes)
            }
        }
    }
}
