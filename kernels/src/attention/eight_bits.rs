//! Many queries in 8 bits, for keys and values that are not stored in single precision.
//!
//! ```text
//! round the keys and values of the page, once for all queries:    see `rounded`
//! for up to 64 queries:
//!   for each tile of a few keys, each 16 or 32 queries:           lanes are queries
//!     scores[panel][position] = integer product * scales + query . anchor
//!   scores -> probabilities                                       see `softmax`
//!   for each strip of 64 positions, each 16 queries:
//!     p = probability[position][query] * scale of the value
//!     round p to 0 ..= 126 times one scale for each query
//!     for each 16 or 32 values of a row, each tile of a few queries:    lanes are values
//!       partial[query] += integer product * scale
//! ```
//! Before a probability is rounded, the rounding error of the positions before it is added. So many
//! small probabilities do not vanish next to a large one: their sum over a strip is off by at most
//! half a step.
//!
//! Results do not depend on other queries, or on keys after the last visible one: each row has its
//! scale, strips are at fixed positions, and the anchor is the first key of the page that there is.

use std::array::from_fn;

use bytemuck::{Zeroable, cast_slice, must_cast, must_cast_slice, must_cast_slice_mut};

use super::{
    Lanes, PAGE, Page, Rotation, TOGETHER,
    partial::partial_len,
    rotation::LoadKeys,
    rounded::{FOURS, RoundedKeys, RoundedValues, STRIP, inverse, transpose},
    value_tile::{Partials, Weighted, weigh},
};
use crate::{
    array::map,
    cache::{CacheFormat, CacheKernel, UNIT, load_row},
    isa::{CacheLine, Isa, Kernel, LANES},
    tile::{Tile, tiles},
};

/// The largest rounded probability. With the error of earlier positions, it stays below 127.
const LARGEST: f32 = 126.0;

/// Rounds the keys of the span.
pub(super) struct RoundKeys<'a> {
    pub page: &'a Page<'a>,
    pub keys: &'a [u8],
    pub rotation: Option<Rotation<'a>>,
    /// The position of the anchor.
    pub anchor: usize,
    /// Buffer for 16 keys: (keys, dim).
    pub rows: &'a mut [Lanes],
    /// Buffer for a panel: (dim).
    pub panel: &'a mut [Lanes],
    pub rounded: &'a mut RoundedKeys,
}

impl CacheKernel for RoundKeys<'_> {
    // The layout of the bytes depends on the instruction set's dot products.
    const FLOATS: bool = false;
    #[inline(always)]
    fn run<I: Isa, C: CacheFormat>(self, isa: I) {
        let RoundKeys { page, keys, rotation, anchor, rows, panel, rounded } = self;
        let (dim, span) = (page.queries.dim, &page.span);
        let keys: &[C::Unit] = cast_slice(keys);
        let panel = &mut must_cast_slice_mut(panel)[..dim];
        let rows: &mut [[f32; LANES]] = must_cast_slice_mut(rows);
        let mixed = C::MIXED && rotation.is_none();
        let load = |position: usize, out: &mut [[f32; LANES]]| {
            let units = dim / UNIT;
            let keys = &keys[position * units..][..out.len() * LANES / UNIT];
            isa.call(LoadKeys::<C> { dim, position, keys, rotation, out });
        };
        load(anchor, rounded.anchor[..dim].as_chunks_mut().0);
        for index in span.start / LANES..span.end.div_ceil(LANES) {
            load(index * LANES, &mut rows[..dim]);
            let rows = rows[..dim].as_flattened();
            isa.call(RoundPanel { index, rows, panel: &mut *panel, mixed, rounded: &mut *rounded });
        }
    }
}

/// Rounds 16 keys that have been converted to floats. Compiled once for all formats.
struct RoundPanel<'a> {
    index: usize,
    /// (16 keys, dim)
    rows: &'a [f32],
    /// Buffer: (dim), where lanes are keys.
    panel: &'a mut [[f32; LANES]],
    /// Whether the keys are mixed.
    mixed: bool,
    rounded: &'a mut RoundedKeys,
}

