//! The scores of a few queries with the bias of keys, which are stored without it.
//!
//! ```text
//! R_p: rotation by position p;  query: pairs (x, y), and other values z;  bias: pairs (u, v), and w
//!
//! query . R_p bias = sum over pairs of cos_p (x u + y v) + sin_p (y u - x v), and z . w
//! ```
//! So for each query the pairs are multiplied once, and then with the cosines and sines of each
//! position: these are the same for all pages, heads and layers, and stay in the L2 cache.

use super::{
    PAGE, Page, Rotation,
    block::{Block, ROWS},
    few::{FloatTile, TILE},
};
use crate::{
    array::map,
    cache::{CacheFormat, UNIT},
    format::F32,
    isa::{Isa, LANES},
    tile::tiles,
};

/// Adds the scores with a head's bias to `scores`, (queries, PAGE): `queries` (queries, dim), `angles`
/// as [`Rotation::bias_angles`] returns them. `buffer` is for (queries, `n_rot`).
#[inline(always)]
pub(super) fn add_scores<I: Isa>(
    isa: I,
    page: &Page<'_>,
    queries: &[f32],
    rotation: Rotation<'_>,
    angles: &[<F32 as CacheFormat>::Unit],
    buffer: &mut [[f32; LANES]],
    scores: &mut [[f32; PAGE]],
) {
    let (dim, count) = (page.queries.dim, page.queries.count);
    let Rotation { n_rot, bias, .. } = rotation;
    let units = n_rot / UNIT;
    let products = &mut buffer[..count * n_rot / LANES];
    let (pairs, w) = bias.split_at(n_rot);
    let each = products.as_flattened_mut().chunks_exact_mut(n_rot);
    for ((query, products), scores) in queries.chunks_exact(dim).zip(each).zip(&mut *scores) {
        let (query, z) = query.split_at(n_rot);
        multiply(isa, query, pairs, products);
        let mut constant = 0.0;
        for (z, w) in z.iter().zip(w) {
            constant += z * w;
        }
        for score in &mut scores[page.span.clone()] {
            *score += constant;
        }
    }
    for position in page.span.clone().step_by(ROWS) {
        let last = page.span.end.min(position + ROWS);
        let keys = Block { position, units: &angles[position * units..last * units], next: &[] };
        let (queries, add) = (&*products, true);
        let mut tile = FloatTile::<I, F32> { isa, queries, units, keys, add, scores };
        tiles(count, TILE, &mut tile);
    }
}

/// Writes `x u + y v`, then `y u - x v`, of the pairs of a query (x, y) and of the bias (u, v).
#[inline(always)]
fn multiply<I: Isa>(isa: I, query: &[f32], bias: &[f32], out: &mut [f32]) {
    let half = query.len() / 2;
    let (x, y) = query.split_at(half);
    let (u, v) = bias.split_at(half);
    let (a, b) = out.split_at_mut(half);
    for (i, (a, b)) in a.as_chunks_mut().0.iter_mut().zip(b.as_chunks_mut().0).enumerate() {
        let [x, y, u, v] = map(
            [x, y, u, v],
            #[inline(always)]
            |x| isa.wide_load_f32(&x.as_chunks().0[i]),
        );
        *a = isa.wide_to_f32s(isa.wide_mul_add(x, u, isa.wide_mul(y, v)));
        *b = isa.wide_to_f32s(isa.wide_neg_mul_add(x, v, isa.wide_mul(y, u)));
    }
}
