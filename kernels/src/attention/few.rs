//! A few queries: each row of the cache is read once, as it is stored.
//!
//! ```text
//! for each KV head:
//!   for each block of 8 keys, each tile of up to 4 queries:
//!     scores[query][key] = sum of lanes of (query . key)           16 values in lanes
//!   scores -> probabilities, and partials scaled to the new maxima     see `softmax`
//!   for each block of 8 values, each tile of queries:
//!     partial[query] += probability[query][position] * value[position]
//! ```
//! Scores of quantized keys that do not rotate are computed by [`transposed`], and scores with a
//! bias by [`bias`].
//!
//! Shapes: queries (heads, queries, dim), keys and values (heads, PAGE, dim), scores (heads,
//! queries, PAGE), partials (heads, queries, dim + 2).

use std::array::from_fn;

use bytemuck::{cast_slice, must_cast_slice, must_cast_slice_mut};

use super::{
    Lanes, PAGE, Page, Rotation, bias,
    block::{Block, ROWS, write_scores},
    partial::partial_len,
    rotating::RotatingTile,
    rotation::LoadKeys,
    transposed,
};
use crate::{
    cache::{CacheFormat, CacheKernel, Quantized, UNIT},
    format::F32,
    isa::{Isa, Kernel, LANES},
    tile::{Tile, tiles, tiles_up_to},
};

/// Computes the scores of all queries with the keys of the span.
pub(super) struct Scores<'a> {
    pub page: &'a Page<'a>,
    pub keys: &'a [u8],
    /// The bytes that are read after the keys.
    pub next: &'a [u8],
    pub rotation: Option<Rotation<'a>>,
    /// Buffer for keys that rotate, but not unit by unit.
    pub rows: &'a mut [Lanes],
    /// (heads, queries, PAGE)
    pub scores: &'a mut [[f32; PAGE]],
}

impl CacheKernel for Scores<'_> {
    const FLOATS_QUANTIZED: bool = false;
    #[inline(always)]
    fn run<I: Isa, C: CacheFormat>(self, isa: I) {
        if self.rotation.is_some() {
            return self.rotated::<I, C>(isa);
        }
        let Scores { page, keys, next, scores, .. } = self;
        let (units, vectors) = (page.queries.dim / UNIT, page.queries.dim / LANES);
        for (first, keys, next) in page.heads(keys, next) {
            let queries = must_cast_slice(&page.queries.floats[first * vectors..]);
            let scores = &mut scores[first..];
            for keys in page.blocks::<C>(keys, next) {
                let mut tile = FloatTile::<I, C> { isa, queries, units, keys, scores };
                tiles(page.queries.count, &mut tile);
            }
        }
    }

    #[inline(always)]
    fn run_quantized<I: Isa, C: Quantized>(self, isa: I) {
        let bias = self.rotation.map(|rotation| (rotation, rotation.bias_arcs()));
        if let Some((_, None)) = bias {
            return self.rotated::<I, C>(isa);
        }
        let Scores { page, keys, next, rows, scores, .. } = self;
        let (dim, units) = (page.queries.dim, page.queries.dim / UNIT);
        for (first, keys, next) in page.heads(keys, next) {
            let (queries, scores) = (&page.queries.units[first * units..], &mut scores[first..]);
            transposed::scores::<I, C>(isa, page, queries, keys, next, rows, scores);
            if let Some((rotation, Some(arcs))) = bias {
                let rotation = rotation.of_head(first / page.queries.count, dim);
                let queries = must_cast_slice(&page.queries.floats[first * dim / LANES..]);
                let buffer = must_cast_slice_mut(rows);
                isa.call(bias::Scores { page, queries, rotation, arcs, buffer, scores });
            }
        }
    }
}

impl Scores<'_> {
    /// Computes the scores with keys that rotate, or have a bias.
    #[inline(always)]
    fn rotated<I: Isa, C: CacheFormat>(self, isa: I) {
        let Scores { page, keys, next, rotation, rows, scores } = self;
        let Some(all) = rotation else { return };
        let dim = page.queries.dim;
        let (units, vectors) = (dim / UNIT, dim / LANES);
        for (first, keys, next) in page.heads(keys, next) {
            let queries = must_cast_slice(&page.queries.floats[first * vectors..]);
            let scores = &mut scores[first..];
            let rotation = all.of_head(first / page.queries.count, dim);
            for keys in page.blocks::<C>(keys, next) {
                if rotation.is_by_units() {
                    let mut tile =
                        RotatingTile::<I, C> { isa, queries, units, keys, rotation, scores };
                    tiles(page.queries.count, &mut tile);
                } else {
                    for unit in 0..keys.units.len() {
                        keys.prefetch(isa, unit);
                    }
                    let Block { position, units: keys, .. } = keys;
                    let rows = &mut rows[..keys.len() * UNIT / LANES];
                    let (rotation, out) = (Some(rotation), must_cast_slice_mut(rows));
                    isa.call(LoadKeys::<C> { dim, position, keys, rotation, out });
                    isa.call(FloatScores { page, queries, position, rows, scores });
                }
            }
        }
    }
}

