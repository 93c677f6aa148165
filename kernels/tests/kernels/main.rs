//! Compares every kernel on every instruction set with scalar code, and scalar code with the
//! definitions of formats and formulas.

mod attention;
mod cache;
mod common;
mod formats;
mod hadamard;
mod probes;
mod products;
mod quantize;
mod recurrence;
mod summaries;
mod usable;
mod vectors;
