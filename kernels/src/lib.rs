//! Vector kernels of rope-cpu: products of GGUF weights, attention over a cache, and the
//! element-wise steps between them.
//!
//! Reading order: [`isa`] (what a machine can do), [`mod@format`] (what the bytes mean), then the
//! drivers, each written once for all formats and machines: [`activations`], [`product`] with its
//! two ways `dot` (few tokens, bound by memory) and `gemm` (many tokens, bound by arithmetic),
//! [`attention`], [`vector`]. [`probe`] measures what a machine can do at most.
//!
//! Invariants:
//! - Nothing here knows of files, models or RoPE rules.
//! - A format is described once and a machine once; no function exists for a pair of them.
//! - Every function gives the same bits on every instruction set. Lanes, the order of groups and
//!   the order of reductions are fixed by [`isa::Isa`], not by the width of a register.
//! - `unsafe` stands only in `isa`: in the macro that calls intrinsics, in [`isa::Isa::call`], in
//!   one NEON instruction, in an empty one of AVX2, and in [`isa::Isa::prefetch`] of x86.

pub mod activations;
mod array;
pub mod attention;
pub mod cache;
mod dot;
mod float_gemm;
pub mod format;
mod gemm;
pub mod isa;
mod panel;
pub mod probe;
pub mod product;
pub mod quantize;
mod regime;
mod tile;
pub mod vector;

pub use crate::{
    format::DType,
    isa::Cpu,
    product::{Input, Matrix, Output, Scratch, multiply},
    quantize::Encoder,
    regime::Regime,
};
