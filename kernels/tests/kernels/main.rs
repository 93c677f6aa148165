//! Every kernel on every instruction set against the scalar one, and that one against the plain
//! meaning of the formats and formulas.

mod attention;
mod cache;
mod common;
mod formats;
mod probes;
mod products;
mod quantize;
mod vectors;
