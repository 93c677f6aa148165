//! Importance matrices. For each column of a weight matrix, they hold the mean square of the inputs
//! that it was multiplied by while the model processed a text.
//!
//! [`Imatrix::open`] reads llama.cpp's files: GGUF, and the older binary form. [`Imatrix::write`]
//! writes GGUF. [`eval::importance`](crate::eval::importance) computes one.

mod dat;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::Path,
};

use thiserror::Error;

use crate::{
    gguf::{
        Array, File, GgmlType, Gguf, MetadataError, Tensor, Value, ValueType, quoted,
        writer::{Entry as Header, Writer},
    },
    json::FileText,
};

/// An error while reading an importance matrix.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum Error {
    #[error(transparent)]
    Gguf(#[from] crate::gguf::Error),
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error("general.type is {0}, not imatrix: give a file of `rope-cpu imatrix` or llama-imatrix")]
    Type(FileText),
    #[error("it has no entries: give a file of `rope-cpu imatrix` or llama-imatrix")]
    Empty,
    #[error(
        "{what} ends beyond the file of {length} bytes: it is damaged, or no importance matrix"
    )]
    Short { what: String, length: usize },
    #[error("{what} is {found}; it must be from {least} to {most}")]
    Count { what: String, found: i64, least: i64, most: i64 },
    #[error("tensor {tensor}: {part} is missing: compute the importance matrix again")]
    Missing { tensor: FileText, part: &'static str },
    #[error("tensor {tensor}: its importance has type {found}, which must be f32")]
    Encoding { tensor: FileText, found: &'static str },
    #[error("tensor {tensor}: {sums} sums do not belong to {counts} counts")]
    Shape { tensor: FileText, sums: usize, counts: usize },
    #[error("tensor {tensor} has two entries: it is damaged, or no importance matrix")]
    Twice { tensor: FileText },
    #[error("tensor {tensor}: importance {index} is {found}; it must be 0 or more, and finite")]
    Value { tensor: FileText, index: usize, found: f32 },
    #[error(
        "tensor {tensor} has {needed} columns, but its importance has {found}: the importance \
         matrix belongs to another model"
    )]
    Size { tensor: FileText, found: usize, needed: u64 },
}

/// The importance of a model's weights, by tensor.
///
/// ```
/// use rope_cpu::imatrix::{Entry, Imatrix};
///
/// // One matrix of two columns. The sums are over 10 tokens.
/// let entry = Entry::new(vec![40.0, 5.0], vec![10.0]);
/// assert_eq!(entry.mean_squares(), [4.0, 0.5]);
/// let mut imatrix = Imatrix::new(1, 10);
/// imatrix.insert("blk.0.ffn_up.weight", entry)?;
/// let mut file = Vec::new();
/// imatrix.write(&mut file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Imatrix {
    /// The files from which it was computed.
    pub datasets: Vec<String>,
    /// The number of chunks of text; 0 if unknown.
    pub chunks: u32,
    /// The number of tokens of a chunk; 0 if unknown.
    pub chunk_size: u32,
    entries: BTreeMap<String, Entry>,
}

/// The importance of the columns of one tensor, which holds one or more matrices.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The sums of squares of the inputs of each matrix: (matrices, columns).
    sums: Vec<f32>,
    /// The number of inputs of each matrix, or one number for all matrices.
    counts: Vec<f32>,
}

const TYPE: &str = "general.type";
const DATASETS: &str = "imatrix.datasets";
const CHUNKS: &str = "imatrix.chunk_count";
const CHUNK_SIZE: &str = "imatrix.chunk_size";
const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";

impl Imatrix {
    /// Creates an importance matrix without entries, for a text of `chunks` with `chunk_size`
    /// tokens.
    pub fn new(chunks: u32, chunk_size: u32) -> Self {
        Imatrix { chunks, chunk_size, ..Imatrix::default() }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If the file cannot be read, is not an importance matrix, or has a number that is negative or
    /// not finite.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let file = File::open(path)?;
        if !file.bytes().starts_with(b"GGUF") {
            return dat::read(file.bytes());
        }
        Self::of_gguf(&file.parse(&[])?)
    }

    fn of_gguf(gguf: &Gguf<'_>) -> Result<Self, Error> {
        let metadata = gguf.metadata();
        if let Some(other) = metadata.string(TYPE)?.filter(|&name| name != "imatrix") {
            return Err(Error::Type(quoted(other)));
        }
        let datasets = metadata.strings(DATASETS)?.unwrap_or_default();
        let mut imatrix = Imatrix {
            datasets: datasets.iter().map(|s| String::from_utf8_lossy(s).into_owned()).collect(),
            chunks: metadata.u32(CHUNKS)?.unwrap_or(0),
            chunk_size: metadata.u32(CHUNK_SIZE)?.unwrap_or(0),
            entries: BTreeMap::new(),
        };
        // Other tensors, such as sums and statistics of newer files, are not used.
        for tensor in gguf.tensors() {
            if let Some(name) = tensor.name.strip_suffix(SUMS) {
                let counts = gguf.tensor(&format!("{name}{COUNTS}"));
                let missing =
                    || Error::Missing { tensor: quoted(name), part: "the number of inputs" };
                let counts = counts.ok_or_else(missing)?;
                let entry = Entry { sums: numbers(name, tensor)?, counts: numbers(name, counts)? };
                imatrix.insert(name, entry)?;
            } else if let Some(name) = tensor.name.strip_suffix(COUNTS)
                && gguf.tensor(&format!("{name}{SUMS}")).is_none()
            {
                return Err(Error::Missing { tensor: quoted(name), part: "the sum of squares" });
            }
        }
        if imatrix.entries.is_empty() { Err(Error::Empty) } else { Ok(imatrix) }
    }

