//! GGUF files: what is read from good ones, and how bad ones are refused.

mod build;
mod faults;
mod files;
mod fuzz;
mod overrides;
mod parse;
mod second_opinion;
mod split;
