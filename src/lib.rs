//! GGUF inference on a CPU, past the context length the model was trained for.
//!
//! # Reading order
//!
//! One token's path runs top to bottom, and nothing points back up. Above the library is the program
//! `rope-cpu` (`src/main.rs` and `src/cli`): flags, conversation, output.
//!
//! | module | what it is |
//! |---|---|
//! | [`eval`] | how fast a model runs, what bounds it, and how well it predicts a text |
//! | [`generate`] | the loop from a prompt to text; stop rules |
//! | [`sample`], [`tokenizer`], [`chat`] | logits to a token, text to tokens and back, turns to text |
//! | [`model`] | configuration, weights, buffers, and the forward pass over a [`model::Session`] |
//! | [`rope`] | one plan from flags and metadata, its frequencies, cosines and sines |
//! | [`kv_cache`] | keys and values of past tokens, in pages |
//! | [`threads`] | one parallel region a step, phases and barriers, and the buffers between them |
//! | [`rope_cpu_kernels`] | products, attention, norms: formats and instruction sets |
//! | [`quantize`] | a model brought into another format |
//! | [`gguf`] | the one memory map, and everything in it, checked |
//! | [`hub`] | models of the Hugging Face Hub, fetched and kept |
//! | [`platform`] | memory, processors, interrupts: all that differs between systems |
//!
//! # Invariants
//!
//! - The kernels know nothing of files, models or RoPE rules; the forward pass knows no instruction
//!   set and no file.
//! - The forward pass sees RoPE as rows of cosines and sines alone: a new rule touches [`rope`] only.
//! - Weights are never copied out of the map.
//! - No buffer is made for a token, but pages of keys and values, and of cosines and sines, as a
//!   sequence grows.
//! - The program does no arithmetic on activations, and the library does not parse or print.
//! - The same inputs give the same bits on any number of threads.
//! - A file's bytes are hostile: whatever they hold gives an error that names the key or tensor.

pub mod chat;
pub mod eval;
pub mod generate;
pub mod gguf;
pub mod hub;
pub mod json;
pub mod kv_cache;
pub mod model;
pub mod platform;
pub mod quantize;
pub mod rope;
pub mod sample;
pub mod threads;
pub mod tokenizer;
pub mod whole_file;

/// A token: an index into the vocabulary.
pub type Token = u32;
