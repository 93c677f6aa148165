//! Few tokens: each row of weights is read once and multiplied as it comes.
//!
//! ```text
//! for each 32 weights:  sum += scale * (quants . activation quants)
//! at the end:           sum of lanes - offsets
//! ```
//! Two accumulators take turns, so that one addition need not wait for the last.

use std::{marker::PhantomData, ops::Range};

use bytemuck::cast_slice;

use crate::{
    activations::Span,
    format::{FloatFormat, Format, spans},
    isa::{Isa, Kernel, LANES},
    product::{Input, Matrix, Output},
};

/// Rows of weights times each token.
pub struct Dot<'a, F> {
    weights: &'a Matrix<'a>,
    rows: Range<usize>,
    input: Input<'a>,
    out: &'a mut dyn Output,
    format: PhantomData<F>,
}

/// The same for floating-point weights.
pub struct FloatDot<'a, F>(Dot<'a, F>);

impl<'a, F> Dot<'a, F> {
    /// See [`crate::multiply`].
    pub fn new(
        weights: &'a Matrix<'a>,
        rows: Range<usize>,
        input: Input<'a>,
        out: &'a mut dyn Output,
    ) -> Self {
        Dot { weights, rows, input, out, format: PhantomData }
    }

    /// Calls `dot` for each row and token, and hands the results on a few rows at a time.
    #[inline(always)]
    fn each(self, mut dot: impl FnMut(&[u8], usize) -> f32) {
        let mut row = self.rows.start;
        while row < self.rows.end {
            let n = LANES.min(self.rows.end - row);
            for token in 0..self.input.tokens {
                let mut values = [0.0; LANES];
                for (i, value) in values[..n].iter_mut().enumerate() {
                    *value = dot(self.weights.row(row + i), token);
                }
                self.out.put(token, row, &values[..n]);
            }
            row += n;
        }
    }
}

impl<'a, F> FloatDot<'a, F> {
    /// See [`crate::multiply`].
    pub fn new(
        weights: &'a Matrix<'a>,
        rows: Range<usize>,
        input: Input<'a>,
        out: &'a mut dyn Output,
    ) -> Self {
        FloatDot(Dot::new(weights, rows, input, out))
    }
}

impl<F: Format> Kernel for Dot<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let (input, columns) = (self.input, self.weights.columns());
        self.each(
            #[inline(always)]
            |row, token| dot::<I, F>(isa, row, input.spans_of(token, columns)),
        );
    }
}

impl<F: FloatFormat> Kernel for FloatDot<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let (input, columns) = (self.0.input, self.0.weights.columns());
        self.0.each(
            #[inline(always)]
            |row, token| float_dot::<I, F>(isa, cast_slice(row), input.floats_of(token, columns)),
        );
    }
}

#[inline(always)]
fn dot<I: Isa, F: Format>(isa: I, row: &[u8], x: &[Span]) -> f32 {
    let mut sums = Sums { products: [isa.splat_f32(0.0); 2], offsets: isa.splat_f32(0.0) };
    let (whole, tail) = spans::<F>(row);
    for (w, x) in whole.iter().zip(x) {
        span_dot::<I, F>(isa, w, x, 8, &mut sums);
    }
    if let (Some((w, groups)), Some(x)) = (tail, x.last()) {
        span_dot::<I, F>(isa, &w, x, groups, &mut sums);
    }
    isa.sum(isa.add(sums.products[0], sums.products[1])) - isa.sum(sums.offsets)
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
    if F::OFFSET {
        for (offset, x_sum) in scales.offset.into_iter().zip(&x.sums) {
            sums.offsets = isa.mul_add(offset, isa.load_f32(x_sum), sums.offsets);
        }
    }
}

#[inline(always)]
fn float_dot<I: Isa, F: FloatFormat>(isa: I, w: &[F::Element], x: &[f32]) -> f32 {
    let mut sums = [isa.splat_f32(0.0); 4];
    let ((w, w_rest), (x, x_rest)) = (w.as_chunks::<8>(), x.as_chunks::<8>());
    let ((w, w_last), (x, x_last)) = (w.as_chunks::<4>(), x.as_chunks::<4>());
    for (w, x) in w.iter().zip(x) {
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