impl Kernel for RoundPanel<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let RoundPanel { index, rows, panel, mixed, rounded } = self;
        transpose(isa, rows, panel);
        for (x, anchor) in panel.iter_mut().zip(&rounded.anchor) {
            let minus = isa.wide_splat(-anchor);
            *x = isa.wide_to_f32s(isa.wide_add(isa.wide_load_f32(x), minus));
        }
        rounded.panels.put(isa, index, panel, mixed);
    }
}

/// Rounds the values of the span.
pub(super) struct RoundValues<'a> {
    pub page: &'a Page<'a>,
    pub values: &'a [u8],
    /// Buffer for the values of four positions: (4, dim).
    pub rows: &'a mut [Lanes],
    pub rounded: &'a mut RoundedValues,
}

impl CacheKernel for RoundValues<'_> {
    #[inline(always)]
    fn run<I: Isa, C: CacheFormat>(self, isa: I) {
        let RoundValues { page, values, rows, rounded } = self;
        let dim = page.queries.dim;
        let values: &[C::Unit] = cast_slice(values);
        let rows = &mut must_cast_slice_mut(rows)[..4 * dim / LANES];
        rounded.scales.fill(0.0);
        for four in page.span.start / 4..page.span.end.div_ceil(4) {
            let units = 4 * dim / UNIT;
            load_row::<I, C>(isa, &values[four * units..][..units], rows);
            rounded.put(isa, four, &page.span, rows, page.queries.values_from / LANES);
        }
    }
}

/// Computes the scores of queries with the keys of the span.
pub(super) struct Scores<'a> {
    pub page: &'a Page<'a>,
    pub keys: &'a RoundedKeys,
    /// (queries / 16, PAGE)
    pub scores: &'a mut [[Lanes; PAGE]],
}

impl Kernel for Scores<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Scores { page: &Page { queries, first, visible, ref span }, keys, scores } = self;
        let (dim, fours) = (queries.dim, queries.dim / 4);
        let (first, count) = (first / LANES, visible.len().div_ceil(LANES));
        let mut with_anchor = [[0.0; LANES]; TOGETHER / LANES];
        let floats: &[[f32; LANES]] = must_cast_slice(&queries.floats[first * dim..]);
        for (sums, panel) in with_anchor[..count].iter_mut().zip(floats.chunks_exact(dim)) {
            let mut acc = isa.wide_splat(0.0);
            for (query, key) in panel.iter().zip(&keys.anchor) {
                acc = isa.wide_mul_add(isa.wide_load_f32(query), isa.wide_splat(*key), acc);
            }
            *sums = isa.wide_to_f32s(acc);
        }
        let quants = &queries.rounded.quants[first * fours..][..count * fours];
        let mut terms = [CacheLine::zeroed(); TOGETHER / LANES];
        if I::SIGNED_TERMS {
            for (terms, panel) in terms.iter_mut().zip(quants.chunks_exact(fours)) {
                *terms = isa.signed_terms(panel);
            }
        }
        for index in span.start / LANES..span.end.div_ceil(LANES) {
            let mut tile = KeyTile {
                isa,
                queries: quants,
                terms: &terms,
                scales: &queries.rounded.scales[first..],
                with_anchor: &with_anchor,
                keys: &keys.panels.quants[index * fours..][..fours],
                key_scales: &keys.panels.scales[index].0,
                starts: &keys.panels.starts[index],
                position: index * LANES,
                scores: &mut scores[..count],
            };
            tiles(LANES, &mut tile);
        }
    }
}