/// Computes scores with keys that have been converted to floats. Compiled once for all formats.
struct FloatScores<'a> {
    page: &'a Page<'a>,
    /// (queries, dim)
    queries: &'a [[f32; LANES]],
    position: usize,
    /// (up to [`ROWS`], dim)
    rows: &'a [Lanes],
    scores: &'a mut [[f32; PAGE]],
}

impl Kernel for FloatScores<'_> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let FloatScores { page, queries, position, rows, scores } = self;
        let keys = Block { position, units: cast_slice(rows), next: &[] };
        let units = page.queries.dim / UNIT;
        let mut tile = FloatTile::<I, F32> { isa, queries, units, keys, scores };
        tiles(page.queries.count, &mut tile);
    }
}

/// Scores of a block of keys, computed in single precision.
struct FloatTile<'a, I, C: CacheFormat> {
    isa: I,
    /// (queries, dim)
    queries: &'a [[f32; LANES]],
    /// The number of units of a row.
    units: usize,
    keys: Block<'a, C::Unit>,
    scores: &'a mut [[f32; PAGE]],
}

impl<I: Isa, C: CacheFormat> Tile for FloatTile<'_, I, C> {
    const LARGEST: usize = I::FEW_TILE;
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        let (units, vectors) = (self.units, self.units * UNIT / LANES);
        let mut queries: [&[[f32; LANES]]; N] = [&[]; N];
        for t in 0..N {
            queries[t] = &self.queries[(first + t) * vectors..][..vectors];
        }
        let mut sums = [[self.isa.splat_f32(0.0); ROWS]; N];
        let Block { position, units: keys, .. } = self.keys;
        // Some rows at a time, so that their sums stay in registers.
        let whole = keys.len() == ROWS * units;
        if whole && const { I::FEW_SCORE_SUMS / N >= 4 } {
            self.some_rows::<N, 4>(queries, &mut sums);
        } else if whole && const { I::FEW_SCORE_SUMS / N >= 2 } {
            self.some_rows::<N, 2>(queries, &mut sums);
        } else {
            self.some_rows::<N, 1>(queries, &mut sums);
        }
        let count = keys.len() / units;
        write_scores(self.isa, &sums, count, position, &mut self.scores[first..]);
    }
}

impl<I: Isa, C: CacheFormat> FloatTile<'_, I, C> {
    /// Computes the sums of all rows of the block, `P` rows at a time.
    #[inline(always)]
    fn some_rows<const N: usize, const P: usize>(
        &self,
        queries: [&[[f32; LANES]]; N],
        sums: &mut [[I::Floats; ROWS]; N],
    ) {
        let (isa, units) = (self.isa, self.units);
        for (i, keys) in self.keys.units.chunks_exact(P * units).enumerate() {
            let keys: [&[C::Unit]; P] = rows(keys, units);
            let mut acc = [[isa.wide_splat(0.0); P]; N];
            for u in 0..units {
                for p in 0..P {
                    self.keys.prefetch(isa, i * P * units + u * P + p);
                }
                for half in 0..2 {
                    let mut q = [isa.wide_splat(0.0); N];
                    for t in 0..N {
                        q[t] = isa.wide_load_f32(&queries[t][2 * u + half]);
                    }
                    for p in 0..P {
                        let k = C::load(isa, &keys[p][u], half);
                        for t in 0..N {
                            acc[t][p] = isa.wide_mul_add(k, q[t], acc[t][p]);
                        }
                    }
                }
            }
            for t in 0..N {
                for p in 0..P {
                    let [a, b] = isa.wide_halves(acc[t][p]);
                    sums[t][i * P + p] = isa.add(a, b);
                }
            }
        }
    }
}

/// Returns the first `P` rows of `units` units each.
#[inline(always)]
fn rows<U, const P: usize>(all: &[U], units: usize) -> [&[U]; P] {
    let mut rows: [&[U]; P] = [&[]; P];
    for p in 0..P {
        rows[p] = &all[p * units..][..units];
    }
    rows
}

