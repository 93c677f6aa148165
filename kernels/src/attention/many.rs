//! Many queries: unpacks rows of the cache once, and multiplies them by tiles of 16 or 32 queries.
//!
//! ```text
//! for each tile of a few keys:                    unpack them, rotate them
//!   for each panel of 16 queries:                 lanes are queries
//!     scores[panel][position] = sum over i of panel[i] * key[position][i]
//! scores -> probabilities, and partials scaled to the new maxima      see `softmax`
//! for each run of positions whose values fit in the L1 cache:    unpack the values
//!   for each 16 queries, each 16 or 32 values of a row, each tile of a few queries:
//!     partial[query] += probability[position][query] * value[position]    lanes are values
//! ```
//! Shapes: panels (queries / 16, dim) of 16 lanes, scores (queries / 16, PAGE) of 16 lanes, values
//! (PAGE, dim), partials (queries, dim + 2).
//!
//! Scores keep the layout of the tiles, with 16 queries next to each other for each position. So the
//! softmax needs no sums over lanes.

use std::{array::from_fn, ops::Range};

use bytemuck::{Pod, Zeroable, cast_slice, must_cast, must_cast_slice, must_cast_slice_mut};

use super::{
    Lanes, PAGE, Page, Rotation,
    partial::partial_len,
    queries::PanelUnit,
    rotation::LoadKeys,
    value_tile::{Partials, Weighted, weigh},
};
use crate::{
    cache::{CacheFormat, CacheKernel, Quantized, UNIT, load_row},
    isa::{Isa, Kernel, LANES},
    tile::{Tile, float_tile, step, tiles, wide_float_tile},
};

/// Computes the scores of all queries with the keys of the span.
pub(super) struct Scores<'a> {
    pub page: &'a Page<'a>,
    pub keys: &'a [u8],
    pub rotation: Option<Rotation<'a>>,
    pub rows: &'a mut [Lanes],
    /// (queries / 16, PAGE)
    pub scores: &'a mut [[Lanes; PAGE]],
}

/// The number of floats that stay in the L1 cache while tiles read each of them several times.
const CACHED: usize = 8192;

impl CacheKernel for Scores<'_> {
    const FLOATS_QUANTIZED: bool = false;
    #[inline(always)]
    fn run<I: Isa, C: CacheFormat>(self, isa: I) {
        self.score::<I, C, [f32; LANES]>(isa);
    }

    #[inline(always)]
    fn run_quantized<I: Isa, C: Quantized>(self, isa: I) {
        match self.rotation {
            Some(_) => self.score::<I, C, [f32; LANES]>(isa),
            None => self.score::<I, C, IntUnit>(isa),
        }
    }
}

impl<'a> Scores<'a> {
    /// Computes the scores with keys that are read as floats or as [`IntUnit`]s.
    #[inline(always)]
    fn score<I: Isa, C: CacheFormat, T: Pod>(self, isa: I)
    where
        KeyTile<'a, I, C, T>: Tile,
    {
        let Scores { page, keys, rotation, rows, scores } = self;
        let (keys, rows) = (cast_slice(keys), must_cast_slice_mut(rows));
        let scores = &mut scores[..page.visible.len().div_ceil(LANES)];
        let mut tile = KeyTile::<I, C, T> { isa, page, keys, rotation, rows, scores };
        tiles(page.span.len(), &mut tile);
    }
}

/// Reads a few keys, and multiplies them with all queries.
struct KeyTile<'a, I, C: CacheFormat, T> {
    isa: I,
    page: &'a Page<'a>,
    keys: &'a [C::Unit],
    /// Integers do not rotate.
    rotation: Option<Rotation<'a>>,
    /// Buffer: (keys, dim) as floats or as [`IntUnit`]s.
    rows: &'a mut [T],
    scores: &'a mut [[Lanes; PAGE]],
}

impl<I: Isa, C: CacheFormat> Tile for KeyTile<'_, I, C, [f32; LANES]> {
    const LARGEST: usize = I::ATTENTION_TILE;
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        let (page, dim) = (self.page, self.page.queries.dim);
        let (position, units) = (page.span.start + first, dim / UNIT);
        let keys = &self.keys[position * units..][..N * units];
        let out = &mut self.rows[..N * dim / LANES];
        self.isa.call(LoadKeys::<C> { dim, position, keys, rotation: self.rotation, out });
        let keys = self.rows[..N * dim / LANES].as_flattened();
        self.isa.call(KeyScores::<N> { page, position, keys, scores: &mut *self.scores });
    }
}

