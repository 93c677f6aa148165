//! A few queries, with keys that are rotated in registers. The rotated rows are never written.
//!
//! ```text
//! for each key of the block, with the cosines c and sines s of its position:
//!   for each pair (x, y) of its values that rotate:      half of n_rot apart
//!     a = x c - y s;  b = y c + x s
//!     acc[query] += a * query[x] + b * query[y]
//!   for each value x that does not rotate:  acc[query] += x * query[x]
//! scores[query][key] = sum of the lanes of acc[query]
//! ```
//! Shapes: queries (queries, dim), keys (up to 8, dim), cosines and sines (n_rot / 2) each.

use super::{
    PAGE, Rotation,
    block::{Block, ROWS, write_scores},
};
use crate::{
    cache::CacheFormat,
    isa::{Isa, LANES},
    tile::Tile,
};

/// Scores of a block of keys that are stored before rotation, if [`Rotation::is_by_units`].
pub(super) struct RotatingTile<'a, I, C: CacheFormat> {
    pub isa: I,
    /// (queries, dim)
    pub queries: &'a [[f32; LANES]],
    /// The number of units of a row.
    pub units: usize,
    pub keys: Block<'a, C::Unit>,
    pub rotation: Rotation<'a>,
    pub scores: &'a mut [[f32; PAGE]],
}

impl<I: Isa, C: CacheFormat> Tile for RotatingTile<'_, I, C> {
    const LARGEST: usize = I::FEW_TILE;
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        let (isa, units) = (self.isa, self.units);
        let mut queries: [&[[[f32; LANES]; 2]]; N] = [&[]; N];
        for t in 0..N {
            queries[t] = &self.queries.as_chunks().0[(first + t) * units..][..units];
        }
        let mut sums = [[isa.splat_f32(0.0); ROWS]; N];
        let Block { position, units: keys, .. } = self.keys;
        let rows = keys.chunks_exact(units).zip(self.rotation.rows_from(position));
        for (p, (key, row)) in rows.enumerate() {
            let row: &[[[f32; LANES]; 2]] = row.as_chunks().0.as_chunks().0;
            let (cosines, sines) = row.split_at(row.len() / 2);
            // The first elements of pairs, the second elements, and the elements that do not
            // rotate.
            let count = cosines.len();
            let (xs, ys, rest) = (&key[..count], &key[count..][..count], &key[2 * count..]);
            let mut acc = [isa.wide_splat(0.0); N];
            for u in 0..count {
                self.keys.prefetch(isa, p * units + u);
                self.keys.prefetch(isa, p * units + count + u);
                for half in 0..2 {
                    let (x, y) = (C::load(isa, &xs[u], half), C::load(isa, &ys[u], half));
                    let cosine = isa.wide_load_f32(&cosines[u][half]);
                    let sine = isa.wide_load_f32(&sines[u][half]);
                    let a = isa.wide_neg_mul_add(y, sine, isa.wide_mul(x, cosine));
                    let b = isa.wide_mul_add(x, sine, isa.wide_mul(y, cosine));
                    for t in 0..N {
                        let q = &queries[t][..count][u][half];
                        let r = &queries[t][count..][..count][u][half];
                        acc[t] = isa.wide_mul_add(a, isa.wide_load_f32(q), acc[t]);
                        acc[t] = isa.wide_mul_add(b, isa.wide_load_f32(r), acc[t]);
                    }
                }
            }
            for (u, unit) in (2 * count..).zip(rest) {
                self.keys.prefetch(isa, p * units + u);
                for half in 0..2 {
                    let k = C::load(isa, unit, half);
                    for t in 0..N {
                        let q = isa.wide_load_f32(&queries[t][u][half]);
                        acc[t] = isa.wide_mul_add(k, q, acc[t]);
                    }
                }
            }
            for t in 0..N {
                let [a, b] = isa.wide_halves(acc[t]);
                sums[t][p] = isa.add(a, b);
            }
        }
        let count = keys.len() / units;
        write_scores(isa, &sums, count, position, &mut self.scores[first..]);
    }
}