/// The scores of all queries with a few of 16 keys.
struct KeyTile<'a, I> {
    isa: I,
    /// (panels, dim / 4)
    queries: &'a [CacheLine],
    /// [`Isa::signed_terms`] of the queries: (panels).
    terms: &'a [CacheLine],
    /// (panels)
    scales: &'a [Lanes],
    /// The products of the queries with the anchor: (panels).
    with_anchor: &'a [[f32; LANES]],
    /// (dim / 4), where lanes are keys.
    keys: &'a [CacheLine],
    key_scales: &'a [f32; LANES],
    starts: &'a [i32; LANES],
    /// The position of the first of the keys.
    position: usize,
    scores: &'a mut [[Lanes; PAGE]],
}

impl<I: Isa> Tile for KeyTile<'_, I> {
    const LARGEST: usize = I::KEY_TILE;
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        let mut panel = 0;
        while panel < self.scores.len() {
            if const { I::TILE_PANELS == 2 } && panel + 2 <= self.scores.len() {
                self.score::<2, N>(panel, first);
                panel += 2;
            } else {
                self.score::<1, N>(panel, first);
                panel += 1;
            }
        }
    }
}

impl<I: Isa> KeyTile<'_, I> {
    #[inline(always)]
    fn score<const W: usize, const N: usize>(&mut self, panel: usize, first: usize) {
        let (isa, fours) = (self.isa, self.keys.len());
        let queries: [&[CacheLine]; W] = from_fn(
            #[inline(always)]
            |i| &self.queries[(panel + i) * fours..][..fours],
        );
        let mut sums = [[isa.wide_ints(0); N]; W];
        for i in 0..W {
            for t in 0..N {
                let start = self.starts[first + t];
                sums[i][t] = match I::SIGNED_TERMS {
                    true => isa.wide_load_ints(&map(
                        must_cast::<_, [i32; LANES]>(self.terms[panel + i]),
                        #[inline(always)]
                        |term| term + start,
                    )),
                    false => isa.wide_ints(start),
                };
            }
        }
        for j in 0..fours {
            let keys: &[[u8; 4]] = self.keys[j].0.as_chunks().0;
            let keys = &keys[first..][..N];
            for i in 0..W {
                let query = isa.wide_load(&queries[i][j].0);
                for t in 0..N {
                    sums[i][t] = isa.wide_dot_less_terms(sums[i][t], query, &keys[t]);
                }
            }
        }
        for i in 0..W {
            let scale = isa.wide_load_f32(&self.scales[panel + i].0);
            let with_anchor = isa.wide_load_f32(&self.with_anchor[panel + i]);
            let scores = &mut self.scores[panel + i][self.position + first..][..N];
            for t in 0..N {
                let scale = isa.wide_mul(scale, isa.wide_splat(self.key_scales[first + t]));
                let score = isa.wide_mul_add(isa.wide_to_floats(sums[i][t]), scale, with_anchor);
                scores[t].0 = isa.wide_to_f32s(score);
            }
        }
    }
}

/// Adds the values of the span, weighted by their probabilities, to the partials.
pub(super) struct Values<'a> {
    pub page: &'a Page<'a>,
    pub values: &'a RoundedValues,
    /// Probabilities: (queries / 16, PAGE).
    pub scores: &'a [[Lanes; PAGE]],
    pub partials: &'a mut [f32],
}

impl Kernel for Values<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Values { page, values, scores, partials } = self;
        let (dim, span) = (page.queries.dim, &page.span);
        let vectors = dim / LANES;
        for strip in span.start / STRIP..span.end.div_ceil(STRIP) {
            let start = strip * STRIP;
            let quants = &values.quants[strip * vectors * FOURS..][..vectors * FOURS];
            let scales = &values.scales[start..][..STRIP];
            // Probabilities outside the span have not been computed.
            let read = span.start.max(start) - start..span.end.min(start + STRIP) - start;
            let partials = partials.chunks_mut(LANES * partial_len(dim));
            for (scores, partials) in scores.iter().zip(partials) {
                let mut probabilities = Probabilities { quants: [[0; 4 * LANES]; FOURS] };
                let scores = &scores[start..][..STRIP];
                let p_scales = probabilities.fill(isa, &read, scores, scales);
                let strip = Strip { p: &probabilities, p_scales, quants };
                weigh(isa, dim, page.queries.values_from, &strip, partials);
            }
        }
    }
}

