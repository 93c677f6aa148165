//! Quantization of weights to blocks, the inverse of [`mod@crate::format`].
//!
//! Scales are searched for as in llama.cpp's quantizer (`make_qx_quants` and `make_qkx2_quants` in
//! `ggml-quants.c`). llama.cpp then rounds them to the nearest integers or f16 numbers. Here,
//! several neighbouring numbers are tried, and the one with the smallest error is chosen.
//!
//! | file | formats |
//! |---|---|
//! | `symmetric` | one scale, or 8-bit scales of groups: Q4_0, Q5_0, Q6_K; ternary formats |
//! | `affine` | scales and minimums: Q4_1, Q5_1, Q2_K, Q4_K, Q5_K |
//! | `scaled` | integer scales of groups, and any set of values: Q3_K, IQ4, code books |

mod affine;
mod grid;
mod scaled;
mod symmetric;

use std::marker::PhantomData;

use bytemuck::{Pod, cast_slice_mut};

pub(crate) use self::{
    affine::{AffineBlock, AffineLevels, LinearFit},
    grid::{Grid, Magnitudes},
    scaled::{Codes, Integers, Multipliers, ScaledBlock, around, fit},
    symmetric::{SymmetricBlock, largest, nearest_half, quick_half, ternary},
};
use crate::{
    DType,
    format::{
        Bf16, F16, F32, Iq1M, Iq1S, Iq2S, Iq2Xs, Iq2Xxs, Iq3S, Iq3Xxs, Iq4Nl, Iq4Xs, Mxfp4, Q1_0,
        Q2_0, Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0, Tq1_0, Tq2_0,
    },
    isa::{Cpu, Isa, Kernel, Scalar},
    operands::decode_row,
};

/// A format that weights can be quantized to, with `N` weights in a block.
///
/// Weights that are not finite, or too large for the format, give a block of other weights.
pub(crate) trait Encode<const N: usize> {
    /// A block of the file.
    type Block: Pod;
    /// Quantizes `weights` to a block with a small sum of squared errors. `importance` has a factor
    /// for each error; `None` gives all errors the same weight.
    fn encode(weights: &[f32; N], importance: Option<&[f32; N]>) -> Self::Block;
}

/// A quantizer of weights to one format.
///
/// ```
/// use rope_cpu_kernels::{Cpu, DType, Encoder};
///
/// let encoder = Encoder::new(DType::Q8_0).unwrap();
/// let weights: Vec<f32> = (0..32).map(|i| i as f32 / 31.0).collect();
/// let mut row = vec![0; 34];
/// encoder.encode(Cpu::best(), &weights, None, &mut row);
/// let mut read = vec![0.0; 32];
/// encoder.decode(&row, &mut read);
/// assert!(weights.iter().zip(&read).all(|(weight, read)| (weight - read).abs() < 0.005));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    dtype: DType,
    row: Row,
}

/// Quantizes a row of weights, with or without their importance, to bytes.
type Row = fn(Cpu, &[f32], Option<&[f32]>, &mut [u8]);

impl Encoder {
    /// Creates a quantizer to `dtype`; `None` if the format is not supported.
    pub fn new(dtype: DType) -> Option<Self> {
        let row = match dtype {
            DType::F32 => encode_row::<1, F32>,
            DType::F16 => encode_row::<1, F16>,
            DType::Bf16 => encode_row::<1, Bf16>,
            DType::Q1_0 => encode_portably::<128, Q1_0>,
            DType::Q2_0 => encode_portably::<64, Q2_0>,
            DType::Q4_0 => encode_portably::<32, Q4_0>,
            DType::Q4_1 => encode_portably::<32, Q4_1>,
            DType::Q5_0 => encode_portably::<32, Q5_0>,
            DType::Q5_1 => encode_portably::<32, Q5_1>,
            DType::Q8_0 => encode_row::<32, Q8_0>,
            DType::Q2K => encode_portably::<256, Q2K>,
            DType::Q3K => encode_portably::<256, Q3K>,
            DType::Q4K => encode_portably::<256, Q4K>,
            DType::Q5K => encode_portably::<256, Q5K>,
            DType::Q6K => encode_portably::<256, Q6K>,
            DType::Iq1S => encode_portably::<256, Iq1S>,
            DType::Iq1M => encode_portably::<256, Iq1M>,
            DType::Iq2Xxs => encode_portably::<256, Iq2Xxs>,
            DType::Iq2Xs => encode_portably::<256, Iq2Xs>,
            DType::Iq2S => encode_portably::<256, Iq2S>,
            DType::Iq3Xxs => encode_portably::<256, Iq3Xxs>,
            DType::Iq3S => encode_portably::<256, Iq3S>,
            DType::Iq4Nl => encode_portably::<32, Iq4Nl>,
            DType::Iq4Xs => encode_portably::<256, Iq4Xs>,
            DType::Mxfp4 => encode_portably::<32, Mxfp4>,
            DType::Tq1_0 => encode_portably::<256, Tq1_0>,
            DType::Tq2_0 => encode_portably::<256, Tq2_0>,
            _ => return None,
        };
        Some(Encoder { dtype, row })
    }

