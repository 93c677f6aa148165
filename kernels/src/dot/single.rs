//! One token at a time: weights are unpacked in registers and multiplied immediately.
//!
//! ```text
//! for each 32 weights of a row (64 in some formats):
//!   sum     += scale * (quants . activation quants)       8 lanes
//! for each 256 weights:
//!   offsets += offset * sums of activation groups         8 lanes
//! result     = sum of lanes of `sum` - sum of lanes of `offsets`
//! ```
//! Two accumulators alternate, so that an addition does not wait for the previous one.

use std::marker::PhantomData;

use bytemuck::must_cast_ref;

use super::{Block, Dots, Row, STREAMS, Spans};
use crate::{
    activations::Span,
    array::map,
    format::{Format, GROUP, Quants, SPAN, Shared},
    isa::{Isa, Kernel},
    operands::{Input, Product},
    panel::{GROUPS, part, parts},
};

/// Products of rows of quantized weights with each token.
pub(crate) struct Dot<'a, F>(pub(crate) Product<'a>, pub(crate) PhantomData<F>);

impl<F: Format> Kernel for Dot<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Product { weights, rows, input, out } = self.0;
        let dots =
            Quantized::<I, F> { isa, input, columns: weights.columns(), format: PhantomData };
        // On other instruction sets, `Together` multiplies several tokens.
        let tokens = if const { I::SMALL_CODE } { input.tokens } else { 1 };
        for block in Block::all(weights, rows) {
            for token in 0..tokens {
                block.multiply(&dots, token, out);
            }
        }
    }
}

/// Dot products with rows of quantized weights.
struct Quantized<'a, I, F> {
    isa: I,
    input: Input<'a>,
    columns: usize,
    format: PhantomData<F>,
}

impl<I: Isa, F: Format> Dots<1> for Quantized<'_, I, F> {
    #[inline(always)]
    fn dots(&self, rows: [Row<'_>; STREAMS], token: usize) -> [[f32; 1]; STREAMS] {
        let isa = self.isa;
        let zero = isa.splat_f32(0.0);
        let mut sums = [Sums { products: [zero; 2], offsets: zero }; STREAMS];
        let x = self.input.spans_of(token, self.columns);
        let spans = Spans::<F>::new(rows);
        let count = spans.count();
        for s in 0..count {
            span_dots::<I, F, true>(isa, spans.whole(isa, s), &x[s], GROUPS, &mut sums);
        }
        // Rows of 256-weight blocks have only whole spans, so the code for other rows is not
        // compiled.
        if F::BLOCK < SPAN && x.len() > count {
            let groups = (self.columns % SPAN) / GROUP;
            let mut copies = [None; STREAMS];
            let last = spans.last(&mut copies);
            span_dots::<I, F, false>(isa, last, &x[count], groups, &mut sums);
        }
        map(
            sums,
            #[inline(always)]
            |Sums { products: [a, b], offsets }| [isa.sum(isa.add(a, b)) - isa.sum(offsets)],
        )
    }
}

/// The accumulators of one row.
#[derive(Clone, Copy)]
struct Sums<I: Isa> {
    products: [I::Floats; 2],
    offsets: I::Floats,
}

impl<I: Isa> Sums<I> {
    /// Adds the `i`-th sums of integer products, times their scales.
    #[inline(always)]
    fn add(&mut self, isa: I, i: usize, ints: I::Ints, scale: I::Floats) {
        let sum = &mut self.products[i % 2];
        *sum = isa.mul_add(isa.to_floats(ints), scale, *sum);
    }
}