/// Adds the values of the span, weighted by their probabilities, to the partials.
pub(super) struct Values<'a> {
    pub page: &'a Page<'a>,
    pub values: &'a [u8],
    /// The bytes that are read after the values.
    pub next: &'a [u8],
    /// Probabilities: (heads, queries, PAGE).
    pub scores: &'a [[f32; PAGE]],
    pub partials: &'a mut [f32],
}

impl CacheKernel for Values<'_> {
    #[inline(always)]
    fn run<I: Isa, C: CacheFormat>(self, isa: I) {
        let Values { page, values, next, scores, partials } = self;
        let (units, len) = (page.queries.dim / UNIT, partial_len(page.queries.dim));
        let first_unit = page.queries.values_from / UNIT;
        let count = page.queries.count;
        // With more queries in a tile, values are unpacked fewer times, but each row is read twice.
        let packed = size_of::<C::Unit>() < UNIT;
        let many = packed || count.is_multiple_of(I::FLOAT_TILE);
        let largest = if many { I::FLOAT_TILE } else { I::FEW_VALUE_QUERIES };
        for (first, values, next) in page.heads(values, next) {
            let (scores, partials) = (&scores[first..], &mut partials[first * len..]);
            for values in page.blocks::<C>(values, next) {
                let mut tile =
                    ValueTile::<I, C> { isa, units, first_unit, values, scores, partials };
                tiles_up_to(largest, count, &mut tile);
            }
        }
    }
}

/// Weighted sums of a block of values.
struct ValueTile<'a, I, C: CacheFormat> {
    isa: I,
    /// The number of units of a row.
    units: usize,
    /// The first unit that is summed.
    first_unit: usize,
    values: Block<'a, C::Unit>,
    scores: &'a [[f32; PAGE]],
    partials: &'a mut [f32],
}

impl<I: Isa, C: CacheFormat> Tile for ValueTile<'_, I, C> {
    const LARGEST: usize = I::FLOAT_TILE;
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        let count = self.values.units.len() / self.units;
        let mut probabilities = [[0.0; ROWS]; N];
        for t in 0..N {
            let all = &self.scores[first + t][self.values.position..][..count];
            match all.as_array() {
                Some(all) => probabilities[t] = *all,
                None => probabilities[t][..count].copy_from_slice(all),
            }
        }
        if count < ROWS {
            for p in 0..count {
                self.some_rows::<N, 1, 2>(first, p, &probabilities);
            }
        } else if const { N <= I::FEW_VALUE_QUERIES } {
            self.some_rows::<N, ROWS, 2>(first, 0, &probabilities);
        } else {
            self.some_rows::<N, ROWS, 1>(first, 0, &probabilities);
        }
    }
}

impl<I: Isa, C: CacheFormat> ValueTile<'_, I, C> {
    /// Adds rows `from .. from + P` of the block, `H` halves of their units at a time.
    #[inline(always)]
    fn some_rows<const N: usize, const P: usize, const H: usize>(
        &mut self,
        first: usize,
        from: usize,
        probabilities: &[[f32; ROWS]; N],
    ) {
        let (isa, units) = (self.isa, self.units);
        let values: [&[C::Unit]; P] = rows(&self.values.units[from * units..], units);
        let mut all = self.partials.chunks_exact_mut(partial_len(units * UNIT)).skip(first);
        let mut partials: [&mut [[[f32; LANES]; 2]]; N] = from_fn(|_| Default::default());
        for t in 0..N {
            let partial = all.next().unwrap_or_default();
            partials[t] = &mut partial.as_chunks_mut().0.as_chunks_mut().0[..units];
        }
        for u in self.first_unit..units {
            for part in 0..2 / H {
                let first_half = part * H;
                let mut acc = [[isa.wide_splat(0.0); H]; N];
                for t in 0..N {
                    for h in 0..H {
                        acc[t][h] = isa.wide_load_f32(&partials[t][u][first_half + h]);
                    }
                }
                for p in 0..P {
                    if part == 0 {
                        self.values.prefetch(isa, from * units + u * P + p);
                    }
                    let mut v = [isa.wide_splat(0.0); H];
                    for h in 0..H {
                        v[h] = C::load(isa, &values[p][u], first_half + h);
                    }
                    for t in 0..N {
                        let factor = isa.wide_splat(probabilities[t][from + p]);
                        for h in 0..H {
                            acc[t][h] = isa.wide_mul_add(v[h], factor, acc[t][h]);
                        }
                    }
                }
                for t in 0..N {
                    for h in 0..H {
                        partials[t][u][first_half + h] = isa.wide_to_f32s(acc[t][h]);
                    }
                }
            }
        }
    }
}
