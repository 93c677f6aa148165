//! Several tokens: a span of each row is unpacked once for all of them. A token's sums have the
//! same order as for a single token, and so the same bits.
//!
//! ```text
//! for each 2 x 16 rows, each 8 tokens:
//!   for each 2 rows, each 256 weights of them:       unpack them, prefetch what follows
//!     for each token:  sums[row][token] += their products       as for one token
//! ```
//! The two accumulators of a single token, which alternate, are the halves of a wide vector.

use std::{array::from_fn, marker::PhantomData};

use bytemuck::{Pod, Zeroable, must_cast, must_cast_ref};

use super::{Block, Dot, Row, STREAMS, Spans, single::arrange};
use crate::{
    activations::{Span, spans_for},
    format::{Format, GROUP, Quants, SPAN},
    isa::{CacheLine, Isa, Kernel, LANES},
    operands::Product,
    panel::{GROUPS, part, parts},
};

/// The number of tokens for which a row is read once. Their activations stay in the L2 cache.
const TOKENS: usize = 8;

/// 256 activations in the order in which a format multiplies them.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Arranged {
    quants: [CacheLine; 4],
    /// The scales, in the order of [`arrange`].
    scale: [[f32; 8]; 2],
    /// The sums of the parts of groups.
    sums: [[f32; 8]; 2],
}

impl Arranged {
    #[inline(always)]
    fn new<I: Isa, F: Format>(isa: I, x: &Span) -> Self {
        let mut sums = [[0.0; 8]; 2];
        for index in 0..parts::<F::Quants>() {
            sums[index] = x.sums[part::<F::Quants>(index) as usize];
        }
        let scale = arrange::<I, F>(isa, [isa.load_f32(&x.scale); 2]);
        let scale = [isa.to_f32s(scale[0]), isa.to_f32s(scale[1])];
        let quants = if F::TWO_GROUPS {
            // The first halves of two groups, then their last halves. Of four groups, this takes
            // two cache lines.
            let halves: &[[[u8; 16]; 2]; GROUPS] = must_cast_ref(&x.quants);
            must_cast(from_fn::<_, 16, _>(|i| {
                let (line, place) = (i / 4, i % 4);
                halves[4 * (line / 2) + place][line % 2]
            }))
        } else {
            must_cast(x.quants)
        };
        Arranged { quants, scale, sums }
    }
}

/// Products of rows of quantized weights with several tokens. Its buffer is (tokens, spans).
pub(crate) struct Together<'a, F>(
    pub(crate) Product<'a>,
    pub(crate) &'a mut Vec<Arranged>,
    pub(crate) PhantomData<F>,
);

impl<F: Format> Kernel for Together<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        if const { I::SMALL_CODE } {
            return isa.call(Dot::<F>(self.0, PhantomData));
        }
        let Product { weights, rows, input, out } = self.0;
        let columns = weights.columns();
        let spans = spans_for(columns);
        let arranged = self.1;
        arranged.resize(input.tokens * spans, Arranged::zeroed());
        for (to, x) in arranged.iter_mut().zip(input.spans) {
            *to = Arranged::new::<I, F>(isa, x);
        }
        let mut values = [[[0.0; LANES]; STREAMS]; TOKENS];
        for block in Block::all(weights, rows) {
            for (chunk, tokens) in arranged.chunks(TOKENS * spans).enumerate() {
                for i in 0..block.count {
                    let rows = block.rows(i, chunk);
                    let tile = Tile::<I, F> { isa, rows, columns, format: PhantomData };
                    tile.multiply(tokens, |s, t, value| values[t][s][i] = value);
                }
                for (t, values) in values.iter().take(tokens.len() / spans).enumerate() {
                    block.put(chunk * TOKENS + t, values, out);
                }
            }
        }
    }
}

/// The accumulators of one row and token.
#[derive(Clone, Copy)]
struct Sums<I: Isa> {
    products: I::WideFloats,
    offsets: I::Floats,
}

/// Rows that are multiplied with all tokens.
struct Tile<'a, I, F> {
    isa: I,
    rows: [Row<'a>; STREAMS],
    columns: usize,
    format: PhantomData<F>,
}

impl<I: Isa, F: Format> Tile<'_, I, F> {
    /// Multiplies the rows with up to [`TOKENS`] tokens (tokens, spans). Calls `put` with the row, the
    /// token and their product.
    #[inline(always)]
    fn multiply(&self, tokens: &[Arranged], mut put: impl FnMut(usize, usize, f32)) {
        let isa = self.isa;
        let zero = Sums { products: isa.wide_splat(0.0), offsets: isa.splat_f32(0.0) };
        let mut sums = [[zero; TOKENS]; STREAMS];
        let spans = Spans::<F>::new(self.rows);
        let (count, all) = (spans.count(), self.columns.div_ceil(SPAN));
        let nothing = F::Span::zeroed();
        let (mut tails, mut copies) = ([&nothing; STREAMS], [None; STREAMS]);
        // Rows of 256-weight blocks have only whole spans, so the code for other rows is not
        // compiled.
        if F::BLOCK < SPAN && all > count {
            tails = spans.last(&mut copies);
        }
        for s in 0..all {
            let (w, groups) = match F::BLOCK == SPAN || s < count {
                true => (spans.whole(isa, s), GROUPS),
                false => (tails, (self.columns % SPAN) / GROUP),
            };
            span::<I, F>(isa, w, groups, tokens[s..].iter().step_by(all), &mut sums);
        }
        for r in 0..STREAMS {
            for t in 0..tokens.len() / all {
                let Sums { products, offsets } = sums[r][t];
                let [a, b] = isa.wide_halves(products);
                put(r, t, isa.sum(isa.add(a, b)) - isa.sum(offsets));
            }
        }
    }
}