/// Adds the products of a span of each row with the same span of the token. Only the first `groups`
/// groups count, whatever the others contain. If the span is `WHOLE`, all groups count.
#[inline(always)]
fn span_dots<I: Isa, F: Format, const WHOLE: bool>(
    isa: I,
    w: [&F::Span; STREAMS],
    x: &Span,
    groups: usize,
    sums: &mut [Sums<I>; STREAMS],
) {
    let zero = isa.splat_f32(0.0);
    let mut scale = [[zero; 2]; STREAMS];
    let mut shared = [[isa.splat(0); 2]; STREAMS];
    for r in 0..STREAMS {
        shared[r] = F::shared(isa, w[r]);
        let mut scales = F::scales(isa, w[r]);
        if !WHOLE {
            for part in 0..parts::<F::Quants>() {
                scales.scale[part] = isa.first_lanes(scales.scale[part], groups);
                scales.offset[part] = isa.first_lanes(scales.offset[part], groups);
            }
        }
        for index in 0..parts::<F::Quants>() {
            scale[r][index] = isa.mul(scales.scale[index], isa.load_f32(&x.scale));
            let x_sum = isa.load_f32(&x.sums[part::<F::Quants>(index) as usize]);
            let offsets = &mut sums[r].offsets;
            if F::CENTER > 0 {
                let center = isa.mul(scales.scale[index], isa.splat_f32(f32::from(F::CENTER)));
                *offsets = isa.mul_add(center, x_sum, *offsets);
            }
            if F::Quants::OFFSET {
                *offsets = isa.mul_add(scales.offset[index], x_sum, *offsets);
            }
        }
        scale[r] = arrange::<I, F>(isa, scale[r]);
    }
    let factors = Factors::<I, F> { isa, w, shared, x, scale };
    match (F::TWO_GROUPS, const { WHOLE && !I::SMALL_CODE }) {
        // Unrolled by hand. For long unpacking code, the compiler would keep a loop, with scales
        // and sums in memory.
        (true, true) => {
            factors.two_groups(0, sums);
            factors.two_groups(1, sums);
            factors.two_groups(2, sums);
            factors.two_groups(3, sums);
        }
        (false, true) => {
            factors.group(0, sums);
            factors.group(1, sums);
            factors.group(2, sums);
            factors.group(3, sums);
            factors.group(4, sums);
            factors.group(5, sums);
            factors.group(6, sums);
            factors.group(7, sums);
        }
        // The scale of a group after the last one is zero.
        (true, false) => {
            for pair in 0..groups.div_ceil(2) {
                factors.two_groups(pair, sums);
            }
        }
        (false, false) => {
            for g in 0..groups {
                factors.group(g, sums);
            }
        }
    }
}

/// A span of each row and of the token, and the products of their scales.
struct Factors<'a, I: Isa, F: Format> {
    isa: I,
    w: [&'a F::Span; STREAMS],
    shared: [Shared<I>; STREAMS],
    x: &'a Span,
    /// The scales, in the order of [`arrange`].
    scale: [[I::Floats; 2]; STREAMS],
}

impl<I: Isa, F: Format> Factors<'_, I, F> {
    /// Multiplies group `g`.
    #[inline(always)]
    fn group(&self, g: usize, sums: &mut [Sums<I>; STREAMS]) {
        let isa = self.isa;
        let a = isa.load(&self.x.quants[g]);
        for r in 0..STREAMS {
            let q = F::quants(isa, self.w[r], self.shared[r], g);
            let ints =
                if F::Quants::SIGNED { isa.dot_signed(q, a) } else { isa.dot_unsigned(q, a) };
            let scale = broadcast_in_halves(isa, self.scale[r][g / 4], g % 4);
            sums[r].add(isa, g, ints, scale);
        }
    }

    /// Multiplies groups `2 * pair` and `2 * pair + 1`.
    #[inline(always)]
    fn two_groups(&self, pair: usize, sums: &mut [Sums<I>; STREAMS]) {
        const {
            let fits = F::Quants::SIGNED || F::Quants::BITS <= 6;
            assert!(!F::TWO_GROUPS || fits && !F::Quants::SPLIT);
        }
        let isa = self.isa;
        let groups: &[[[[u8; 16]; 2]; 2]; 4] = must_cast_ref(&self.x.quants);
        let [b, c] = &groups[pair];
        let a = [isa.join(&b[0], &c[0]), isa.join(&b[1], &c[1])];
        for r in 0..STREAMS {
            let q = F::two_groups(isa, self.w[r], pair);
            let ints = if F::Quants::SIGNED {
                isa.dot_both_signed(q, a)
            } else {
                isa.dot_both_unsigned(q, a)
            };
            let scale = broadcast_in_halves(isa, self.scale[r][0], pair);
            sums[r].add(isa, pair, ints, scale);
        }
    }
}

/// Returns the scales of the first and last halves of groups in the order of their use: from
/// [`Isa::pair_halves`], or twice from [`Isa::evens_then_odds`] if [`Format::TWO_GROUPS`].
#[inline(always)]
pub(super) fn arrange<I: Isa, F: Format>(isa: I, [first, last]: [I::Floats; 2]) -> [I::Floats; 2] {
    match F::TWO_GROUPS {
        true => [isa.evens_then_odds(first); 2],
        false => isa.pair_halves(first, if F::Quants::SPLIT { last } else { first }),
    }
}

/// Returns lane `lane <= 3` of each half in every lane of that half.
#[inline(always)]
fn broadcast_in_halves<I: Isa>(isa: I, a: I::Floats, lane: usize) -> I::Floats {
    match lane {
        0 => isa.broadcast_in_halves::<0>(a),
        1 => isa.broadcast_in_halves::<1>(a),
        2 => isa.broadcast_in_halves::<2>(a),
        _ => isa.broadcast_in_halves::<3>(a),
    }
}
