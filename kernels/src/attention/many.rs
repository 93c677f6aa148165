//! Many queries: rows of the cache are unpacked once, and multiplied by tiles of 16 or 32 queries.
//!
//! ```text
//! for each tile of a few keys:                    unpack them, rotate them
//!   for each panel of 16 queries:                 lanes are queries
//!     scores[panel][position] = sum over i of panel[i] * key[position][i]
//! scores -> probabilities, and partials scaled to the new maxima
//! for each run of positions whose values fit in the L1 cache:    unpack the values
//!   for each 16 queries, each 16 or 32 values of a row, each tile of a few queries:
//!     partial[query] += probability[position][query] * value[position]    lanes are values
//! ```
//! Shapes: panels (queries / 16, dim) of 16 lanes, scores (queries / 16, PAGE) of 16 lanes, values
//! (PAGE, dim), partials (queries, dim + 2).
//!
//! Scores keep the layout of the tiles, 16 queries side by side for each position, so the softmax
//! needs no sums over lanes.

use std::array::from_fn;

use bytemuck::{cast_slice, must_cast_slice, must_cast_slice_mut};

use super::{Lanes, PAGE, Page, Rotation, partial_len, queries::PanelUnit};
use crate::{
    cache::{CacheFormat, CacheKernel, Quantized, UNIT, load_row},
    isa::{Isa, Kernel, LANES},
    tile::{Tile, float_tile, step, tiles, wide_float_tile},
    vector::{exp, soft_capped},
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
    #[inline(always)]
    fn run<I: Isa, C: CacheFormat>(self, isa: I) {
        let Scores { page, keys, rotation, rows, scores } = self;
        let mut tile = KeyTile::<I, C> {
            isa,
            page,
            keys: cast_slice(keys),
            rotation,
            rows: must_cast_slice_mut(rows),
            scores: &mut scores[..page.visible.len().div_ceil(LANES)],
        };
        tiles(page.span.len(), I::ATTENTION_TILE, &mut tile);
    }

    #[inline(always)]
    fn run_quantized<I: Isa, C: Quantized>(self, isa: I) {
        if self.rotation.is_some() {
            return self.run::<I, C>(isa);
        }
        let Scores { page, keys, rows, scores, .. } = self;
        let mut tile = IntKeyTile::<I, C> {
            isa,
            page,
            keys: cast_slice(keys),
            rows: must_cast_slice_mut(rows),
            scores: &mut scores[..page.visible.len().div_ceil(LANES)],
        };
        tiles(page.span.len(), I::KEY_TILE, &mut tile);
    }
}

/// The scores of all queries with a few keys, in single precision.
struct KeyTile<'a, I, C: CacheFormat> {
    isa: I,
    page: &'a Page<'a>,
    keys: &'a [C::Unit],
    rotation: Option<Rotation<'a>>,
    rows: &'a mut [f32],
    scores: &'a mut [[Lanes; PAGE]],
}

impl<I: Isa, C: CacheFormat> Tile for KeyTile<'_, I, C> {
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        let (isa, dim) = (self.isa, self.page.queries.dim);
        let position = self.page.span.start + first;
        let units = dim / UNIT;
        let keys = &self.keys[position * units..][..N * units];
        let rows = self.rows.as_chunks_mut().0;
        match self.rotation {
            Some(rotation) => rotation.load::<I, C>(isa, dim, position, keys, rows),
            None => load_row::<I, C>(isa, keys, rows),
        }
        let rows: [&[f32]; N] = from_fn(
            #[inline(always)]
            |t| &self.rows[t * dim..][..dim],
        );
        let panels = &self.page.queries.floats[self.page.first / LANES * dim..];
        let panels: &[[f32; LANES]] = must_cast_slice(panels);
        let mut panels = panels.chunks_exact(dim);
        let (pairs, last) = if I::TILE_PANELS == 2 {
            self.scores.as_chunks_mut::<2>()
        } else {
            (&mut [][..], &mut *self.scores)
        };
        for scores in pairs {
            let (Some(a), Some(b)) = (panels.next(), panels.next()) else { return };
            let acc = wide_float_tile(isa, [a, b], rows, [[isa.wide_splat(0.0); N]; 2]);
            for i in 0..2 {
                write_scores(isa, acc[i], &mut scores[i][position..]);
            }
        }
        for (scores, panel) in last.iter_mut().zip(panels) {
            let acc = float_tile(isa, panel, rows, [isa.wide_splat(0.0); N]);
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

/// The scores of all queries with a few quantized keys, computed as integers.
struct IntKeyTile<'a, I, C: CacheFormat> {
    isa: I,
    page: &'a Page<'a>,
    keys: &'a [C::Unit],
    /// Buffer for the integers of the keys.
    rows: &'a mut [[u8; UNIT]],
    scores: &'a mut [[Lanes; PAGE]],
}