/// Adds the products of a span of each row with the same span of each token. Only the first
/// `groups` groups count, whatever the other groups contain.
#[inline(always)]
fn span<'x, I: Isa, F: Format>(
    isa: I,
    w: [&F::Span; STREAMS],
    groups: usize,
    tokens: impl Iterator<Item = &'x Arranged>,
    sums: &mut [[Sums<I>; TOKENS]; STREAMS],
) {
    const { assert!(F::CENTER == 0 || !F::Quants::OFFSET) };
    let zero = isa.splat_f32(0.0);
    let nothing = isa.wide_load(&[0; 64]);
    let (mut scale, mut offset) = ([[zero; 2]; STREAMS], [[zero; 2]; STREAMS]);
    let mut quants = [[nothing; 4]; STREAMS];
    for r in 0..STREAMS {
        let shared = F::shared(isa, w[r]);
        let mut scales = F::scales(isa, w[r]);
        for index in 0..parts::<F::Quants>() {
            if groups < GROUPS {
                scales.scale[index] = isa.first_lanes(scales.scale[index], groups);
                scales.offset[index] = isa.first_lanes(scales.offset[index], groups);
            }
            offset[r][index] = match F::Quants::OFFSET {
                true => scales.offset[index],
                false => isa.mul(scales.scale[index], isa.splat_f32(f32::from(F::CENTER))),
            };
        }
        scale[r] = arrange::<I, F>(isa, scales.scale);
        for line in 0..2 {
            if F::TWO_GROUPS {
                let [a, b] = F::two_groups(isa, w[r], 2 * line);
                let [c, d] = F::two_groups(isa, w[r], 2 * line + 1);
                quants[r][2 * line] = isa.wide_join(a, c);
                quants[r][2 * line + 1] = isa.wide_join(b, d);
            } else {
                for line in [2 * line, 2 * line + 1] {
                    let a = F::quants(isa, w[r], shared, 2 * line);
                    let b = F::quants(isa, w[r], shared, 2 * line + 1);
                    quants[r][line] = isa.wide_join(a, b);
                }
            }
        }
    }
    for (t, x) in tokens.enumerate() {
        for r in 0..STREAMS {
            let row = Unpacked::<I> { quants: quants[r], scale: scale[r], offset: offset[r] };
            row.multiply::<F>(isa, x, &mut sums[r][t]);
        }
    }
}

/// A span of a row, in the order of [`Arranged`].
struct Unpacked<I: Isa> {
    quants: [I::WideBytes; 4],
    scale: [I::Floats; 2],
    /// The factors of [`Arranged::sums`], which are subtracted.
    offset: [I::Floats; 2],
}

impl<I: Isa> Unpacked<I> {
    /// Adds the products with a token.
    #[inline(always)]
    fn multiply<F: Format>(&self, isa: I, x: &Arranged, sums: &mut Sums<I>) {
        let mut acc = *sums;
        if F::CENTER > 0 || F::Quants::OFFSET {
            for index in 0..parts::<F::Quants>() {
                let x_sum = isa.load_f32(&x.sums[index]);
                acc.offsets = isa.mul_add(self.offset[index], x_sum, acc.offsets);
            }
        }
        let first = isa.mul(self.scale[0], isa.load_f32(&x.scale[0]));
        let q = &self.quants;
        if F::TWO_GROUPS {
            for pair in 0..2 {
                let q = [q[2 * pair], q[2 * pair + 1]];
                let a = [load(isa, x, 2 * pair), load(isa, x, 2 * pair + 1)];
                let ints = isa.wide_products(F::Quants::SIGNED, q, a);
                acc.add(isa, ints, broadcast(isa, first, pair));
            }
        } else {
            let last = isa.mul(self.scale[1], isa.load_f32(&x.scale[1]));
            for line in 0..4 {
                let a = [load(isa, x, line)];
                let ints = isa.wide_products(F::Quants::SIGNED, [q[line]], a);
                acc.add(isa, ints, broadcast(isa, [first, last][line / 2], line % 2));
            }
        }
        *sums = acc;
    }
}

impl<I: Isa> Sums<I> {
    /// Adds sums of integer products, times their scales.
    #[inline(always)]
    fn add(&mut self, isa: I, ints: I::WideInts, scale: I::WideFloats) {
        self.products = isa.wide_mul_add(isa.wide_to_floats(ints), scale, self.products);
    }
}

/// Reads a line of the quants of activations.
#[inline(always)]
fn load<I: Isa>(isa: I, x: &Arranged, line: usize) -> I::WideBytes {
    isa.wide_load(&x.quants[line].0)
}

/// Returns the scales for a wide vector of products, the first or the second of two.
#[inline(always)]
fn broadcast<I: Isa>(isa: I, scales: I::Floats, index: usize) -> I::WideFloats {
    match index {
        0 => isa.wide_broadcast_in_halves::<0>(scales),
        _ => isa.wide_broadcast_in_halves::<2>(scales),
    }
}
