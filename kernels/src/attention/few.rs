//! A few queries: each row of the cache is read once, as it is stored.
//!
//! ```text
//! for each KV head:
//!   for each block of 8 keys, each tile of up to 4 queries:
//!     scores[query][key] = sum of lanes of (query . key)           16 values in lanes
//!   scores -> probabilities, and partials scaled to the new maxima
//!   for each block of 8 values, each tile of queries:
//!     partial[query] += probability[query][position] * value[position]
//! ```
//! Scores of quantized keys that do not rotate are computed by [`transposed`], and those with their
//! bias by [`bias`].
//!
//! Shapes: queries (heads, queries, dim), keys and values (heads, PAGE, dim), scores (heads,
//! queries, PAGE), partials (heads, queries, dim + 2).

use std::array::from_fn;

use bytemuck::{cast_slice, must_cast_slice, must_cast_slice_mut};

use super::{
    Lanes, PAGE, Page, Rotation, bias,
    block::{Block, ROWS, write_scores},
    partial_len,
    rotating::RotatingTile,
    transposed,
};
use crate::{
    cache::{CacheFormat, CacheKernel, Quantized, UNIT},
    format::F32,
    isa::{Isa, Kernel, LANES},
    tile::{Tile, tiles},
    vector::{exp, soft_capped},
};

