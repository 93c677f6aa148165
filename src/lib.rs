//! GGUF inference on a CPU, past the context length the model was trained for.

pub mod chat;
pub mod cli;
pub mod generate;
pub mod gguf;
pub mod json;
pub mod kv_cache;
pub mod model;
pub mod platform;
pub mod rope;
pub mod sample;
pub mod threads;
pub mod tokenizer;

/// A token: an index into the vocabulary.
pub type Token = u32;
