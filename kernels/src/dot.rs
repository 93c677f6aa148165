//! Few tokens: each row of weights is read once, unpacked in registers and multiplied by a tile of
//! tokens.
//!
//! ```text
//! for each 32 weights of a row (64 in some formats), each token of the tile:
//!   sum     += scale * (quants . activation quants)       8 lanes
//! for each 256 weights, each token:
//!   offsets += offset * sums of activation groups         8 lanes
//! result     = sum of lanes of `sum` - sum of lanes of `offsets`
//! ```
//! The sums of a token do not depend on the other tokens of its tile.
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
    product::{Input, Matrix, Output, Product},
};

/// The number of rows that are read side by side.
const STREAMS: usize = 2;

/// The number of tokens of a tile, for which a row is unpacked once. More would not gain much: their
/// products take longer than unpacking, and their sums would not stay in the registers of AVX2.
const TOKENS: usize = 2;

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

/// A product of several rows with several tokens.
trait Dots {
    /// Returns the dot products of each row with tokens `first .. first + N`.
    fn dots<const R: usize, const N: usize>(
        &self,
        rows: [Row<'_>; R],
        first: usize,
    ) -> [[f32; N]; R];
}

/// Multiplies each row with each token, and writes the results of up to 16 rows at a time.
#[inline(always)]
fn multiply_rows(product: Product<'_>, dots: impl Dots) {
    let Product { weights, rows, input, out, .. } = product;
    let length = rows.len() / STREAMS;
    let paired = input.tokens / TOKENS * TOKENS;
    for first in (0..length).step_by(LANES) {
        let places = [0, 1].map(|s| rows.start + s * length + first);
        let block = Block { weights, places, count: LANES.min(length - first) };
        for token in (0..paired).step_by(TOKENS) {
            block.multiply::<TOKENS>(&dots, token, out);
        }
        for token in paired..input.tokens {
            block.multiply::<1>(&dots, token, out);
        }
    }
    for row in rows.start + STREAMS * length..rows.end {
        for token in 0..input.tokens {
            let [sums] = dots.dots::<1, 1>([Row::new(weights, row, token)], token);
            out.put(token, row, &sums);
        }
    }
}

/// Up to 16 rows from each of several places.
struct Block<'a> {
    weights: &'a Matrix<'a>,
    /// The first row at each place.
    places: [usize; STREAMS],
    count: usize,
}

