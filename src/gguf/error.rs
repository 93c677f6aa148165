//! Errors of opening and reading GGUF files.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::limits::{ALIGNMENT_MAX, ALIGNMENT_MIN, DIMENSIONS_MAX};
use crate::{json::FileText, settings::Setting};

/// An error while opening or reading a GGUF file.
///
/// Messages quote, escape and shorten names that come from the file.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum Error {
    #[error("{path}: {source}", path = path.display())]
    Open { path: PathBuf, source: std::io::Error },
    #[error("{path} is a directory: give the .gguf file in it", path = path.display())]
    Directory { path: PathBuf },
    #[error("{path} is not a regular file and cannot be mapped", path = path.display())]
    Special { path: PathBuf },
    #[error("{path} is empty", path = path.display())]
    Empty { path: PathBuf },
    #[error("{path}: {source}", path = path.display())]
    In { path: PathBuf, source: Box<Error> },

    #[error(
        "{path} is part {number} of {count} of a model: give the first part, {first}",
        path = path.display(), first = first.display()
    )]
    SplitNotFirst { path: PathBuf, number: u32, count: u32, first: PathBuf },
    #[error(
        "{path} is missing, but {first} is a part of the same model: download all parts into one \
         folder",
        path = path.display(), first = first.display()
    )]
    SplitMissing { path: PathBuf, first: PathBuf },
    #[error(
        "{path} is not part {number} of {count} of the model that {first} begins: its metadata keys \
         split.no, split.count and split.tensors.count do not match",
        path = path.display(), first = first.display()
    )]
    SplitForeign { path: PathBuf, number: u32, count: u32, first: PathBuf },
    #[error(
        "{path} is part {number} of {count} of a model, but its name does not end in \
         -{number:05}-of-{count:05}.gguf, which is needed to find the other parts: rename it",
        path = path.display()
    )]
    SplitName { path: PathBuf, number: u32, count: u32 },
    #[error(
        "metadata key split.count is {count}, which requires split.no, a number below {count}, and \
         split.tensors.count: at least one of them is missing or out of range"
    )]
    SplitKeys { count: u32 },
    #[error("tensor {tensor} is also in an earlier part of the model")]
    SplitTensorTwice { tensor: FileText },
    #[error(
        "metadata key split.tensors.count is {tensors}, but the {count} parts of the model hold \
         {found} tensors"
    )]
    SplitTensors { count: u32, found: usize, tensors: u32 },
    #[error(transparent)]
    Metadata(#[from] super::MetadataError),

    #[error("not a GGUF file: {found}")]
    Magic { found: &'static str },
    #[error("GGUF version {version} of big-endian byte order is not supported: convert the file")]
    BigEndian { version: u32 },
    #[error("GGUF version 1 is obsolete and not supported: convert the model again")]
    Version1,
    #[error("GGUF version {version} is unknown: versions 2 and 3 are supported")]
    Version { version: u32 },
    #[error("the header declares {count} {what}, but at most {max} are supported")]
    Count { what: &'static str, count: u64, max: u64 },
    #[error(
        "the header declares {count} {what}, which cannot fit in the {remaining} bytes after it"
    )]
    CountBeyondFile { what: &'static str, count: u64, remaining: u64 },
    #[error("the file ends within {reading}: {needed} bytes are needed, {remaining} remain")]
    Truncated { reading: String, needed: u64, remaining: u64 },

    #[error("metadata key number {index} is empty")]
    KeyEmpty { index: u64 },
    #[error("metadata key number {index} has {bytes} bytes, more than the {max} allowed")]
    KeyLong { index: u64, bytes: u64, max: u64 },
    #[error("metadata key number {index}, {key}, is not valid UTF-8")]
    KeyUtf8 { index: u64, key: FileText },
    #[error("metadata key {key} appears twice")]
    KeyTwice { key: FileText },
    #[error("metadata key {key} has a value of the unknown type {number}")]
    ValueType { key: FileText, number: u32 },
    #[error("metadata key {key} is an array of the unknown type {number}")]
    ElementType { key: FileText, number: u32 },
    #[error("metadata key {key} is an array of arrays, which is not supported")]
    NestedArray { key: FileText },
    #[error("metadata key {key} has a string of {bytes} bytes, but {remaining} remain in the file")]
    StringLength { key: FileText, bytes: u64, remaining: u64 },
    #[error(
        "metadata key {key} is an array of {len} values of type {element}, but {remaining} bytes \
         remain in the file"
    )]
    ArrayLength { key: FileText, len: u64, element: &'static str, remaining: u64 },
    #[error("metadata key {key} is a bool of value {byte}: it must be 0 or 1")]
    Bool { key: FileText, byte: u8 },
    #[error("metadata key general.alignment is {found}, where a u32 is expected")]
    AlignmentType { found: String },
    #[error(
        "metadata key general.alignment is {value}: \
         it must be a power of two from {ALIGNMENT_MIN} to {ALIGNMENT_MAX}"
    )]
    Alignment { value: u32 },

    #[error("the name of tensor number {index} is empty")]
    NameEmpty { index: u64 },
    #[error("the name of tensor number {index} has {bytes} bytes, more than the {max} allowed")]
    NameLong { index: u64, bytes: u64, max: u64 },
    #[error("the name of tensor number {index}, {name}, is not valid UTF-8")]
    NameUtf8 { index: u64, name: FileText },
    #[error("tensor {tensor} appears twice")]
    NameTwice { tensor: FileText },
    #[error("tensor {tensor} has {count} dimensions: it must have from 1 to {DIMENSIONS_MAX}")]
    DimensionCount { tensor: FileText, count: u32 },
    #[error("tensor {tensor} has no values: its dimensions are {dims:?}")]
    NoValues { tensor: FileText, dims: Vec<u64> },
    #[error("tensor {tensor} is too large for any file: its dimensions are {dims:?}")]
    Size { tensor: FileText, dims: Vec<u64> },
    #[error("tensor {tensor} has the unknown type {number}")]
    TypeUnknown { tensor: FileText, number: u32 },
    #[error(
        "tensor {tensor} has type {name} ({number}), which was removed from GGUF: \
         use a file with {instead} instead"
    )]
    TypeRemoved { tensor: FileText, number: u32, name: &'static str, instead: &'static str },
    #[error("tensor {tensor} has type {name} ({number}), which only ik_llama.cpp reads")]
    TypeFork { tensor: FileText, number: u32, name: &'static str },
    #[error(
        "tensor {tensor}: rows of {row_len} values are not a multiple of {block_len}, the block \
         length of {name}"
    )]
    Row { tensor: FileText, row_len: u64, block_len: u64, name: &'static str },
    #[error(
        "tensor {tensor} has offset {offset}, which is not a multiple of the alignment, {alignment} \
         bytes"
    )]
    Misaligned { tensor: FileText, offset: u64, alignment: u64 },
    #[error(
        "tensor {tensor} lies outside the file: it takes {bytes} bytes at offset {offset} of \
         the data, which is {data_bytes} bytes long; is the download complete?"
    )]
    OutOfBounds { tensor: FileText, offset: u64, bytes: u64, data_bytes: u64 },
    #[error("tensors {first} and {second} overlap")]
    Overlap { first: FileText, second: FileText },
    #[error("{bytes} bytes follow the last tensor, more than the {max} that padding can take")]
    Trailing { bytes: u64, max: u64 },

    #[error("{} gives metadata key {key} twice", Setting::OVERRIDE_KV)]
    OverrideTwice { key: FileText },
    #[error(
        "{} gives metadata key {key} as {given}, but in the file it is {found}",
        Setting::OVERRIDE_KV
    )]
    OverrideType { key: FileText, given: &'static str, found: String },
    #[error(
        "{} cannot change general.alignment, on which the tensor offsets depend",
        Setting::OVERRIDE_KV
    )]
    OverrideAlignment,
}

impl Error {
    /// Wraps the error with the path of the file that it was found in.
    pub(super) fn of(self, path: &Path) -> Self {
        Self::In { path: path.into(), source: Box::new(self) }
    }
}

/// Returns a name from the file for a message, in quotation marks.
pub(crate) fn quoted(name: &str) -> FileText {
    FileText::quoted(name)
}

/// Returns text from the file for a terminal, shortened to `chars_max` characters.
pub fn escaped(text: &str, chars_max: usize) -> String {
    FileText::shortened(text, chars_max).to_string()
}