/// The scores of all queries with `N` keys, in single precision. Compiled once for all formats.
struct KeyScores<'a, const N: usize> {
    page: &'a Page<'a>,
    /// The position of the first key.
    position: usize,
    /// (N, dim)
    keys: &'a [f32],
    scores: &'a mut [[Lanes; PAGE]],
}

impl<const N: usize> Kernel for KeyScores<'_, N> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let KeyScores { page, position, keys, scores } = self;
        let dim = page.queries.dim;
        let keys: [&[f32]; N] = from_fn(
            #[inline(always)]
            |t| &keys[t * dim..][..dim],
        );
        let panels: &[[f32; LANES]] =
            must_cast_slice(&page.queries.floats[page.first / LANES * dim..]);
        let mut panels = panels.chunks_exact(dim);
        let (pairs, last) = if const { I::TILE_PANELS == 2 } {
            scores.as_chunks_mut::<2>()
        } else {
            (&mut [][..], scores)
        };
        for scores in pairs {
            let (Some(a), Some(b)) = (panels.next(), panels.next()) else { return };
            let acc = wide_float_tile(isa, [a, b], keys, [[isa.wide_splat(0.0); N]; 2]);
            for i in 0..2 {
                write_scores(isa, acc[i], &mut scores[i][position..]);
            }
        }
        for (scores, panel) in last.iter_mut().zip(panels) {
            let acc = float_tile(isa, panel, keys, [isa.wide_splat(0.0); N]);
            write_scores(isa, acc, &mut scores[position..]);
        }
    }
}

/// Writes the scores of 16 queries with `N` positions.
#[inline(always)]
fn write_scores<I: Isa, const N: usize>(isa: I, acc: [I::WideFloats; N], scores: &mut [Lanes]) {
    for (acc, scores) in acc.into_iter().zip(scores) {
        scores.0 = isa.wide_to_f32s(acc);
    }
}

/// 32 integers of a key, ready for products with queries.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct IntUnit {
    quants: [[u8; 4]; UNIT / 4],
    scale: f32,
    /// Makes the unit as large as the [`Lanes`] of its buffer.
    padding: [u32; 7],
}

impl<I: Isa, C: Quantized> Tile for KeyTile<'_, I, C, IntUnit> {
    const LARGEST: usize = I::KEY_TILE;
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        let (isa, page) = (self.isa, self.page);
        let (position, units) = (page.span.start + first, page.queries.dim / UNIT);
        let keys = &self.keys[position * units..][..N * units];
        isa.call(LoadInts::<C> { keys, out: &mut *self.rows });
        let keys = &self.rows[..N * units];
        isa.call(IntKeyScores::<N> { page, position, keys, scores: &mut *self.scores });
    }
}

/// Reads the integers of quantized keys.
struct LoadInts<'a, C: CacheFormat> {
    keys: &'a [C::Unit],
    out: &'a mut [IntUnit],
}

impl<C: Quantized> Kernel for LoadInts<'_, C> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        for (key, out) in self.keys.iter().zip(self.out) {
            let quants = isa.xor(C::quants(isa, key), isa.splat(I::SIGNED_BIAS));
            out.quants = must_cast(isa.to_bytes(quants));
            out.scale = isa.f32_from_f16(C::scale(key));
        }
    }
}

/// The scores of all queries with the integers of `N` keys. Compiled once for all formats.
struct IntKeyScores<'a, const N: usize> {
    page: &'a Page<'a>,
    /// The position of the first key.
    position: usize,
    /// (N, units)
    keys: &'a [IntUnit],
    scores: &'a mut [[Lanes; PAGE]],
}

impl<const N: usize> Kernel for IntKeyScores<'_, N> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let IntKeyScores { page, position, keys, scores } = self;
        let units = page.queries.dim / UNIT;
        let keys: [&[IntUnit]; N] = from_fn(
            #[inline(always)]
            |t| &keys[t * units..][..units],
        );
        let panels = &page.queries.panels[page.first / LANES * units..];
        for (scores, panel) in scores.iter_mut().zip(panels.chunks_exact(units)) {
            let mut acc = [isa.wide_splat(0.0); N];
            for (u, unit) in panel.iter().enumerate() {
                let quants: [&[[u8; 4]]; N] = from_fn(
                    #[inline(always)]
                    |t| &keys[t][u].quants[..],
                );
                let products = products(isa, unit, quants);
                for t in 0..N {
                    let key_scale = isa.wide_splat(keys[t][u].scale);
                    let scale = isa.wide_mul(isa.wide_load_f32(&unit.scale), key_scale);
                    acc[t] = isa.wide_mul_add(isa.wide_to_floats(products[t]), scale, acc[t]);
                }
            }
            write_scores(isa, acc, &mut scores[position..]);
        }
    }
}

