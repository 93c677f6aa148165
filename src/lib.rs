//! GGUF inference on a CPU, beyond the context length that the model was trained for.
//!
//! This program answers at twice the trained length:
//!
//! ```no_run
//! use rope_cpu::{model::Model, rope::{Flags, SCALE}, runtime::{Plan, Settings}};
//! # use rope_cpu::{generate::{Event, Limits, generate}, sample, tokenizer::{Ends, Special}};
//! # use std::ops::ControlFlow;
//!
//! let model = Model::open("llama2-7b.gguf")?;
//! let context = Some((2 * model.config().context_train).into());
//! let rope = Flags::method("yarn").with(&SCALE, 2.0);
//! let plan = Plan::new(&model, &Settings { context, rope, ..Settings::default() })?;
//! plan.check()?; // that it fits in memory
//! let mut session = plan.session(&model)?;
//! let mut sampler = sample::Sampler::new(sample::Settings::default())?;
//! let prompt = model.tokenizer()?.encode("Once upon a time", Special::AsText, Ends::Add);
//! generate(&mut session, &mut sampler, &prompt, &Limits::default(), &mut |event| {
//!     if let Event::Text(text) = event {
//!         print!("{text}");
//!     }
//!     ControlFlow::Continue(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Reading order
//!
//! Modules are listed from callers to callees; no module depends on one above it. Above the library is
//! the program `rope-cpu` (`src/main.rs`, `src/cli` and `src/server`): flags, conversation, requests.
//!
//! | module | contents |
//! |---|---|
//! | [`runtime`] | opens a model: plans memory, threads, context, RoPE and drafts |
//! | [`chat_answer`] | a conversation to a prompt, the limits of its answer, and what reads it |
//! | [`batch`] | answers to many requests at a time: slots, prefix reuse, the cache on disk |
//! | [`eval`] | measurements of a model: speed, the limits of the machine, prediction of a text |
//! | [`generate`] | the loop from a prompt to text; stop rules |
//! | [`sample`] | logits to a token |
//! | [`constraint`] | which tokens may follow, by a schema or grammar |
//! | [`model`] | configuration, weights, buffers, and the forward pass; a [`model::Engine`] computes sequences |
//! | [`chat`], [`tokenizer`] | turns to text, text to tokens and back |
//! | [`kv_cache`] | keys and values of past tokens, in pages |
//! | [`rope`] | the RoPE plan from settings and metadata, its frequencies and cos/sin tables |
//! | [`threads`] | worker threads: steps, phases, and the buffers shared between them |
//! | [`rope_cpu_kernels`] | matrix products, attention, norms, for each format and instruction set |
//! | [`quantize`] | conversion of a model into another format |
//! | [`imatrix`] | importance matrices: which weights matter, for quantization |
//! | `patterns` | many texts found in one pass |
//! | [`hub`] | download and storage of models of the Hugging Face Hub |
//! | [`gguf`] | the memory map of a model file, and its validated contents |
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
