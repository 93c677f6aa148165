//! Many answers at a time, without HTTP: the scheduler over a tiny random model, step by step.

#[path = "../model/tiny.rs"]
#[allow(dead_code, reason = "made for other tests as well")]
mod architectures;
#[path = "../gguf/build.rs"]
#[allow(dead_code, reason = "made for other tests as well")]
mod build;
mod constraints;
mod disk;
mod harness;
mod memory;
mod moves;
mod order;
mod prefixes;
mod recurrent;
mod threads;
#[path = "../cli/tiny.rs"]
#[allow(dead_code, reason = "made for other tests as well")]
mod tiny;
