//! Few tokens: each row of weights is read once, unpacked in registers and multiplied.
//!
//! ```text
//! for each 32 weights of a row (64 in some formats):
//!   sum     += scale * (quants . activation quants)       8 lanes
//! for each 256 weights:
//!   offsets += offset * sums of activation groups         8 lanes
//! result     = sum of lanes of `sum` - sum of lanes of `offsets`
//! ```
//! Two accumulators alternate, so that an addition does not wait for the previous one. Two rows are
//! read side by side, from places far apart: a core prefetches each such stream separately, and a
//! single stream uses only a small part of the memory bandwidth of a core.

use std::marker::PhantomData;

use bytemuck::{Zeroable, cast_slice, from_bytes, must_cast_ref};

use crate::{
    activations::Span,
    array::map,
    format::{FloatFormat, Format, GROUP, Quants, SPAN, Shared, spans, tail},
    isa::{Isa, Kernel, LANES},
    panel::{part, parts},
    product::{Input, Matrix, Product},
};

/// The number of rows that are read side by side.
const STREAMS: usize = 2;

/// The distance in bytes between a read and the prefetch that goes with it: more than a stream
/// reads during one memory access. Prefetches are explicit because the unpacking between two cache
/// lines is too long for out-of-order execution to reach the next read.
const AHEAD: usize = 2048;

/// Products of rows of quantized weights with each token.
pub(crate) struct Dot<'a, F>(pub(crate) Product<'a>, pub(crate) PhantomData<F>);

/// Products of rows of floating-point weights with each token.
pub(crate) struct FloatDot<'a, F>(pub(crate) Product<'a>, pub(crate) PhantomData<F>);

impl<F: Format> Kernel for Dot<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let (input, columns) = (self.0.input, self.0.weights.columns());
        multiply_rows(self.0, Quantized::<I, F> { isa, input, columns, format: PhantomData });
    }
}

impl<F: FloatFormat> Kernel for FloatDot<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let (input, columns) = (self.0.input, self.0.weights.columns());
        multiply_rows(self.0, Floats::<I, F> { isa, input, columns, format: PhantomData });
    }
}

/// One row of weights, and the bytes to prefetch meanwhile.
#[derive(Clone, Copy)]
struct Row<'a> {
    bytes: &'a [u8],
    /// The row and all that follow it.
    onward: &'a [u8],
    /// The bytes to prefetch, or nothing.
    ahead: &'a [u8],
}

