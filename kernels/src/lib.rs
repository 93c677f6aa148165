//! Vector kernels of rope-cpu: products of GGUF weights, attention over a cache, and the
//! element-wise steps between them.
//!
//! Reading order: [`isa`] has the vector operations of a CPU, and [`mod@format`] describes the
//! bytes of a file. Then come the drivers, each written once for all formats and instruction sets:
//! [`activations`]; [`product`], with `dot` for few tokens (limited by memory) and `gemm` for many
//! tokens (limited by arithmetic); [`attention`]; [`recurrence`]; [`vector`]. [`probe`] measures
//! the upper limits of a CPU.
//!
//! For an example, see [`multiply`].
//!
//! Invariants:
//! - This crate does not depend on files, models or RoPE rules.
//! - A format is described once and an instruction set once; no function exists for a pair of them.
//! - Every function returns the same bits on every instruction set. Lanes, the order of groups and
//!   the order of reductions are fixed by [`isa::Isa`], not by the width of a register.
//! - `unsafe` is confined to `isa`: the macro that calls intrinsics, [`isa::Isa::call`], two
//!   instructions of aarch64, an empty assembly block of AVX2, and [`isa::Isa::prefetch`] of x86.

// Check it here, since this crate compiles before the others.
#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("rope-cpu needs a 64-bit little-endian processor, such as x86-64 or aarch64");

pub mod activations;
mod array;
pub mod attention;
mod buffer;
pub mod cache;
mod dot;
mod float_gemm;
pub mod format;
mod gemm;
pub mod hadamard;
pub mod isa;
mod operands;
mod panel;
pub mod probe;
pub mod product;
pub mod quantize;
pub mod recurrence;
mod regime;
mod tile;
pub mod vector;

pub use crate::{
    format::DType,
    isa::Cpu,
    operands::{Input, Matrix, Output},
    product::{Scratch, multiply},
    quantize::Encoder,
    regime::Regime,
};
