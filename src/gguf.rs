//! Opens GGUF files: maps them into memory, validates them once, and borrows their contents.
//!
//! A file is untrusted. [`Gguf::parse`] reads its header once, and checks every count, length,
//! type, shape and offset before it uses it. It returns views into the map, which need no further
//! checks against the file. It does not check whether the values describe a usable model. The code
//! that loads a model does that.
//!
//! [`File::parse`] also joins the parts of a split model, after the same checks of each part.
//!
//! ```no_run
//! # use rope_cpu::gguf::File;
//! # fn main() -> Result<(), rope_cpu::gguf::Error> {
//! let file = File::open("model.gguf")?;
//! let gguf = file.parse(&[])?;
//! if let Some(tensor) = gguf.tensor("token_embd.weight") {
//!     println!("{} values of type {}", tensor.elements(), tensor.ggml_type.name);
//! }
//! # Ok(())
//! # }
//! ```

#[doc(hidden)]
pub mod copy;
#[cfg(feature = "program")]
#[doc(hidden)]
pub mod cross_check;
mod error;
mod file;
mod limits;
mod metadata;
mod overrides;
mod scanner;
mod split;
mod tensors;
mod types;
pub(crate) mod writer;

use std::collections::HashMap;

pub use error::Error;
pub use error::escaped;
pub(crate) use error::quoted;
pub use file::File;
pub use metadata::{Array, Error as MetadataError, Metadata, Value, ValueType};
pub use overrides::{Error as OverrideError, Override, split_list};
pub use split::{is_later_part, part_names};
pub use tensors::Tensor;
pub use types::GgmlType;

use scanner::Scanner;

/// The checked contents of a GGUF file, borrowed from its bytes.
///
/// ```
/// use rope_cpu::gguf::{Gguf, Override};
///
/// // A header without tensors and keys.
/// let mut bytes = b"GGUF\x03\0\0\0".to_vec();
/// bytes.extend([0; 16]);
/// let overrides = Override::parse_list("general.name=str:empty")?;
/// let gguf = Gguf::parse(&bytes, &overrides)?;
/// assert_eq!(gguf.version(), 3);
/// assert_eq!(gguf.metadata().string("general.name")?, Some("empty"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Gguf<'a> {
    version: u32,
    metadata: Metadata<'a>,
    tensors: Vec<Tensor<'a>>,
    index: HashMap<&'a str, usize>,
    alignment: u64,
    data_offset: u64,
}

impl<'a> Gguf<'a> {
    /// Validates a whole file and borrows its contents. `overrides` replace or add metadata keys.
    ///
    /// Tensor data starts at multiples of at least 8 bytes from the start of `bytes`. So if `bytes`
    /// is a memory map, or any buffer aligned to 8 bytes, you can cast the data to blocks.
    ///
    /// # Errors
    ///
    /// The first error found, with the key or tensor that has it.
    pub fn parse(bytes: &'a [u8], overrides: &'a [Override]) -> Result<Self, Error> {
        let mut scanner = Scanner::new(bytes);
        let header = scanner.header()?;
        let mut metadata = scanner.metadata(header.keys)?;
        let alignment = tensors::alignment(&metadata)?;
        let layouts = scanner.tensors(header.tensors)?;
        let data_offset = scanner.offset().next_multiple_of(alignment);
        let tensors = tensors::locate(bytes, layouts, data_offset, alignment)?;
        let index = tensors.iter().enumerate().map(|(i, t)| (t.name, i)).collect();
        overrides::apply(&mut metadata, overrides)?;
        Ok(Self { version: header.version, metadata, tensors, index, alignment, data_offset })
    }

    /// Returns the version of the format: 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the key-value pairs, with the overrides applied.
    pub fn metadata(&self) -> &Metadata<'a> {
        &self.metadata
    }

    /// Returns the tensor named `name`.
    pub fn tensor(&self, name: &str) -> Option<&Tensor<'a>> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }

    /// Returns all tensors in file order; the tensors of a split model follow part by part.
    pub fn tensors(&self) -> &[Tensor<'a>] {
        &self.tensors
    }

    /// Returns the alignment in bytes: tensor offsets are multiples of it.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Returns the offset of the tensor data in bytes from the start of the file.
    pub fn data_offset(&self) -> u64 {
        self.data_offset
    }
}
