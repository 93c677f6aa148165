//! Whole models, small and random, compared with a plain forward pass in double precision.

mod adapters;
mod architectures;
#[path = "../gguf/build.rs"]
#[allow(dead_code, reason = "made for other tests as well")]
mod build;
mod cache_types;
mod consistency;
mod distances;
mod embeddings;
mod engine;
mod faults;
mod meaning;
mod operations;
mod position;
mod reference;
mod run;
mod saved;
mod session;
mod shift;
mod speculation;
mod tiny;
