//! Compares the tokenizer with llama.cpp's.

mod conformance;
mod faults;
mod files;
mod golden;
mod round_trip;
mod wordpiece;
