//! Many answers at a time, without HTTP: the scheduler over a tiny random model, step by step.

mod constraints;
mod disk;
mod harness;
mod memory;
mod moves;
mod order;
mod prefill;
mod prefixes;
mod recurrent;
mod threads;
