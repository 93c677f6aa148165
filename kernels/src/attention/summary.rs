//! Summaries of blocks of keys. They estimate how much attention a block gets, without reading its
//! keys.
//!
//! ```text
//! of a block:    mean   = sum of k / 32                             element by element
//!                spread = sqrt(sum of (k - mean)^2 / 32)
//! with a query:  m = q . mean,  v = sum of (q * spread)^2           mean and variance of q . k
//!                ln(sum of e^(q . k)) ~ m + ln 32 + v / 2           if v < 2 ln 32
//!                                       m + sqrt(2 v ln 32)         otherwise
//! ```
//! The scores of a block are assumed to be normally distributed, with independent elements. The
//! first case is their second-order cumulant expansion. In the second case, the largest of 32
//! scores exceeds all others (Derrida 1981, "Random-energy model").

use bytemuck::{cast_slice, cast_slice_mut, must_cast_slice_mut};

use super::{CacheRows, Lanes, Rotation, Scratch, rotation::LoadKeys};
use crate::{
    array::map,
    cache::{self, CacheFormat, CacheKernel, UNIT},
    format::F16,
    hadamard::mix_row,
    isa::{Cpu, Half, Isa, Kernel, LANES},
    tile::{Tile, tiles},
};

/// The number of positions of a block.
pub const BLOCK: usize = 32;

/// The logarithm of [`BLOCK`].
const LN_BLOCK: f32 = 5.0 * std::f32::consts::LN_2;

/// Returns the bytes of a summary of keys of `dim` values: the means in f16, then the spreads.
pub const fn summary_bytes(dim: usize) -> usize {
    2 * dim * size_of::<Half>()
}

/// Writes the summary ([`summary_bytes`]) of the block at `first`, a position of a page.
///
/// `keys` are the page's rows of one KV head. `rotation` rotates them as in
/// [`attend`](super::attend).
pub fn summarize(
    cpu: Cpu,
    keys: CacheRows<'_>,
    rotation: Option<Rotation<'_>>,
    dim: usize,
    first: usize,
    scratch: &mut Scratch,
    out: &mut [u8],
) {
    assert_eq!(out.len(), summary_bytes(dim));
    let rows = &mut scratch.rows[..BLOCK * dim / LANES];
    let work = Summarize { keys: keys.bytes, rotation, dim, first, rows, out };
    cache::run(cpu, keys.dtype, work);
}

struct Summarize<'a> {
    keys: &'a [u8],
    rotation: Option<Rotation<'a>>,
    dim: usize,
    first: usize,
    /// Buffer: (BLOCK, dim).
    rows: &'a mut [Lanes],
    out: &'a mut [u8],
}

impl CacheKernel for Summarize<'_> {
    #[inline(always)]
    fn run<I: Isa, C: CacheFormat>(self, isa: I) {
        let Summarize { keys, rotation, dim, first, rows, out } = self;
        let units = dim / UNIT;
        let keys: &[C::Unit] = cast_slice(keys);
        let keys = &keys[first * units..][..BLOCK * units];
        let rows = must_cast_slice_mut(rows);
        isa.call(LoadKeys::<C> { dim, position: first, keys, rotation, out: &mut *rows });
        if C::MIXED && rotation.is_none() {
            for row in rows.chunks_exact_mut(dim / LANES) {
                mix_row(isa, row);
            }
        }
        isa.call(Moments { rows, out });
    }
}

/// Writes the means and the spreads of rows. Compiled once for all formats.
struct Moments<'a> {
    /// (BLOCK, dim)
    rows: &'a [[f32; LANES]],
    out: &'a mut [u8],
}

