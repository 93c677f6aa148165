//! The scores of a few queries with the bias of keys that are stored without it.
//!
//! ```text
//! query: pairs (x, y), other values z;  bias rotated to position c: pairs (u, v), other values w
//!
//!   query . bias at c + d = even(d) + odd(d) + z . w      even(d) = sum of (x u + y v) cos(d theta)
//!                   c - d = even(d) - odd(d) + z . w      odd(d)  = sum of (y u - x v) sin(d theta)
//! ```
//! A page is cut into arcs of 32 positions, each with a center c. The cosines and sines of the 16
//! distances d are the same for all arcs, pages, heads and layers, and stay in the L1 cache.

use super::{
    PAGE, Page, Rotation,
    arcs::{ARC, Arcs},
};
use crate::{
    array::{from_fn, map},
    isa::{Isa, Kernel, LANES},
    tile::{Tile, float_tile, tiles},
    vector::rotated,
};

/// Adds the scores with a head's bias, in whole arcs that cover the span.
pub(super) struct Scores<'a> {
    pub page: &'a Page<'a>,
    /// (queries, dim)
    pub queries: &'a [f32],
    /// Has the bias, rotated to the page's start.
    pub rotation: Rotation<'a>,
    pub arcs: &'a Arcs,
    /// Buffer: two rows of `n_rot` values for each arc.
    pub buffer: &'a mut [[f32; LANES]],
    /// (queries, PAGE)
    pub scores: &'a mut [[f32; PAGE]],
}

impl Kernel for Scores<'_> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Scores { page, queries, rotation, arcs, buffer, scores } = self;
        let (dim, count) = (page.queries.dim, page.queries.count);
        let (pairs, w) = rotation.bias.split_at(rotation.n_rot);
        let (first, end) = (page.span.start / ARC, page.span.end.div_ceil(ARC));
        let (biases, products) =
            buffer.as_flattened_mut().split_at_mut((end - first) * pairs.len());
        let centers = arcs.centers.chunks_exact(pairs.len()).skip(first);
        for (bias, center) in biases.chunks_exact_mut(pairs.len()).zip(centers) {
            bias.copy_from_slice(pairs);
            rotated(isa, bias, center);
        }
        let (biases, distances) = (&*biases, &arcs.distances[..]);
        for (query, scores) in queries.chunks_exact(dim).zip(&mut scores[..count]) {
            let mut constant = 0.0;
            for (z, w) in query[pairs.len()..].iter().zip(w) {
                constant += z * w;
            }
            let scores = &mut scores.as_chunks_mut::<ARC>().0[first..end];
            let query = &query[..pairs.len()];
            let mut tile = ArcTile { isa, query, biases, distances, constant, products, scores };
            tiles(end - first, &mut tile);
        }
    }
}

/// The scores of a query with the bias in some arcs.
struct ArcTile<'a, I> {
    isa: I,
    /// The values that rotate.
    query: &'a [f32],
    /// (arcs, `n_rot`): the bias rotated to the center of each arc.
    biases: &'a [f32],
    distances: &'a [[f32; LANES]],
    /// A number to add to all scores.
    constant: f32,
    /// Buffer: (arcs, `n_rot`).
    products: &'a mut [f32],
    scores: &'a mut [[f32; ARC]],
}

impl<I: Isa> Tile for ArcTile<'_, I> {
    const LARGEST: usize = I::FLOAT_TILE;
    #[inline(always)]
    fn run<const N: usize>(&mut self, first: usize) {
        let (isa, n_rot) = (self.isa, self.query.len());
        for t in 0..N {
            let bias = &self.biases[(first + t) * n_rot..][..n_rot];
            multiply(isa, self.query, bias, &mut self.products[t * n_rot..][..n_rot]);
        }
        let products = &*self.products;
        let half = |i: usize| -> [&[f32]; N] {
            from_fn(
                #[inline(always)]
                |t| &products[(2 * t + i) * n_rot / 2..][..n_rot / 2],
            )
        };
        let (cosines, sines) = self.distances.split_at(n_rot / 2);
        let even = float_tile(isa, cosines, half(0), [isa.wide_splat(self.constant); N]);
        let odd = float_tile(isa, sines, half(1), [isa.wide_splat(0.0); N]);
        for (t, scores) in self.scores[first..][..N].iter_mut().enumerate() {
            let after = isa.wide_to_f32s(isa.wide_add(even[t], odd[t]));
            let one = isa.wide_splat(1.0);
            let mut before = isa.wide_to_f32s(isa.wide_neg_mul_add(odd[t], one, even[t]));
            before.reverse();
            for (scores, bias) in scores.as_chunks_mut().0.iter_mut().zip([before, after]) {
                let sum = isa.wide_add(isa.wide_load_f32(scores), isa.wide_load_f32(&bias));
                *scores = isa.wide_to_f32s(sum);
            }
        }
    }
}

/// Writes `x u + y v`, then `y u - x v`, for the pairs (x, y) of a query and (u, v) of the bias.
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