/// Returns the sums of products of 32 integers of 16 queries and of a few keys.
#[inline(always)]
fn products<I: Isa, const N: usize>(
    isa: I,
    unit: &PanelUnit,
    keys: [&[[u8; 4]]; N],
) -> [I::WideInts; N] {
    let mut sums = [isa.wide_load_ints(&unit.bias); N];
    for j in 0..UNIT / 4 {
        let w = isa.wide_load(&unit.quants[j]);
        for t in 0..N {
            sums[t] = isa.wide_dot_biased(sums[t], w, &keys[t][j]);
        }
    }
    sums
}

/// Adds the values of the span, weighted by their probabilities, to the partials.
pub(super) struct Values<'a> {
    pub page: &'a Page<'a>,
    pub values: &'a [u8],
    pub rows: &'a mut [Lanes],
    /// Probabilities: (queries / 16, PAGE).
    pub scores: &'a [[Lanes; PAGE]],
    pub partials: &'a mut [f32],
}

impl CacheKernel for Values<'_> {
    #[inline(always)]
    fn run<I: Isa, C: CacheFormat>(self, isa: I) {
        let Values { page, values, rows, scores, partials } = self;
        let dim = page.queries.dim;
        let values: &[C::Unit] = cast_slice(values);
        let rows: &mut [[f32; LANES]] = must_cast_slice_mut(rows);
        // The number of rows that stay in the L1 cache.
        let cached = (CACHED / dim).max(1);
        for start in page.span.clone().step_by(cached) {
            let span = start..page.span.end.min(start + cached);
            let values = &values[span.start * dim / UNIT..span.end * dim / UNIT];
            let rows = &mut rows[..span.len() * dim / LANES];
            load_row::<I, C>(isa, values, rows);
            let from = page.queries.values_from;
            isa.call(Weigh { dim, from, span, rows, scores, partials: &mut *partials });
        }
    }
}

/// Adds values that have been converted to floats. Compiled once for all formats.
struct Weigh<'a> {
    dim: usize,
    /// The first element that is summed.
    from: usize,
    /// The positions of the values.
    span: Range<usize>,
    /// (positions, dim)
    rows: &'a [[f32; LANES]],
    /// (queries / 16, PAGE)
    scores: &'a [[Lanes; PAGE]],
    partials: &'a mut [f32],
}

impl Kernel for Weigh<'_> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Weigh { dim, from, span, rows, scores, partials } = self;
        let partials = partials.chunks_mut(LANES * partial_len(dim));
        for (scores, partials) in scores.iter().zip(partials) {
            let probabilities: &[[f32; LANES]] = must_cast_slice(&scores[span.clone()]);
            weigh(isa, dim, from, &Rows { dim, probabilities, rows }, partials);
        }
    }
}

/// Values in single precision.
struct Rows<'a> {
    dim: usize,
    /// (positions, 16 queries)
    probabilities: &'a [[f32; LANES]],
    /// (positions, dim)
    rows: &'a [[f32; LANES]],
}

impl<I: Isa> Weighted<I> for Rows<'_> {
    const LARGEST: usize = I::ATTENTION_TILE;
    #[inline(always)]
    fn add<const W: usize, const N: usize>(
        &self,
        isa: I,
        vector: usize,
        query: usize,
        partials: &mut Partials<'_>,
    ) {
        let mut acc = [[isa.wide_splat(0.0); N]; W];
        for i in 0..W {
            for t in 0..N {
                if let Some(values) = partials.vector(query + t, vector + i) {
                    acc[i][t] = isa.wide_load_f32(values);
                }
            }
        }
        let rows = self.rows[vector..].chunks(self.dim / LANES);
        let probabilities = self.probabilities.as_flattened()[query..].chunks(LANES);
        for (row, p) in rows.zip(probabilities) {
            if let (Some(row), Some(p)) = (row.first_chunk::<W>(), p.first_chunk()) {
                acc = step(isa, *row, *p, acc);
            }
        }
        for i in 0..W {
            for t in 0..N {
                if let Some(values) = partials.vector(query + t, vector + i) {
                    *values = isa.wide_to_f32s(acc[i][t]);
                }
            }
        }
    }
}
