//! Activations rounded to 8 bits, the second factor of products with quantized weights: one type
//! for every format.

use std::array::from_fn;

use bytemuck::{Pod, Zeroable};

use crate::{
    format::SPAN,
    isa::{Cpu, Isa, Kernel},
};

/// 256 activations in eight groups of 32: each is `scale * quant`, `-127 <= quant <= 127`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Span {
    /// The quants of each group, signed.
    pub quants: [[u8; 32]; 8],
    /// The scale of each group.
    pub scale: [f32; 8],
    /// `scale * sum of quants` over the first and the second half of each group.
    pub sums: [[f32; 8]; 2],
    /// The sum of all quants of each group.
    pub quant_sum: [i32; 8],
}

/// Spans that hold `columns` activations; the last one is filled up with zeros.
pub fn spans_for(columns: usize) -> usize {
    columns.div_ceil(SPAN)
}

/// Rounds `x` (columns) to `out` ([`spans_for`] columns). Each group is scaled by its largest
/// magnitude / 127, so the error of an activation is at most half of that.
pub fn quantize(cpu: Cpu, x: &[f32], out: &mut [Span]) {
    assert_eq!(out.len(), spans_for(x.len()));
    cpu.call(Quantize { x, out });
}

struct Quantize<'a> {
    x: &'a [f32],
    out: &'a mut [Span],
}

impl Kernel for Quantize<'_> {
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
    for (g, x) in x.as_chunks::<32>().0.iter().enumerate() {
        let x = x.as_chunks::<8>().0;
        let mut largest = isa.abs(isa.load_f32(&x[0]));
        for part in &x[1..] {
            largest = isa.max(largest, isa.abs(isa.load_f32(part)));
        }
        let scale = isa.max_lane(largest) / 127.0;
        let inverse = isa.splat_f32(if scale > 0.0 { 1.0 / scale } else { 0.0 });
        let mut quants = [[0i8; 8]; 4];
        for (q, x) in quants.iter_mut().zip(x) {
            *q = isa.i8_from_floats(isa.mul(isa.load_f32(x), inverse));
        }
        let half_sum: [i32; 2] = from_fn(|h| {
            quants[2 * h..2 * h + 2].as_flattened().iter().map(|&q| i32::from(q)).sum()
        });
        out.quants[g] = bytemuck::must_cast(quants);
        out.scale[g] = scale;
        out.sums[0][g] = scale * half_sum[0] as f32;
        out.sums[1][g] = scale * half_sum[1] as f32;
        out.quant_sum[g] = half_sum[0] + half_sum[1];
    }
}
