//! GGUF files: one memory map, checked once, then only borrowed from.

mod metadata;

pub use metadata::{Array, Error as MetadataError, Metadata, Value, ValueType};
