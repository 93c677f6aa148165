//! GGUF inference on a CPU, beyond the context length that the model was trained for.
//!
//! This program answers at twice the trained length:
//!
//! ```no_run
//! use std::ops::ControlFlow::Continue;
//!
//! use rope_cpu::{batch::{Request, Update}, model::Model, rope::{Flags, SCALE}, runtime::{Runtime, Settings}};
//!
//! let model = Model::open("llama2-7b.gguf")?;
//! let context = Some((2 * model.config().context_train).into());
//! let rope = Flags::method("yarn").with(&SCALE, 2.0);
//! let runtime = Runtime::new(model, &Settings { context, rope, ..Settings::default() })?;
//! let prompt = runtime.model().tokenizer()?.encode_chat("Once upon a time");
//! runtime.answer(Request::new(prompt), &mut |update| {
//!     if let Update::Generated(piece) = update {
//!         print!("{}", piece.text);
//!     }
//!     Continue(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Reading order
//!
//! Modules are listed from callers to callees, and a module depends only on those below it. The program
//! `rope-cpu` uses the library: `src/main.rs` and `src/cli` for its flags, `src/server` for requests.
//!
//! | module | contents |
//! |---|---|
//! | [`runtime`] | opens a model: plans memory, threads, context, RoPE and drafts; runs its scheduler |
//! | [`chat_answer`] | the prompt of a conversation, the limits of its answer, and the answer's parser |
//! | [`eval`] | benchmarks and scores: speed, the machine's peaks, perplexity, retrieval |
//! | [`batch`] | a scheduler for many requests: slots, prefix reuse, the cache on disk |
//! | [`generate`] | an answer in progress: its text, limits, drafts and end |
//! | [`sample`] | the choice of a token from logits |
//! | [`constraint`] | restricts answers to a JSON schema, grammar or regular expression |
//! | [`model`] | configuration, weights, buffers, and the forward pass; a [`model::Engine`] computes sequences |
//! | [`chat`], [`tokenizer`] | chat templates; text to tokens and back |
//! | [`kv_cache`] | pages of keys and values |
//! | [`rope`] | RoPE methods: the plan from settings and metadata, frequencies, cos/sin tables |
//! | [`threads`] | the pool of worker threads, and the buffers that they share |
//! | [`rope_cpu_lab`] | mathematics of RoPE research, such as the measure that DPRoPE minimizes |
//! | [`rope_cpu_kernels`] | matrix products, attention, norms, for each format and instruction set |
//! | [`quantize`] | conversion of a model into another format |
//! | [`imatrix`] | importance matrices: which weights matter, for quantization |
//! | `patterns` | finds several strings in a text in one pass |
//! | [`shelf`] | every model on the disk by name, and presets of options |
//! | [`hub`] | download and storage of models of the Hugging Face Hub |
//! | [`gguf`] | memory-maps and validates model files |
//! | [`settings`] | the names and descriptions of settings, from which front ends derive theirs |
//! | `platform` | memory, processors, interrupts: everything that differs between systems |
//!
//! # Invariants
//!
//! - The kernels do not depend on files, models or RoPE rules; the forward pass does not depend on
//!   an instruction set or a file.
//! - The forward pass reads RoPE only as rows of cosines and sines: a new rule changes
//!   [`rope`] only.
//! - Weights are never copied out of the memory map.
//! - No buffer is allocated for a token, except pages of the KV cache and of cos/sin tables as a
//!   sequence grows.
//! - The program does no arithmetic on activations; the library neither parses flags nor prints, and a
//!   setting in its messages has a name that every front end replaces by its own.
//! - The same inputs give the same bits on any number of threads.
//! - A file's bytes are untrusted: invalid contents give an error that names the key or tensor.

pub mod batch;
pub mod chat;
pub mod chat_answer;
pub mod constraint;
pub mod eval;
pub mod generate;
pub mod gguf;
#[cfg(feature = "hub")]
pub mod hub;
pub mod imatrix;
pub mod kv_cache;
pub mod model;
mod patterns;
pub mod quantize;
pub mod rope;
pub mod runtime;
pub mod sample;
pub mod settings;
#[cfg(feature = "hub")]
pub mod shelf;
pub mod threads;
pub mod tokenizer;

/// A token: an index into the vocabulary.
pub type Token = u32;

#[cfg(doctest)]
#[doc = include_str!("../docs/library.md")]
struct LibraryGuide;

// For the program `rope-cpu`: changed without notice.
#[doc(hidden)]
pub mod platform;
#[doc(hidden)]
pub mod whole_file;
#[doc(hidden)]
pub use rope_cpu_json as json;
