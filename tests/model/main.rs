//! Whole models, small and random, compared with a plain forward pass in double precision.

mod adapters;
mod architectures;
mod assistant;
mod attention;
#[path = "../gguf/build.rs"]
#[allow(dead_code, reason = "made for other tests as well")]
mod build;
mod cache_types;
mod choices;
mod consistency;
mod disk;
mod distances;
mod embeddings;
mod engine;
mod faults;
mod features;
mod latent;
mod meaning;
mod operations;
mod place;
mod position;
mod predictor;
mod recurrence;
mod reference;
mod run;
mod saved;
mod scheduled;
mod self_draft;
mod session;
mod shift;
mod sparse;
mod sparse_prompt;
mod speculation;
mod tiny;
