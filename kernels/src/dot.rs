//! Few tokens: each row of weights is read once and multiplied as it comes.
//!
//! ```text
//! for each 32 weights:  sum += scale * (quants . activation quants)
//! at the end:           sum of lanes - offsets
//! ```
//! Two accumulators take turns, so that one addition need not wait for the last.

use std::marker::PhantomData;

use bytemuck::cast_slice;

use crate::{
    activations::{Part, Span},
    format::{FloatFormat, Format, GROUP, SPAN, spans, tail},
    isa::{Isa, Kernel, LANES},
    panel::parts,
    product::Product,
};

/// Bytes that are asked for ahead of their use: more than a core reads while memory answers once.
/// The unpacking between two lines is too long for the CPU to look ahead by itself.
const AHEAD: usize = 2048;

/// Rows of weights times each token.
pub(crate) struct Dot<'a, F>(pub(crate) Product<'a>, pub(crate) PhantomData<F>);

/// The same for floating-point weights.
pub(crate) struct FloatDot<'a, F>(pub(crate) Product<'a>, pub(crate) PhantomData<F>);

impl<F: Format> Kernel for Dot<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let (input, columns) = (self.0.input, self.0.weights.columns());
        each(
            self.0,
            #[inline(always)]
            |row, ahead, token| dot::<I, F>(isa, row, ahead, input.spans_of(token, columns)),
        );
    }
}

impl<F: FloatFormat> Kernel for FloatDot<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let (input, columns) = (self.0.input, self.0.weights.columns());
        each(
            self.0,
            #[inline(always)]
            |row, ahead, token| {
                float_dot::<I, F>(isa, cast_slice(row), ahead, input.floats_of(token, columns))
            },
        );
    }
}

/// Calls `dot` for each row, with what is to be prefetched meanwhile, and token, and hands the results on a few rows at a time.
#[inline(always)]
fn each(product: Product<'_>, mut dot: impl FnMut(&[u8], &[u8], usize) -> f32) {
    let Product { weights, rows, input, out, .. } = product;
    for first in rows.clone().step_by(LANES) {
        let n = LANES.min(rows.end - first);
        for token in 0..input.tokens {
            let mut values = [0.0; LANES];
            for (i, value) in values[..n].iter_mut().enumerate() {
                let row = weights.row(first + i);
                // Tokens after the first find the row in the cache.
                let ahead = weights.rows_from(first + i).get(AHEAD..).filter(|_| token == 0);
                *value = dot(row, ahead.unwrap_or_default(), token);
            }
            out.put(token, first, &values[..n]);
        }
    }
}

#[inline(always)]
fn dot<I: Isa, F: Format>(isa: I, row: &[u8], ahead: &[u8], x: &[Span]) -> f32 {
    let mut sums = Sums { products: [isa.splat_f32(0.0); 2], offsets: isa.splat_f32(0.0) };
    let (whole, rest) = spans::<F>(row);
    let (x, x_tail) = x.split_at(whole.len());
    for (s, (w, x)) in whole.iter().zip(x).enumerate() {
        prefetch(isa, ahead, s, size_of::<F::Span>());
        span_dot::<I, F>(isa, w, x, 8, &mut sums);
    }
    if let Some(x) = x_tail.first() {
        let groups = rest.len() * (SPAN / GROUP) / size_of::<F::Span>();
        span_dot::<I, F>(isa, &tail::<F>(rest), x, groups, &mut sums);
    }
    isa.sum(isa.add(sums.products[0], sums.products[1])) - isa.sum(sums.offsets)
}

/// Asks for the lines of part `i`, of `bytes` bytes, of what is ahead.
#[inline(always)]
fn prefetch<I: Isa>(isa: I, ahead: &[u8], i: usize, bytes: usize) {
    for line in (0..bytes).step_by(64) {
        isa.prefetch(ahead, i * bytes + line);
    }
}

struct Sums<I: Isa> {
    products: [I::Floats; 2],
    offsets: I::Floats,
}

#[inline(always)]
fn span_dot<I: Isa, F: Format>(isa: I, w: &F::Span, x: &Span, groups: usize, sums: &mut Sums<I>) {
    let scales = F::scales(isa, w);
    let x_scale = isa.load_f32(&x.scale);
    let scale = [
        isa.to_f32s(isa.mul(scales.scale[0], x_scale)),
        isa.to_f32s(isa.mul(scales.scale[1], x_scale)),
    ];
    for g in 0..groups {
        let (q, a) = (F::quants(isa, w, g), isa.load(&x.quants[g]));
        let ints = if F::SIGNED { isa.dot_signed(q, a) } else { isa.dot_unsigned(q, a) };
        let scale = if F::SPLIT {
            isa.halves(scale[0][g], scale[1][g])
        } else {
            isa.splat_f32(scale[0][g])
        };
        sums.products[g % 2] = isa.mul_add(isa.to_floats(ints), scale, sums.products[g % 2]);
    }
    for part in 0..parts::<F>() {
        let x_sum = isa.load_f32(&x.sums[if F::SPLIT { part } else { Part::Whole as usize }]);
        if F::CENTER > 0 {
            let center = isa.mul(scales.scale[part], isa.splat_f32(f32::from(F::CENTER)));
            sums.offsets = isa.mul_add(center, x_sum, sums.offsets);
        }
        if F::OFFSET {
            sums.offsets = isa.mul_add(scales.offset[part], x_sum, sums.offsets);
        }
    }
}

#[inline(always)]
fn float_dot<I: Isa, F: FloatFormat>(isa: I, w: &[F::Element], ahead: &[u8], x: &[f32]) -> f32 {
    let mut sums = [isa.splat_f32(0.0); 4];
    let ((w, w_rest), (x, x_rest)) = (w.as_chunks::<8>(), x.as_chunks::<8>());
    let ((w, w_last), (x, x_last)) = (w.as_chunks::<4>(), x.as_chunks::<4>());
    for (s, (w, x)) in w.iter().zip(x).enumerate() {
        prefetch(isa, ahead, s, 32 * size_of::<F::Element>());
        for i in 0..4 {
            sums[i] = isa.mul_add(F::load(isa, &w[i]), isa.load_f32(&x[i]), sums[i]);
        }
    }
    for (w, x) in w_last.iter().zip(x_last) {
        sums[0] = isa.mul_add(F::load(isa, w), isa.load_f32(x), sums[0]);
    }
    let mut sum = isa.sum(isa.add(isa.add(sums[0], sums[1]), isa.add(sums[2], sums[3])));
    for (w, x) in w_rest.iter().zip(x_rest) {
        sum += F::decode(*w) * x;
    }
    sum
}
