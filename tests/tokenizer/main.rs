//! The tokenizer against llama.cpp's.

mod conformance;
mod faults;
mod files;
mod golden;
mod round_trip;
