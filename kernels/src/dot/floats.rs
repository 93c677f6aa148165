//! Floating-point weights: a row is converted once for a tile of tokens.

use std::marker::PhantomData;

use bytemuck::cast_slice;

use super::{Block, Dots, Row, STREAMS, prefetch};
use crate::{
    array::map,
    format::FloatFormat,
    isa::{Isa, Kernel, LANES},
    operands::{Input, Output, Product},
    tile::{Tile, tiles},
};

/// Maximum tokens of a tile. The activations of more tokens would not stay in the L1 cache.
const TOKENS: usize = 2;

/// Products of rows of floating-point weights with each token.
pub(crate) struct FloatDot<'a, F>(pub(crate) Product<'a>, pub(crate) PhantomData<F>);

impl<F: FloatFormat> Kernel for FloatDot<'_, F> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Product { weights, rows, input, out } = self.0;
        let dots = Floats::<I, F> { isa, input, columns: weights.columns(), format: PhantomData };
        for block in Block::all(weights, rows) {
            tiles(input.tokens, &mut FloatTile { dots: &dots, block: &block, out: &mut *out });
        }
    }
}

/// Rows that are multiplied with a few tokens at a time.
struct FloatTile<'a, 'b, I, F> {
    dots: &'a Floats<'a, I, F>,
    block: &'a Block<'b>,
    out: &'a mut dyn Output,
}

impl<I: Isa, F: FloatFormat> Tile for FloatTile<'_, '_, I, F> {
    const LARGEST: usize = TOKENS;
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        self.block.multiply::<N>(self.dots, first, self.out);
    }
}

/// Dot products with rows of floating-point weights.
struct Floats<'a, I, F> {
    isa: I,
    input: Input<'a>,
    columns: usize,
    format: PhantomData<F>,
}

impl<I: Isa, F: FloatFormat, const N: usize> Dots<N> for Floats<'_, I, F> {
    #[inline(always)]
    fn dots(&self, rows: [Row<'_>; STREAMS], first: usize) -> [[f32; N]; STREAMS] {
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
    // Enough to hide the latency of additions. A wide vector is a pair of the eight lanes that are
    // added at the end.
    const VECTORS: usize = 2;
    let mut wide = [[isa.wide_splat(0.0); VECTORS]; N];
    let mut vectors = [&[][..]; N];
    for t in 0..N {
        vectors[t] = &x[t].as_chunks::<LANES>().0[..w.len() / LANES];
    }
    let whole = w.len() / (VECTORS * LANES);
    for (s, w) in w.as_chunks::<LANES>().0.as_chunks::<VECTORS>().0.iter().enumerate() {
        prefetch(isa, ahead, s, VECTORS * LANES * size_of::<F::Element>());
        for i in 0..VECTORS {
            let w = F::load_wide(isa, &w[i]);
            for t in 0..N {
                let x = isa.wide_load_f32(&vectors[t][s * VECTORS + i]);
                wide[t][i] = isa.wide_mul_add(w, x, wide[t][i]);
            }
        }
    }
    let read = whole * VECTORS * LANES;
    let (eights, rest) = w[read..].as_chunks::<8>();
    let mut out = [0.0; N];
    for t in 0..N {
        let [[mut a, b], [c, d]] = map(
            wide[t],
            #[inline(always)]
            |sums| isa.wide_halves(sums),
        );
        let (x, x_rest) = x[t][read..].as_chunks::<8>();
        for (w, x) in eights.iter().zip(x) {
            a = isa.mul_add(F::load(isa, w), isa.load_f32(x), a);
        }
        out[t] = isa.sum(isa.add(isa.add(a, b), isa.add(c, d)));
        for (w, x) in rest.iter().zip(x_rest) {
            out[t] += F::decode(*w) * x;
        }
    }
    out
}
