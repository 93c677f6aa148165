//! GGUF files: reading valid files and rejecting faulty ones.

#[cfg(feature = "program")]
mod cross_check;
mod faults;
mod files;
mod fuzz;
mod overrides;
mod parse;
mod split;