impl Kernel for Moments<'_> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Moments { rows, out } = self;
        let vectors = rows.len() / BLOCK;
        let (means, spreads) = out.split_at_mut(out.len() / 2);
        let means: &mut [<F16 as CacheFormat>::Unit] = cast_slice_mut(means);
        let spreads: &mut [<F16 as CacheFormat>::Unit] = cast_slice_mut(spreads);
        let (one, share) = (isa.wide_splat(1.0), isa.wide_splat(1.0 / BLOCK as f32));
        for (u, (mean_unit, spread_unit)) in means.iter_mut().zip(spreads).enumerate() {
            let (mut all_means, mut all_spreads) = ([[0.0; LANES]; 2], [[0.0; LANES]; 2]);
            for half in 0..2 {
                let vector = 2 * u + half;
                let mut sum = isa.wide_splat(0.0);
                for row in rows.chunks_exact(vectors) {
                    sum = isa.wide_add(sum, isa.wide_load_f32(&row[vector]));
                }
                let mean = isa.wide_mul(sum, share);
                let mut squares = isa.wide_splat(0.0);
                for row in rows.chunks_exact(vectors) {
                    let x = isa.wide_neg_mul_add(mean, one, isa.wide_load_f32(&row[vector]));
                    squares = isa.wide_mul_add(x, x, squares);
                }
                all_means[half] = isa.wide_to_f32s(mean);
                let variances = isa.wide_to_f32s(isa.wide_mul(squares, share));
                for (spread, variance) in all_spreads[half].iter_mut().zip(variances) {
                    *spread = variance.sqrt();
                }
            }
            let (mut mean, mut spread) = ([0.0; UNIT], [0.0; UNIT]);
            mean.copy_from_slice(all_means.as_flattened());
            spread.copy_from_slice(all_spreads.as_flattened());
            F16::store(isa, &mean, mean_unit);
            F16::store(isa, &spread, spread_unit);
        }
    }
}

/// Estimates the logarithm of the sum of `e^score` over the keys of each block in `summaries`.
/// Writes it to `out` (blocks, queries) for each of the queries (queries, dim).
///
/// Queries are scaled and rotated as for [`attend`](super::attend), and never mixed.
pub fn estimate(cpu: Cpu, queries: &[f32], dim: usize, summaries: &[u8], out: &mut [f32]) {
    let (count, blocks) = (queries.len() / dim, summaries.len() / summary_bytes(dim));
    assert_eq!((queries.len() % dim, out.len()), (0, count * blocks));
    cpu.call(Estimate { queries: queries.as_chunks().0, dim, summaries, out });
}

struct Estimate<'a> {
    /// (queries, dim)
    queries: &'a [[f32; LANES]],
    dim: usize,
    summaries: &'a [u8],
    /// (blocks, queries)
    out: &'a mut [f32],
}

impl Kernel for Estimate<'_> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Estimate { queries, dim, summaries, out } = self;
        let count = queries.len() * LANES / dim;
        let blocks = summaries.chunks_exact(summary_bytes(dim));
        for (summary, out) in blocks.zip(out.chunks_exact_mut(count)) {
            let (means, spreads) = summary.split_at(summary.len() / 2);
            let (means, spreads) = (cast_slice(means), cast_slice(spreads));
            tiles(count, &mut BlockTile { isa, queries, means, spreads, out });
        }
    }
}

/// The estimates of one block.
struct BlockTile<'a, I> {
    isa: I,
    /// (queries, dim)
    queries: &'a [[f32; LANES]],
    /// (dim)
    means: &'a [[Half; LANES]],
    /// (dim)
    spreads: &'a [[Half; LANES]],
    /// (queries)
    out: &'a mut [f32],
}

impl<I: Isa> Tile for BlockTile<'_, I> {
    const LARGEST: usize = 2;
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        let (isa, vectors) = (self.isa, self.means.len());
        let queries: [&[[f32; LANES]]; N] =
            std::array::from_fn(|t| &self.queries[(first + t) * vectors..][..vectors]);
        let (mut means, mut variances) = ([isa.wide_splat(0.0); N], [isa.wide_splat(0.0); N]);
        for (v, (mean, spread)) in self.means.iter().zip(self.spreads).enumerate() {
            let (mean, spread) = (isa.wide_from_f16(mean), isa.wide_from_f16(spread));
            for t in 0..N {
                let query = isa.wide_load_f32(&queries[t][v]);
                means[t] = isa.wide_mul_add(query, mean, means[t]);
                let x = isa.wide_mul(query, spread);
                variances[t] = isa.wide_mul_add(x, x, variances[t]);
            }
        }
        for t in 0..N {
            let [mean, variance] = map(
                [means[t], variances[t]],
                #[inline(always)]
                |x| {
                    let [low, high] = isa.wide_halves(x);
                    isa.sum(isa.add(low, high))
                },
            );
            self.out[first + t] = log_sum(mean, variance);
        }
    }
}

/// Returns the estimate for scores with this mean and variance.
#[inline(always)]
fn log_sum(mean: f32, variance: f32) -> f32 {
    match variance < 2.0 * LN_BLOCK {
        true => mean + LN_BLOCK + 0.5 * variance,
        false => mean + (2.0 * LN_BLOCK * variance).sqrt(),
    }
}