    /// Adds the importance of a tensor.
    ///
    /// # Errors
    /// If the numbers are negative or not finite, their amounts do not match, or the tensor has an
    /// entry already.
    pub fn insert(&mut self, tensor: &str, entry: Entry) -> Result<(), Error> {
        let (sums, counts) = (entry.sums.len(), entry.counts.len());
        if counts == 0 || sums == 0 || !sums.is_multiple_of(counts) {
            return Err(Error::Shape { tensor: quoted(tensor), sums, counts });
        }
        let numbers = entry.sums.iter().chain(&entry.counts).enumerate();
        if let Some((index, &found)) =
            numbers.into_iter().find(|(_, x)| !(0.0..f32::INFINITY).contains(*x))
        {
            return Err(Error::Value { tensor: quoted(tensor), index, found });
        }
        match self.entries.insert(tensor.into(), entry) {
            Some(_) => Err(Error::Twice { tensor: quoted(tensor) }),
            None => Ok(()),
        }
    }

    /// Returns the number of tensors with an importance.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no tensor has an importance.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the importance of the columns of `tensor`; `None` if it has no entry.
    ///
    /// # Errors
    /// If the entry has another number of columns.
    pub fn of(&self, tensor: &Tensor<'_>) -> Result<Option<&Entry>, Error> {
        let Some(entry) = self.entries.get(tensor.name) else { return Ok(None) };
        let needed = tensor.row_len() * tensor.dims[2] * tensor.dims[3];
        let found = entry.sums.len();
        if found as u64 != needed {
            return Err(Error::Size { tensor: quoted(tensor.name), found, needed });
        }
        Ok(Some(entry))
    }

    /// Writes a GGUF file.
    ///
    /// # Errors
    /// If writing to `out` fails.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        let mut datasets = Vec::new();
        for name in &self.datasets {
            datasets.extend((name.len() as u64).to_le_bytes());
            datasets.extend(name.as_bytes());
        }
        let (element, len) = (ValueType::String, self.datasets.len());
        let keys = [
            (TYPE, Value::String(b"imatrix")),
            (DATASETS, Value::Array(Array { element, len, bytes: &datasets })),
            (CHUNKS, Value::U32(self.chunks)),
            (CHUNK_SIZE, Value::U32(self.chunk_size)),
        ];
        let tensors = self.entries.iter().flat_map(|(name, Entry { sums, counts })| {
            let (columns, matrices) = (sums.len() / counts.len(), counts.len() as u64);
            [
                (format!("{name}{SUMS}"), [columns as u64, matrices], sums),
                (format!("{name}{COUNTS}"), [1, matrices], counts),
            ]
        });
        let tensors: Vec<_> = tensors.collect();
        let header = |(name, shape, _): &'_ (String, [u64; 2], &Vec<f32>)| (name.clone(), *shape);
        let headers: Vec<_> = tensors.iter().map(header).collect();
        let headers: Vec<Header<'_>> = headers
            .iter()
            .map(|(name, shape)| Header { name, shape, ggml_type: GgmlType::F32 })
            .collect();
        let mut writer = Writer::new(out, ALIGNMENT, &keys, &headers)?;
        for (_, _, numbers) in &tensors {
            writer.write(bytemuck::cast_slice(numbers))?;
            writer.pad()?;
        }
        Ok(())
    }
}

/// The alignment of tensors in a GGUF file that does not state another.
const ALIGNMENT: u64 = 32;

impl Entry {
    /// Creates an entry for a tensor of `counts.len()` matrices. `sums` are the sums of squares of
    /// the inputs; `counts` are the numbers of inputs of each matrix.
    pub fn new(sums: Vec<f32>, counts: Vec<f32>) -> Self {
        Entry { sums, counts }
    }

    /// Returns the mean squares of the inputs: (matrices, columns). A matrix without inputs, such
    /// as an expert that was never chosen, has ones.
    pub fn mean_squares(&self) -> Vec<f32> {
        let each = (self.sums.len() / self.counts.len().max(1)).max(1);
        let matrices = self.sums.chunks_exact(each).zip(&self.counts);
        let means = matrices.flat_map(|(sums, &count)| {
            sums.iter().map(move |sum| if count > 0.0 { sum / count } else { 1.0 })
        });
        means.collect()
    }
}

/// Returns the f32 numbers of a tensor.
fn numbers(name: &str, tensor: &Tensor<'_>) -> Result<Vec<f32>, Error> {
    if tensor.ggml_type != GgmlType::F32 {
        return Err(Error::Encoding { tensor: quoted(name), found: tensor.ggml_type.name });
    }
    Ok(tensor.bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}
