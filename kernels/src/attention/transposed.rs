//! Scores of a few queries with quantized keys, computed as integers.
//!
//! ```text
//! for each two blocks of 8 keys:                 transpose them: lanes are keys
//!   for each tile of queries:
//!     for each unit of 32 values:                exact integer sums
//!       scores[query] += (query . keys) * query's scale * keys' scales
//! ```
//! No sum runs over lanes, and the keys are unpacked once for all queries of a group.

use bytemuck::{Pod, Zeroable, must_cast_slice_mut};

use super::{
    Lanes, PAGE, Page,
    block::{Block, ROWS},
    queries::QueryUnit,
};
use crate::{
    array::from_fn,
    cache::{Quantized, UNIT},
    isa::{CacheLine, Isa, LANES},
    tile::{Tile, tiles},
};

/// The number of blocks of keys that fill the lanes.
const BLOCKS: usize = LANES / ROWS;

/// 32 values of 16 keys. Lane `i` of every vector belongs to key `i`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct KeyUnit {
    /// Element `j` holds values `4 j .. 4 j + 4` of all keys, xored with [`Isa::SIGNED_BIAS`].
    quants: [CacheLine; UNIT / 4],
    scales: Lanes,
}

/// Computes the scores of all queries of a head with the keys of the span: `queries` (queries,
/// units), `keys` and `next` (positions, row bytes), `scores` (queries, PAGE).
#[inline(always)]
pub(super) fn scores<I: Isa, C: Quantized>(
    isa: I,
    page: &Page<'_>,
    queries: &[QueryUnit],
    keys: &[u8],
    next: &[u8],
    buffer: &mut [Lanes],
    scores: &mut [[f32; PAGE]],
) {
    let units = page.queries.dim / UNIT;
    let lines = buffer.as_chunks_mut::<{ size_of::<KeyUnit>() / size_of::<Lanes>() }>().0;
    let panel: &mut [KeyUnit] = &mut must_cast_slice_mut(lines)[..units];
    let mut places = [(0, 0); BLOCKS];
    let mut filled = 0;
    let mut blocks = page.blocks::<C>(keys, next).peekable();
    while let Some(block) = blocks.next() {
        transpose::<I, C>(isa, &block, filled, panel);
        places[filled] = (block.position, block.units.len() / units);
        filled += 1;
        if filled == BLOCKS || blocks.peek().is_none() {
            let places = &places[..filled];
            let mut tile = KeyTile { isa, queries, panel, places, scores };
            tiles(page.queries.count, &mut tile);
            filled = 0;
        }
    }
}

/// Writes the keys of a block, at most [`ROWS`], to lanes `ROWS * place ..` of the panel.
#[inline(always)]
fn transpose<I: Isa, C: Quantized>(
    isa: I,
    block: &Block<'_, C::Unit>,
    place: usize,
    panel: &mut [KeyUnit],
) {
    let units = panel.len();
    let count = block.units.len() / units;
    for (u, unit) in panel.iter_mut().enumerate() {
        let mut rows = [isa.splat(0); ROWS];
        for p in 0..ROWS {
            if p < count {
                block.prefetch(isa, u * count + p);
                let key = &block.units[p * units + u];
                rows[p] = isa.xor(C::quants(isa, key), isa.splat(I::SIGNED_BIAS));
                unit.scales.0[place * ROWS + p] = isa.f32_from_f16(C::scale(key));
            }
        }
        for (columns, to) in isa.transpose(rows).into_iter().zip(&mut unit.quants) {
            to.0.as_chunks_mut().0[place] = isa.to_bytes(columns);
        }
    }
}

/// The scores of a tile of queries with the keys of a panel.
struct KeyTile<'a, I> {
    isa: I,
    /// (queries, units)
    queries: &'a [QueryUnit],
    panel: &'a [KeyUnit],
    /// The position of the first key of each block of the panel, and the number of its keys.
    places: &'a [(usize, usize)],
    scores: &'a mut [[f32; PAGE]],
}

impl<I: Isa> Tile for KeyTile<'_, I> {
    const LARGEST: usize = I::INT_TILE;
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        let (isa, units) = (self.isa, self.panel.len());
        let queries: [&[QueryUnit]; N] = from_fn(
            #[inline(always)]
            |t| &self.queries[(first + t) * units..][..units],
        );
        let mut acc = [isa.wide_splat(0.0); N];
        for (u, keys) in self.panel.iter().enumerate() {
            let units: [&QueryUnit; N] = from_fn(
                #[inline(always)]
                |t| &queries[t][u],
            );
            let quants: [&[[u8; 4]]; N] = from_fn(
                #[inline(always)]
                |t| units[t].quants.as_chunks().0,
            );
            let start = from_fn(
                #[inline(always)]
                |t| units[t].bias,
            );
            let [products] = isa.wide_dots(true, 8, [&keys.quants], quants, start);
            let scales = isa.wide_load_f32(&keys.scales.0);
            for t in 0..N {
                let scale = isa.wide_mul(scales, isa.wide_splat(units[t].scale));
                acc[t] = isa.wide_mul_add(isa.wide_to_floats(products[t]), scale, acc[t]);
            }
        }
        for t in 0..N {
            let sums = isa.wide_to_f32s(acc[t]);
            for (sums, &(position, count)) in sums.as_chunks::<ROWS>().0.iter().zip(self.places) {
                let scores = &mut self.scores[first + t][position..];
                match scores.first_chunk_mut() {
                    Some(all) if count == ROWS => *all = *sums,
                    _ => scores[..count].copy_from_slice(&sums[..count]),
                }
            }
        }
    }
}