impl Block<'_> {
    /// Multiplies the rows with tokens `first .. first + N`.
    #[inline(always)]
    fn multiply<const N: usize>(&self, dots: &impl Dots, first: usize, out: &mut dyn Output) {
        let mut values = [[[0.0; LANES]; STREAMS]; N];
        for i in 0..self.count {
            let mut side_by_side = [Row { bytes: &[], onward: &[], ahead: &[] }; STREAMS];
            for s in 0..STREAMS {
                side_by_side[s] = Row::new(self.weights, self.places[s] + i, first);
            }
            let sums = dots.dots::<STREAMS, N>(side_by_side, first);
            for s in 0..STREAMS {
                for t in 0..N {
                    values[t][s][i] = sums[s][t];
                }
            }
        }
        for t in 0..N {
            for s in 0..STREAMS {
                out.put(first + t, self.places[s], &values[t][s][..self.count]);
            }
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
    fn dots<const R: usize, const N: usize>(
        &self,
        rows: [Row<'_>; R],
        first: usize,
    ) -> [[f32; N]; R] {
        let isa = self.isa;
        let zero = isa.splat_f32(0.0);
        let mut sums = [[Sums { products: [zero; 2], offsets: zero }; N]; R];
        let mut whole = [&[][..]; R];
        for r in 0..R {
            whole[r] = spans::<F>(rows[r].bytes).0;
        }
        let count = whole[0].len();
        let mut x = [&[][..]; N];
        for t in 0..N {
            x[t] = self.input.spans_of(first + t, self.columns);
        }
        for s in 0..count {
            let mut w = [&whole[0][s]; R];
            for r in 0..R {
                prefetch(isa, rows[r].ahead, s, size_of::<F::Span>());
                w[r] = &whole[r][s];
            }
            span_dots::<I, F, R, N>(isa, w, spans_at(x, s), 8, &mut sums);
        }
        // Rows of 256-weight blocks are whole spans: the code for other rows is not compiled.
        if F::BLOCK < SPAN && x[0].len() > count {
            let groups = (self.columns % SPAN) / GROUP;
            let nothing = F::Span::zeroed();
            let (mut tails, mut copies) = ([&nothing; R], [None; R]);
            for ((tail, copy), row) in tails.iter_mut().zip(&mut copies).zip(&rows) {
                *tail = last::<F>(row, copy);
            }
            span_dots::<I, F, R, N>(isa, tails, spans_at(x, count), groups, &mut sums);
        }
        let mut out = [[0.0; N]; R];
        for r in 0..R {
            for t in 0..N {
                let Sums { products: [a, b], offsets } = sums[r][t];
                out[r][t] = isa.sum(isa.add(a, b)) - isa.sum(offsets);
            }
        }
        out
    }
}

/// Returns span `s` of each token.
#[inline(always)]
fn spans_at<const N: usize>(x: [&[Span]; N], s: usize) -> [&Span; N] {
    let mut spans = [&x[0][s]; N];
    for t in 1..N {
        spans[t] = &x[t][s];
    }
    spans
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

/// Adds the products of a span of each row with the same span of each token. Only the first
/// `groups` groups count, whatever the other groups contain.
#[inline(always)]
fn span_dots<I: Isa, F: Format, const R: usize, const N: usize>(
    isa: I,
    w: [&F::Span; R],
    x: [&Span; N],
    groups: usize,
    sums: &mut [[Sums<I>; N]; R],
) {
    let zero = isa.splat_f32(0.0);
    let mut scale = [[[zero; 2]; N]; R];
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
        for t in 0..N {
            let (scale, sums) = (&mut scale[r][t], &mut sums[r][t]);
            for index in 0..parts::<F::Quants>() {
                scale[index] = isa.mul(scales.scale[index], isa.load_f32(&x[t].scale));
                let x_sum = isa.load_f32(&x[t].sums[part::<F::Quants>(index) as usize]);
                if F::CENTER > 0 {
                    let center = isa.mul(scales.scale[index], isa.splat_f32(f32::from(F::CENTER)));
                    sums.offsets = isa.mul_add(center, x_sum, sums.offsets);
                }
                if F::Quants::OFFSET {
                    sums.offsets = isa.mul_add(scales.offset[index], x_sum, sums.offsets);
                }
            }
            *scale = if F::TWO_GROUPS {
                [isa.evens_then_odds(scale[0]); 2]
            } else {
                isa.pair_halves(scale[0], scale[usize::from(F::Quants::SPLIT)])
            };
        }
    }
    let factors = Factors::<I, F, R, N> { isa, w, shared, x, scale };
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

/// A span of each row and of each token, and the products of their scales.
struct Factors<'a, I: Isa, F: Format, const R: usize, const N: usize> {
    isa: I,
    w: [&'a F::Span; R],
    shared: [Shared<I>; R],
    x: [&'a Span; N],
    /// In the order of [`Isa::pair_halves`], or twice in that of [`Isa::evens_then_odds`] if
    /// [`Format::TWO_GROUPS`].
    scale: [[[I::Floats; 2]; N]; R],
}

impl<I: Isa, F: Format, const R: usize, const N: usize> Factors<'_, I, F, R, N> {
    /// Multiplies group `g`.
    #[inline(always)]
    fn group(&self, g: usize, sums: &mut [[Sums<I>; N]; R]) {
        let isa = self.isa;
        for r in 0..R {
            let q = F::quants(isa, self.w[r], self.shared[r], g);
            for t in 0..N {
                let a = isa.load(&self.x[t].quants[g]);
                let ints =
                    if F::Quants::SIGNED { isa.dot_signed(q, a) } else { isa.dot_unsigned(q, a) };
                let scale = broadcast_in_halves(isa, self.scale[r][t][g / 4], g % 4);
                sums[r][t].add(isa, g, ints, scale);
            }
        }
    }

    /// Multiplies groups `2 * pair` and `2 * pair + 1`.
    #[inline(always)]
    fn two_groups(&self, pair: usize, sums: &mut [[Sums<I>; N]; R]) {
        const {
            let fits = F::Quants::SIGNED || F::Quants::BITS <= 6;
            assert!(!F::TWO_GROUPS || fits && !F::Quants::SPLIT);
        }
        let isa = self.isa;
        for r in 0..R {
            let q = F::two_groups(isa, self.w[r], pair);
            for t in 0..N {
                let groups: &[[[[u8; 16]; 2]; 2]; 4] = must_cast_ref(&self.x[t].quants);
                let [b, c] = &groups[pair];
                let a = [isa.join(&b[0], &c[0]), isa.join(&b[1], &c[1])];
                let ints = if F::Quants::SIGNED {
                    isa.dot_both_signed(q, a)
                } else {
                    isa.dot_both_unsigned(q, a)
                };
                let scale = broadcast_in_halves(isa, self.scale[r][t][0], pair);
                sums[r][t].add(isa, pair, ints, scale);
            }
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
    fn dots<const R: usize, const N: usize>(
        &self,
        rows: [Row<'_>; R],
        first: usize,
    ) -> [[f32; N]; R] {
        let mut x = [&[][..]; N];
        for t in 0..N {
            x[t] = self.input.floats_of(first + t, self.columns);
        }
        map(
            rows,
            #[inline(always)]
            |row| float_dots::<I, F, N>(self.isa, cast_slice(row.bytes), row.ahead, x),
        )
    }
}

/// Returns the dot products of a row with each token.
#[inline(always)]
fn float_dots<I: Isa, F: FloatFormat, const N: usize>(
    isa: I,
    w: &[F::Element],
    ahead: &[u8],
    x: [&[f32]; N],
) -> [f32; N] {
    const VECTORS: usize = 4;
    let mut sums = [[isa.splat_f32(0.0); VECTORS]; N];
    let (w, w_rest) = w.as_chunks::<8>();
    let mut vectors = [&[][..]; N];
    for t in 0..N {
        vectors[t] = &x[t].as_chunks::<8>().0[..w.len()];
    }
    let whole = w.len() / VECTORS;
    for s in 0..whole {
        prefetch(isa, ahead, s, 32 * size_of::<F::Element>());
        for i in 0..VECTORS {
            let w = F::load(isa, &w[s * VECTORS + i]);
            for t in 0..N {
                let x = isa.load_f32(&vectors[t][s * VECTORS + i]);
                sums[t][i] = isa.mul_add(w, x, sums[t][i]);
            }
        }
    }
    for j in whole * VECTORS..w.len() {
        let w = F::load(isa, &w[j]);
        for t in 0..N {
            sums[t][0] = isa.mul_add(w, isa.load_f32(&vectors[t][j]), sums[t][0]);
        }
    }
    let mut out = [0.0; N];
    for t in 0..N {
        let [a, b, c, d] = sums[t];
        out[t] = isa.sum(isa.add(isa.add(a, b), isa.add(c, d)));
        for (w, x) in w_rest.iter().zip(&x[t][8 * w.len()..]) {
            out[t] += F::decode(*w) * x;
        }
    }
    out
}
