//! The tokenizer against llama.cpp's.

mod conformance;
mod files;
