//! Activations rounded to 8 bits, for products with quantized weights of any format.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use crate::{
    format::{GROUP, SPAN},
    isa::{Cpu, Isa, Kernel},
};

/// 256 activations in eight groups of 32. Each is `scale * quant`, `-127 <= quant <= 127`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(32))]
pub struct Span {
    /// The quants of each group, signed.
    pub quants: [[u8; 32]; 8],
    /// The scale of each group.
    pub scale: [f32; 8],
    /// The sums of the quants: (parts, groups), with [`GroupPart`] as the first index.
    pub quant_sums: [[i32; 8]; 3],
    /// `quant_sums` times the scale of the group.
    pub sums: [[f32; 8]; 3],
}

/// A part of a group with one scale, in some format of weights.
#[derive(Clone, Copy)]
pub enum GroupPart {
    /// The first 16 weights.
    First = 0,
    /// The last 16 weights.
    Last = 1,
    /// All 32 weights.
    Whole = 2,
}

/// Returns the number of spans that hold `columns` activations.
pub fn spans_for(columns: usize) -> usize {
    columns.div_ceil(SPAN)
}

/// Rounds `x` (columns) to `out` ([`spans_for`] columns), and pads the last span with zeros. The
/// scale of a group is its largest magnitude / 127, so the error of an activation is at most half
/// the scale.
///
/// ```
/// use bytemuck::Zeroable;
/// use rope_cpu_kernels::{Cpu, activations::{Span, quantize, spans_for}};
///
/// let x = [0.5, 1.0, 0.0];
/// let mut spans = vec![Span::zeroed(); spans_for(x.len())];
/// quantize(Cpu::best(), &x, &mut spans);
/// assert_eq!(spans[0].quants[0][..3], [64, 127, 0]);
/// assert_eq!(spans[0].scale[0], 1.0 / 127.0);
/// ```
pub fn quantize(cpu: Cpu, x: &[f32], out: &mut [Span]) {
    assert_eq!(out.len(), spans_for(x.len()));
    cpu.call(Quantize { x, out });
}

struct Quantize<'a> {
    x: &'a [f32],
    out: &'a mut [Span],
}

impl Kernel for Quantize<'_> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        for (x, span) in self.x.chunks(SPAN).zip(self.out) {
            if let Some(whole) = x.as_array() {
                quantize_span(isa, whole, span);
            } else {
                let mut padded = [0.0; SPAN];
                padded[..x.len()].copy_from_slice(x);
                quantize_span(isa, &padded, span);
            }
        }
    }
}

#[inline(always)]
fn quantize_span<I: Isa>(isa: I, x: &[f32; SPAN], out: &mut Span) {
    for (g, x) in x.as_chunks::<GROUP>().0.iter().enumerate() {
        let (quants, scale) = quantize_group(isa, x);
        let [first, last]: [i32; 2] = from_fn(|h| {
            quants[2 * h..2 * h + 2].as_flattened().iter().map(|&q| i32::from(q)).sum()
        });
        out.quants[g] = bytemuck::must_cast(quants);
        out.scale[g] = scale;
        for (part, sum) in [first, last, first + last].into_iter().enumerate() {
            out.quant_sums[part][g] = sum;
            out.sums[part][g] = scale * sum as f32;
        }
    }
}

/// Rounds 32 floats to signed bytes of magnitude at most 127, and returns them with their scale.
#[inline(always)]
pub(crate) fn quantize_group<I: Isa>(isa: I, x: &[f32; GROUP]) -> ([[i8; 8]; 4], f32) {
    let x = x.as_chunks::<8>().0;
    let mut largest = isa.abs(isa.load_f32(&x[0]));
    for part in &x[1..] {
        largest = isa.max(largest, isa.abs(isa.load_f32(part)));
    }
    let scale = isa.max_lane(largest) / 127.0;
    // The inverse of a subnormal number may be infinite.
    let inverse = isa.splat_f32(if scale >= f32::MIN_POSITIVE { 1.0 / scale } else { 0.0 });
    let mut quants = [[0; 8]; 4];
    for (q, x) in quants.iter_mut().zip(x) {
        *q = isa.i8_from_floats(isa.mul(isa.load_f32(x), inverse));
    }
    (quants, scale)
}
