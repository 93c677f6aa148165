//! Tests of the library, a folder for each room of `src/`.

mod batch;
mod constraint;
mod generate;
mod gguf;
mod model;
mod public_api;
mod python_settings;
mod rope;
mod runtime;
mod sample;
mod security;
mod shelf;
mod tokenizer;