    /// Returns the format that is written.
    pub fn dtype(self) -> DType {
        self.dtype
    }

    /// Quantizes a row of weights to `out`. The row must consist of whole blocks, and the length of
    /// `out` must match. The bytes are the same on every instruction set.
    ///
    /// `importance` has the mean square of each weight's inputs; no number may be negative. With
    /// it, errors of important weights are smaller, and errors of others are larger.
    pub fn encode(self, cpu: Cpu, weights: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        let (block, bytes) = self.dtype.block();
        assert!(weights.len().is_multiple_of(block));
        assert!(importance.is_none_or(|importance| importance.len() == weights.len()));
        assert_eq!(weights.len() / block * bytes, out.len());
        (self.row)(cpu, weights, importance, out);
    }

    /// Writes the weights of a quantized row to `out`.
    pub fn decode(self, row: &[u8], out: &mut [f32]) {
        decode_row(self.dtype, row, out);
    }
}

fn encode_row<const N: usize, F: Encode<N>>(
    cpu: Cpu,
    weights: &[f32],
    importance: Option<&[f32]>,
    out: &mut [u8],
) {
    let (weights, blocks) = (weights.as_chunks().0, cast_slice_mut(out));
    let importance = importance.map(|importance| importance.as_chunks().0);
    cpu.call(EncodedRow::<N, F> { weights, importance, blocks, format: PhantomData });
}

/// Quantizes a row like [`encode_row`], with code that is compiled once for all instruction sets. A
/// search takes about as long with any of them, and blocks without a search take very little time.
fn encode_portably<const N: usize, F: Encode<N>>(
    _: Cpu,
    weights: &[f32],
    importance: Option<&[f32]>,
    out: &mut [u8],
) {
    let (weights, blocks) = (weights.as_chunks().0, cast_slice_mut(out));
    let importance = importance.map(|importance| importance.as_chunks().0);
    EncodedRow::<N, F> { weights, importance, blocks, format: PhantomData }.run(Scalar);
}

/// The quantization of a row. It uses no [`Isa`] operations: the compiler vectorizes it for the
/// instruction set.
struct EncodedRow<'a, const N: usize, F: Encode<N>> {
    weights: &'a [[f32; N]],
    importance: Option<&'a [[f32; N]]>,
    blocks: &'a mut [F::Block],
    format: PhantomData<F>,
}

impl<const N: usize, F: Encode<N>> Kernel for EncodedRow<'_, N, F> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, _: I) {
        for (i, (weights, block)) in self.weights.iter().zip(self.blocks).enumerate() {
            let importance = self.importance.and_then(|all| of_errors(weights, &all[i]));
            *block = F::encode(weights, importance.as_ref());
        }
    }
}

/// Returns the importance of the errors of a block, with a mean of 1. Large weights count more, as
/// in llama.cpp (`sqrt(sigma2 + x * x)`). Returns `None` if no weight is important.
fn of_errors<const N: usize>(weights: &[f32; N], importance: &[f32; N]) -> Option<[f32; N]> {
    /// A weight without inputs still counts a little.
    const LEAST: f32 = 1e-6;
    let mean = weights.iter().map(|weight| weight * weight).sum::<f32>() / N as f32;
    let factors: [f32; N] =
        std::array::from_fn(|i| importance[i] * (mean + weights[i] * weights[i]).sqrt());
    let whole = factors.iter().sum::<f32>() / N as f32;
    let usable = whole > 0.0 && whole.is_finite();
    usable.then(|| factors.map(|factor| (factor / whole).max(LEAST)))
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