/// The largest number of queries in a tile, which share a block of rows.
const TILE: usize = 4;

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
    #[inline(always)]
    fn run<I: Isa, C: CacheFormat>(self, isa: I) {
        let Scores { page, keys, next, rotation, rows, scores } = self;
        let dim = page.queries.dim;
        let (units, vectors) = (dim / UNIT, dim / LANES);
        for (first, keys, next) in page.heads(keys, next) {
            let queries = must_cast_slice(&page.queries.floats[first * vectors..]);
            let scores = &mut scores[first..];
            let rotation = rotation.map(|all| all.of_head(first / page.queries.count, dim));
            for keys in page.blocks::<C>(keys, next) {
                match rotation {
                    None => {
                        let mut tile = FloatTile::<I, C> { isa, queries, units, keys, scores };
                        tiles(page.queries.count, TILE, &mut tile);
                    }
                    Some(rotation) if rotation.is_by_units() => {
                        let mut tile =
                            RotatingTile::<I, C> { isa, queries, units, keys, rotation, scores };
                        tiles(page.queries.count, TILE, &mut tile);
                    }
                    Some(rotation) => {
                        for unit in 0..keys.units.len() {
                            keys.prefetch(isa, unit);
                        }
                        let Block { position, units, .. } = keys;
                        let rows = &mut rows[..units.len() * UNIT / LANES];
                        let floats = must_cast_slice_mut(rows);
                        rotation.load::<I, C>(isa, dim, position, units, floats);
                        isa.call(FloatScores { page, queries, position, rows, scores });
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn run_quantized<I: Isa, C: Quantized>(self, isa: I) {
        let bias = self.rotation.map(|rotation| (rotation, rotation.bias_arcs()));
        if let Some((_, None)) = bias {
            return self.run::<I, C>(isa);
        }
        let Scores { page, keys, next, rows, scores, .. } = self;
        let (dim, units) = (page.queries.dim, page.queries.dim / UNIT);
        for (first, keys, next) in page.heads(keys, next) {
            let (queries, scores) = (&page.queries.units[first * units..], &mut scores[first..]);
            transposed::scores::<I, C>(isa, page, queries, keys, next, rows, scores);
            if let Some((rotation, Some(arcs))) = bias {
                let rotation = rotation.of_head(first / page.queries.count, dim);
                let queries: &[f32] = must_cast_slice(&page.queries.floats[first * dim / LANES..]);
                let rows = must_cast_slice_mut(rows);
                bias::add_scores(isa, page, queries, rotation, arcs, rows, scores);
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
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let FloatScores { page, queries, position, rows, scores } = self;
        let keys = Block { position, units: cast_slice(rows), next: &[] };
        let units = page.queries.dim / UNIT;
        let mut tile = FloatTile::<I, F32> { isa, queries, units, keys, scores };
        tiles(page.queries.count, TILE, &mut tile);
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
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        let (units, vectors) = (self.units, self.units * UNIT / LANES);
        let mut queries: [&[[f32; LANES]]; N] = [&[]; N];
        for t in 0..N {
            queries[t] = &self.queries[(first + t) * vectors..][..vectors];
        }
        let mut sums = [[self.isa.splat_f32(0.0); ROWS]; N];
        let Block { position, units: keys, .. } = self.keys;
        // The number of rows at a time whose sums stay in registers.
        let at_once = if keys.len() < ROWS * units { 1 } else { I::FEW_SCORE_SUMS / N };
        match at_once {
            4.. => self.some_rows::<N, 4>(queries, &mut sums),
            2 | 3 => self.some_rows::<N, 2>(queries, &mut sums),
            _ => self.some_rows::<N, 1>(queries, &mut sums),
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

/// Converts scores to probabilities relative to the maximum so far; 0 for positions that are not
/// visible.
pub(super) struct Softmax<'a> {
    pub page: &'a Page<'a>,
    pub scores: &'a mut [[f32; PAGE]],
    pub partials: &'a mut [f32],
}

impl Kernel for Softmax<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Page { queries, visible, span, .. } = self.page;
        let visible = visible.iter().cycle();
        let partials = self.partials.chunks_exact_mut(partial_len(queries.dim));
        for ((scores, visible), partial) in self.scores.iter_mut().zip(visible).zip(partials) {
            if visible.is_empty() {
                scores[span.clone()].fill(0.0);
                continue;
            }
            scores[span.start..visible.start].fill(0.0);
            scores[visible.end..span.end].fill(0.0);
            softmax(isa, &mut scores[visible.clone()], queries.soft_cap, partial);
        }
    }
}

/// Converts one query's visible scores to probabilities, and scales `partial` to the new maximum.
#[inline(always)]
fn softmax<I: Isa>(isa: I, scores: &mut [f32], soft_cap: Option<f32>, partial: &mut [f32]) {
    let Some((values, [maximum, sum])) = partial.split_last_chunk_mut() else { return };
    let mut largest = isa.wide_splat(*maximum);
    for part in scores.chunks_mut(LANES) {
        let mut s = isa.wide_load_f32(&padded(part));
        if let Some(cap) = soft_cap {
            let capped = isa.wide_to_f32s(soft_capped(isa, s, cap));
            part.copy_from_slice(&capped[..part.len()]);
            s = isa.wide_load_f32(&padded(part));
        }
        largest = isa.wide_max(largest, s);
    }
    let [a, b] = isa.wide_halves(largest);
    let new = isa.max_lane(isa.max(a, b));
    let minus_new = isa.wide_splat(-new);
    let factor = exp(isa, isa.wide_splat(*maximum - new));
    let mut sums = isa.wide_splat(0.0);
    for part in scores.chunks_mut(LANES) {
        let p = exp(isa, isa.wide_add(isa.wide_load_f32(&padded(part)), minus_new));
        sums = isa.wide_add(sums, p);
        part.copy_from_slice(&isa.wide_to_f32s(p)[..part.len()]);
    }
    for values in values.as_chunks_mut().0 {
        *values = isa.wide_to_f32s(isa.wide_mul(isa.wide_load_f32(values), factor));
    }
    let [a, b] = isa.wide_halves(sums);
    *sum = *sum * isa.wide_to_f32s(factor)[0] + isa.sum(isa.add(a, b));
    *maximum = new;
}

/// Returns up to 16 scores, padded with minus infinity, whose probability is 0.
#[inline(always)]
fn padded(scores: &[f32]) -> [f32; LANES] {
    scores.as_array().copied().unwrap_or_else(|| {
        let mut all = [f32::NEG_INFINITY; LANES];
        all[..scores.len()].copy_from_slice(scores);
        all
    })
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
        let count = page.queries.count;
        // More queries to a tile unpack values fewer times, but read each row twice.
        let packed = size_of::<C::Unit>() < UNIT;
        let many = packed || count.is_multiple_of(I::FLOAT_TILE);
        let largest = if many { I::FLOAT_TILE } else { I::FEW_VALUE_QUERIES };
        for (first, values, next) in page.heads(values, next) {
            let (scores, partials) = (&scores[first..], &mut partials[first * len..]);
            for values in page.blocks::<C>(values, next) {
                let mut tile = ValueTile::<I, C> { isa, units, values, scores, partials };
                tiles(count, largest, &mut tile);
            }
        }
    }
}

/// Weighted sums of a block of values.
struct ValueTile<'a, I, C: CacheFormat> {
    isa: I,
    /// The number of units of a row.
    units: usize,
    values: Block<'a, C::Unit>,
    scores: &'a [[f32; PAGE]],
    partials: &'a mut [f32],
}

impl<I: Isa, C: CacheFormat> Tile for ValueTile<'_, I, C> {
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
        } else if N <= I::FEW_VALUE_QUERIES {
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
        for u in 0..units {
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