impl<I: Isa, C: Quantized> Tile for IntKeyTile<'_, I, C> {
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        let (isa, units) = (self.isa, self.page.queries.dim / UNIT);
        let position = self.page.span.start + first;
        let keys = &self.keys[position * units..][..N * units];
        for (key, row) in keys.iter().zip(&mut *self.rows) {
            *row = isa.to_bytes(isa.xor(C::quants(isa, key), isa.splat(I::SIGNED_BIAS)));
        }
        let rows: [&[[u8; UNIT]]; N] = from_fn(
            #[inline(always)]
            |t| &self.rows[t * units..][..units],
        );
        let keys: [&[C::Unit]; N] = from_fn(
            #[inline(always)]
            |t| &keys[t * units..][..units],
        );
        let panels = &self.page.queries.panels[self.page.first / LANES * units..];
        let panels = panels.chunks_exact(units);
        for (scores, panel) in self.scores.iter_mut().zip(panels) {
            let mut acc = [isa.wide_splat(0.0); N];
            for (u, unit) in panel.iter().enumerate() {
                let quants: [&[[u8; 4]]; N] = from_fn(
                    #[inline(always)]
                    |t| rows[t][u].as_chunks().0,
                );
                let products = products(isa, unit, quants);
                for t in 0..N {
                    let key_scale = isa.wide_splat_f16(C::scale(&keys[t][u]));
                    let scale = isa.wide_mul(isa.wide_load_f32(&unit.scale), key_scale);
                    acc[t] = isa.wide_mul_add(isa.wide_to_floats(products[t]), scale, acc[t]);
                }
            }
            write_scores(isa, acc, &mut scores[position..]);
        }
    }
}

/// Returns the sums of products of 32 integers of 16 queries with those of a few keys.
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

/// Converts scores to probabilities relative to the maximum so far; 0 for positions that are not
/// visible.
pub(super) struct Softmax<'a> {
    pub page: &'a Page<'a>,
    pub scores: &'a mut [[Lanes; PAGE]],
    pub partials: &'a mut [f32],
}

impl Kernel for Softmax<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Page { queries, visible, span, .. } = self.page;
        let partials = self.partials.chunks_mut(LANES * partial_len(queries.dim));
        for ((scores, visible), partials) in
            self.scores.iter_mut().zip(visible.chunks(LANES)).zip(partials)
        {
            let scores = &mut scores[span.clone()];
            if let Some(cap) = queries.soft_cap {
                for s in &mut *scores {
                    s.0 = isa.wide_to_f32s(soft_capped(isa, isa.wide_load_f32(&s.0), cap));
                }
            }
            for (lane, visible) in visible.iter().enumerate() {
                let (before, after) = if visible.is_empty() {
                    (scores.len(), scores.len())
                } else {
                    (visible.start - span.start, visible.end - span.start)
                };
                for s in &mut scores[..before] {
                    s.0[lane] = f32::NEG_INFINITY;
                }
                for s in &mut scores[after..] {
                    s.0[lane] = f32::NEG_INFINITY;
                }
            }
            softmax(isa, scores, partials, queries.dim);
        }
    }
}

