//! GGUF files: one memory map, checked once, then only borrowed from.

mod metadata;

pub use metadata::{Array, Metadata, Value, ValueType};