impl<'a> Row<'a> {
    #[inline(always)]
    fn new(weights: &Matrix<'a>, row: usize, token: usize) -> Row<'a> {
        // For tokens after the first, the row is in the CPU's cache.
        let onward = weights.rows_from(row);
        let ahead = onward.get(AHEAD..).filter(|_| token == 0);
        Row { bytes: weights.row(row), onward, ahead: ahead.unwrap_or_default() }
    }
}

/// A product of several rows with one token.
trait Dots {
    /// Returns the dot product of each row with the token.
    fn dots<const R: usize>(&self, rows: [Row<'_>; R], token: usize) -> [f32; R];
}

/// Multiplies each row with each token, and writes the results of up to 16 rows at a time.
#[inline(always)]
fn multiply_rows(product: Product<'_>, dots: impl Dots) {
    let Product { weights, rows, input, out, .. } = product;
    let length = rows.len() / STREAMS;
    for first in (0..length).step_by(LANES) {
        let n = LANES.min(length - first);
        for token in 0..input.tokens {
            let mut values = [[0.0; LANES]; STREAMS];
            for i in 0..n {
                let mut side_by_side = [Row { bytes: &[], onward: &[], ahead: &[] }; STREAMS];
                for s in 0..STREAMS {
                    side_by_side[s] = Row::new(weights, rows.start + s * length + first + i, token);
                }
                let sums = dots.dots(side_by_side, token);
                for s in 0..STREAMS {
                    values[s][i] = sums[s];
                }
            }
            for s in 0..STREAMS {
                out.put(token, rows.start + s * length + first, &values[s][..n]);
            }
        }
    }
    for row in rows.start + STREAMS * length..rows.end {
        for token in 0..input.tokens {
            out.put(token, row, &dots.dots([Row::new(weights, row, token)], token));
        }
    }
}

/// Prefetches the cache lines of `ahead[i * bytes..][..bytes]`.
#[inline(always)]
fn prefetch<I: Isa>(isa: I, ahead: &[u8], i: usize, bytes: usize) {
    for line in (0..bytes).step_by(64) {
        isa.prefetch(ahead, i * bytes + line);
    }
}

/// Dot products with rows of quantized weights.
struct Quantized<'a, I, F> {
    isa: I,
    input: Input<'a>,
    columns: usize,
    format: PhantomData<F>,
}

impl<I: Isa, F: Format> Dots for Quantized<'_, I, F> {
    #[inline(always)]
    fn dots<const R: usize>(&self, rows: [Row<'_>; R], token: usize) -> [f32; R] {
        let isa = self.isa;
        let zero = isa.splat_f32(0.0);
        let mut sums = [Sums { products: [zero; 2], offsets: zero }; R];
        let mut whole = [&[][..]; R];
        for r in 0..R {
            whole[r] = spans::<F>(rows[r].bytes).0;
        }
        let (x, x_tail) = self.input.spans_of(token, self.columns).split_at(whole[0].len());
        for (s, x) in x.iter().enumerate() {
            let mut w = [&whole[0][s]; R];
            for r in 0..R {
                prefetch(isa, rows[r].ahead, s, size_of::<F::Span>());
                w[r] = &whole[r][s];
            }
            span_dots::<I, F, R>(isa, w, x, 8, &mut sums);
        }
        // Rows of 256-weight blocks are whole spans: the code for other rows is not compiled.
        if F::BLOCK < SPAN
            && let Some(x) = x_tail.first()
        {
            let groups = (self.columns % SPAN) / GROUP;
            let nothing = F::Span::zeroed();
            let (mut tails, mut copies) = ([&nothing; R], [None; R]);
            for ((tail, copy), row) in tails.iter_mut().zip(&mut copies).zip(&rows) {
                *tail = last::<F>(row, copy);
            }
            span_dots::<I, F, R>(isa, tails, x, groups, &mut sums);
        }
        map(
            sums,
            #[inline(always)]
            |sums| isa.sum(isa.add(sums.products[0], sums.products[1])) - isa.sum(sums.offsets),
        )
    }
}

/// Returns the span that begins after a row's whole spans: in place, where it includes the first
/// blocks of the next row, or as a copy padded with zeros at the end of the matrix.
#[inline(always)]
fn last<'s, F: Format>(row: &Row<'s>, copy: &'s mut Option<F::Span>) -> &'s F::Span {
    let (whole, rest) = spans::<F>(row.bytes);
    let start = size_of_val(whole);
    match row.onward.get(start..start + size_of::<F::Span>()) {
        Some(place) => from_bytes(place),
        None => copy.insert(tail::<F>(rest)),
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

/// Adds the products of a span of each row with the same span of a token. Only the first `groups`
/// groups count, whatever the other groups contain.
#[inline(always)]
fn span_dots<I: Isa, F: Format, const R: usize>(
    isa: I,
    w: [&F::Span; R],
    x: &Span,
    groups: usize,
    sums: &mut [Sums<I>; R],
) {
    let x_scale = isa.load_f32(&x.scale);
    let mut scale = [[x_scale; 2]; R];
    let mut shared = [[isa.splat(0); 2]; R];
    for r in 0..R {
        shared[r] = F::shared(isa, w[r]);
        let mut scales = F::scales(isa, w[r]);
        if groups < SPAN / GROUP {
            for part in 0..parts::<F::Quants>() {
                scales.scale[part] = isa.first_lanes(scales.scale[part], groups);
                scales.offset[part] = isa.first_lanes(scales.offset[part], groups);
            }
        }
        for index in 0..parts::<F::Quants>() {
            scale[r][index] = isa.mul(scales.scale[index], x_scale);
            let x_sum = isa.load_f32(&x.sums[part::<F::Quants>(index) as usize]);
            if F::CENTER > 0 {
                let center = isa.mul(scales.scale[index], isa.splat_f32(f32::from(F::CENTER)));
                sums[r].offsets = isa.mul_add(center, x_sum, sums[r].offsets);
            }
            if F::Quants::OFFSET {
                sums[r].offsets = isa.mul_add(scales.offset[index], x_sum, sums[r].offsets);
            }
        }
        scale[r] = if F::TWO_GROUPS {
            [isa.evens_then_odds(scale[r][0]); 2]
        } else {
            isa.pair_halves(scale[r][0], scale[r][usize::from(F::Quants::SPLIT)])
        };
    }
    let factors = Factors::<I, F, R> { isa, w, shared, x, scale };
    match (F::TWO_GROUPS, groups == SPAN / GROUP) {
        // Unrolled by hand: for long unpacking code, the compiler would keep a loop, with scales
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
        // The scale of a group beyond the last is zero.
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

/// A span of each row and of a token, and the products of their scales.
struct Factors<'a, I: Isa, F: Format, const R: usize> {
    isa: I,
    w: [&'a F::Span; R],
    shared: [Shared<I>; R],
    x: &'a Span,
    /// In the order of [`Isa::pair_halves`], or twice in that of [`Isa::evens_then_odds`] if
    /// [`Format::TWO_GROUPS`].
    scale: [[I::Floats; 2]; R],
}

impl<I: Isa, F: Format, const R: usize> Factors<'_, I, F, R> {
    /// Multiplies group `g`.
    #[inline(always)]
    fn group(&self, g: usize, sums: &mut [Sums<I>; R]) {
        let isa = self.isa;
        let a = isa.load(&self.x.quants[g]);
        for r in 0..R {
            let q = F::quants(isa, self.w[r], self.shared[r], g);
            let ints =
                if F::Quants::SIGNED { isa.dot_signed(q, a) } else { isa.dot_unsigned(q, a) };
            let scale = broadcast_in_halves(isa, self.scale[r][g / 4], g % 4);
            sums[r].add(isa, g, ints, scale);
        }
    }

    /// Multiplies groups `2 * pair` and `2 * pair + 1`.
    #[inline(always)]
    fn two_groups(&self, pair: usize, sums: &mut [Sums<I>; R]) {
        const {
            let fits = F::Quants::SIGNED || F::Quants::BITS <= 6;
            assert!(!F::TWO_GROUPS || fits && !F::Quants::SPLIT);
        }
        let isa = self.isa;
        let groups: &[[[[u8; 16]; 2]; 2]; 4] = must_cast_ref(&self.x.quants);
        let [b, c] = &groups[pair];
        let a = [isa.join(&b[0], &c[0]), isa.join(&b[1], &c[1])];
        for r in 0..R {
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

/// Dot products with rows of floating-point weights.
struct Floats<'a, I, F> {
    isa: I,
    input: Input<'a>,
    columns: usize,
    format: PhantomData<F>,
}

impl<I: Isa, F: FloatFormat> Dots for Floats<'_, I, F> {
    #[inline(always)]
    fn dots<const R: usize>(&self, rows: [Row<'_>; R], token: usize) -> [f32; R] {
        let x = self.input.floats_of(token, self.columns);
        map(
            rows,
            #[inline(always)]
            |row| float_dot::<I, F>(self.isa, cast_slice(row.bytes), row.ahead, x),
        )
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
