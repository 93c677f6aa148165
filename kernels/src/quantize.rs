//! Quantization of weights to blocks, the inverse of [`mod@crate::format`], for the formats in
//! which most models are published.
//!
//! Scales are searched for as in llama.cpp's quantizer (`make_qx_quants` and `make_qkx2_quants` in
//! `ggml-quants.c`). llama.cpp then rounds scales to the nearest integers or f16 numbers of the
//! file; here, of several neighbouring ones the one with the smallest error is chosen.

mod affine;
mod symmetric;

use std::marker::PhantomData;

use bytemuck::{Pod, cast_slice_mut};

pub(crate) use self::{
    affine::{AffineBlock, LinearFit},
    symmetric::{SymmetricBlock, largest, nearest_half, quick_half},
};
use crate::{
    DType,
    format::{Bf16, F16, F32, Q1_0, Q2_0, Q4_0, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0},
    isa::{Cpu, Isa, Kernel},
    operands::decode_row,
};

/// A format that weights can be quantized to, with `N` weights in a block.
///
/// Weights that are not finite, or too large for the format, result in a block of other weights.
pub(crate) trait Encode<const N: usize> {
    /// A block of the file.
    type Block: Pod;
    /// Quantizes `weights` to a block.
    fn encode(weights: &[f32; N]) -> Self::Block;
}

/// A quantizer of weights to one format.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    dtype: DType,
    row: fn(Cpu, &[f32], &mut [u8]),
}

impl Encoder {
    /// Creates a quantizer to `dtype`, or returns `None` if the format is not supported.
    pub fn new(dtype: DType) -> Option<Self> {
        let row = match dtype {
            DType::F32 => encode_row::<1, F32>,
            DType::F16 => encode_row::<1, F16>,
            DType::Bf16 => encode_row::<1, Bf16>,
            DType::Q1_0 => encode_row::<128, Q1_0>,
            DType::Q2_0 => encode_row::<64, Q2_0>,
            DType::Q4_0 => encode_row::<32, Q4_0>,
            DType::Q5_0 => encode_row::<32, Q5_0>,
            DType::Q5_1 => encode_row::<32, Q5_1>,
            DType::Q8_0 => encode_row::<32, Q8_0>,
            DType::Q4K => encode_row::<256, Q4K>,
            DType::Q5K => encode_row::<256, Q5K>,
            DType::Q6K => encode_row::<256, Q6K>,
            _ => return None,
        };
        Some(Encoder { dtype, row })
    }

    /// Returns the format that is written.
    pub fn dtype(self) -> DType {
        self.dtype
    }

    /// Quantizes a row of weights to `out`. The row must be whole blocks, and the length of `out`
    /// must match. The bytes are the same on every instruction set.
    pub fn encode(self, cpu: Cpu, weights: &[f32], out: &mut [u8]) {
        let (block, bytes) = self.dtype.block();
        assert!(weights.len().is_multiple_of(block));
        assert_eq!(weights.len() / block * bytes, out.len());
        (self.row)(cpu, weights, out);
    }

    /// Writes the weights of a quantized row to `out`.
    pub fn decode(self, row: &[u8], out: &mut [f32]) {
        decode_row(self.dtype, row, out);
    }
}

fn encode_row<const N: usize, F: Encode<N>>(cpu: Cpu, weights: &[f32], out: &mut [u8]) {
    let (weights, blocks) = (weights.as_chunks().0, cast_slice_mut(out));
    cpu.call(EncodedRow::<N, F> { weights, blocks, format: PhantomData });
}

/// The quantization of a row. It uses no operation of an [`Isa`]: the compiler vectorizes it for
/// the instruction set.
struct EncodedRow<'a, const N: usize, F: Encode<N>> {
    weights: &'a [[f32; N]],
    blocks: &'a mut [F::Block],
    format: PhantomData<F>,
}

impl<const N: usize, F: Encode<N>> Kernel for EncodedRow<'_, N, F> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, _: I) {
        for (weights, block) in self.weights.iter().zip(self.blocks) {
            *block = F::encode(weights);
        }
    }
}

/// Returns the integer from `lowest` to `highest` that is nearest to `value`.
#[inline(always)]
pub(crate) fn nearest(value: f32, lowest: f32, highest: f32) -> f32 {
    value.round_ties_even().clamp(lowest, highest)
}

/// Returns `1 / x`, or 0 if `x` is 0.
#[inline(always)]
pub(crate) fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// Returns the sum of `term(i)` for `i < N`, computed in 8 lanes.
#[inline(always)]
fn sum<const N: usize>(term: impl Fn(usize) -> f32) -> f32 {
    let mut lanes = [0.0; 8];
    for i in (0..N).step_by(lanes.len()) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += term(i + lane);
        }
    }
    lanes.iter().sum()
}

/// Returns the candidate with the smallest `error`, the first one if there are several.
#[inline(always)]
fn best<C: Copy>(candidates: impl Iterator<Item = C>, error: impl Fn(C) -> f32) -> Option<C> {
    let rated = candidates.map(|candidate| (candidate, error(candidate)));
    rated.reduce(|best, new| if new.1 < best.1 { new } else { best }).map(|best| best.0)
}