/// Converts the scores of up to 16 queries to probabilities, and scales their partials to the new
/// maxima.
#[inline(always)]
fn softmax<I: Isa>(isa: I, scores: &mut [Lanes], partials: &mut [f32], dim: usize) {
    let mut old = [f32::NEG_INFINITY; LANES];
    for (old, partial) in old.iter_mut().zip(partials.chunks_exact(partial_len(dim))) {
        *old = partial[dim];
    }
    let old = isa.wide_load_f32(&old);
    let mut new = old;
    for s in &*scores {
        new = isa.wide_max(new, isa.wide_load_f32(&s.0));
    }
    // The maximum of a query that has attended to no key is minus infinity, and minus infinity
    // minus itself would be NaN.
    let minus_new = isa.wide_mul(isa.wide_max(new, isa.wide_splat(f32::MIN)), isa.wide_splat(-1.0));
    let factors = isa.wide_to_f32s(exp(isa, isa.wide_add(old, minus_new)));
    let mut sums = isa.wide_splat(0.0);
    for s in &mut *scores {
        let p = exp(isa, isa.wide_add(isa.wide_load_f32(&s.0), minus_new));
        sums = isa.wide_add(sums, p);
        s.0 = isa.wide_to_f32s(p);
    }
    let (maxima, sums) = (isa.wide_to_f32s(new), isa.wide_to_f32s(sums));
    for (lane, partial) in partials.chunks_exact_mut(partial_len(dim)).enumerate() {
        let factor = isa.wide_splat(factors[lane]);
        for values in partial[..dim].as_chunks_mut().0 {
            *values = isa.wide_to_f32s(isa.wide_mul(isa.wide_load_f32(values), factor));
        }
        partial[dim] = maxima[lane];
        partial[dim + 1] = partial[dim + 1] * factors[lane] + sums[lane];
    }
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
            let partials = partials.chunks_mut(LANES * partial_len(dim));
            for (scores, partials) in scores.iter().zip(partials) {
                let probabilities: &[[f32; LANES]] = must_cast_slice(&scores[span.clone()]);
                let queries = partials.len() / partial_len(dim);
                let mut tile = ValueTile { isa, dim, vector: 0, probabilities, rows, partials };
                while tile.vector < dim / LANES {
                    tiles(queries, I::ATTENTION_TILE, &mut tile);
                    tile.vector += I::TILE_PANELS;
                }
            }
        }
    }
}

/// Weighted sums of 16 or 32 values of each row, for a few queries.
struct ValueTile<'a, I> {
    isa: I,
    dim: usize,
    /// The first of the values, divided by [`LANES`].
    vector: usize,
    /// (positions, 16 queries)
    probabilities: &'a [[f32; LANES]],
    /// (positions, dim)
    rows: &'a [[f32; LANES]],
    /// (up to 16 queries, partial)
    partials: &'a mut [f32],
}

impl<I: Isa> Tile for ValueTile<'_, I> {
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        if I::TILE_PANELS == 2 {
            self.add::<2, N>(first);
        } else {
            self.add::<1, N>(first);
        }
    }
}

impl<I: Isa> ValueTile<'_, I> {
    #[inline(always)]
    fn add<const W: usize, const N: usize>(&mut self, first: usize) {
        let isa = self.isa;
        let at =
            |i: usize, t: usize| (first + t) * partial_len(self.dim) + (self.vector + i) * LANES;
        let mut acc = [[isa.wide_splat(0.0); N]; W];
        for i in 0..W {
            for t in 0..N {
                if let Some(values) = self.partials[at(i, t)..].first_chunk() {
                    acc[i][t] = isa.wide_load_f32(values);
                }
            }
        }
        let rows = self.rows[self.vector..].chunks(self.dim / LANES);
        let probabilities = self.probabilities.as_flattened()[first..].chunks(LANES);
        for (row, p) in rows.zip(probabilities) {
            if let (Some(row), Some(p)) = (row.first_chunk::<W>(), p.first_chunk()) {
                acc = step(isa, *row, *p, acc);
            }
        }
        for i in 0..W {
            for t in 0..N {
                self.partials[at(i, t)..][..LANES].copy_from_slice(&isa.wide_to_f32s(acc[i][t]));
            }
        }
    }
}