/// The probabilities of 16 queries in a strip, times the scales of the values.
struct Probabilities {
    /// Probabilities of four positions, next to each other in a query's lane.
    quants: [[u8; 4 * LANES]; FOURS],
}

impl Probabilities {
    /// Rounds `p` (STRIP) times `scales` (STRIP) at the positions `read`. Returns each query's
    /// scale.
    #[inline(always)]
    fn fill<I: Isa>(
        &mut self,
        isa: I,
        read: &std::ops::Range<usize>,
        p: &[Lanes],
        scales: &[f32],
    ) -> [f32; LANES] {
        let mut largest = isa.wide_splat(0.0);
        for (p, scale) in p[read.clone()].iter().zip(&scales[read.clone()]) {
            let weighted = isa.wide_mul(isa.wide_load_f32(&p.0), isa.wide_splat(*scale));
            largest = isa.wide_max(largest, weighted);
        }
        let largest = isa.wide_to_f32s(largest);
        let inverse = isa.wide_load_f32(&map(
            largest,
            #[inline(always)]
            |largest| inverse(LARGEST, largest),
        ));
        let mut error = isa.wide_splat(0.0);
        for (four, out) in self.quants.iter_mut().enumerate() {
            let mut rounded = [isa.wide_splat(0.0); 4];
            for i in 0..4 {
                let position = 4 * four + i;
                if read.contains(&position) {
                    let p = isa.wide_load_f32(&p[position].0);
                    let weighted = isa.wide_mul(p, isa.wide_splat(scales[position]));
                    let exact = isa.wide_mul_add(weighted, inverse, error);
                    rounded[i] = isa.wide_round(exact);
                    error = isa.wide_neg_mul_add(rounded[i], isa.wide_splat(1.0), exact);
                }
            }
            *out = isa.wide_bytes(rounded);
        }
        map(
            largest,
            #[inline(always)]
            |largest| largest / LARGEST,
        )
    }
}

/// The values of a strip.
struct Strip<'a> {
    p: &'a Probabilities,
    /// The scales of the probabilities.
    p_scales: [f32; LANES],
    /// (dim / 16, [`FOURS`])
    quants: &'a [CacheLine],
}

impl<I: Isa> Weighted<I> for Strip<'_> {
    const LARGEST: usize = I::WEIGHING_TILE;
    #[inline(always)]
    fn add<const W: usize, const N: usize>(
        &self,
        isa: I,
        vector: usize,
        query: usize,
        partials: &mut Partials<'_>,
    ) {
        let quants: [&[CacheLine]; W] = from_fn(
            #[inline(always)]
            |i| &self.quants[(vector + i) * FOURS..][..FOURS],
        );
        let mut sums = [[isa.wide_ints(0); N]; W];
        for j in 0..FOURS {
            let p: &[[u8; 4]] = self.p.quants[j].as_chunks().0;
            let p = &p[query..][..N];
            let values = crate::array::from_fn::<_, W>(
                #[inline(always)]
                |i| isa.wide_load(&quants[i][j].0),
            );
            for t in 0..N {
                for i in 0..W {
                    sums[i][t] = isa.wide_dot_by_unsigned(sums[i][t], values[i], &p[t]);
                }
            }
        }
        for t in 0..N {
            let scale = isa.wide_splat(self.p_scales[query + t]);
            for i in 0..W {
                if let Some(to) = partials.vector(query + t, vector + i) {
                    let sum = isa.wide_to_floats(sums[i][t]);
                    *to = isa.wide_to_f32s(isa.wide_mul_add(sum, scale, isa.wide_load_f32(to)));
                }
            }
        }
    }
}
