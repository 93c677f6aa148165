//! The register tile of float products: 16 lanes by a few tokens. Weights, scores of attention and
//! weighted values all go through it.

use crate::{
    array::map,
    isa::{Isa, LANES},
};

/// What [`tiles`] calls for each run of tokens.
pub(crate) trait Tile {
    /// Computes tokens `first .. first + N`.
    fn run<const N: usize>(&mut self, first: usize);
}

/// Splits `tokens` into tiles of `largest` (8, 6, 4, 3 or 2) and, at the end, smaller ones.
#[inline(always)]
pub(crate) fn tiles(tokens: usize, largest: usize, tile: &mut impl Tile) {
    let mut first = 0;
    while first < tokens {
        let size = [largest, 4, 3, 2, 1].into_iter().find(|&n| n <= largest && n <= tokens - first);
        match size {
            Some(8) => tile.run::<8>(first),
            Some(6) => tile.run::<6>(first),
            Some(4) => tile.run::<4>(first),
            Some(3) => tile.run::<3>(first),
            Some(2) => tile.run::<2>(first),
            _ => tile.run::<1>(first),
        }
        first += size.unwrap_or(1);
    }
}

/// `acc[t] + sum over k of panel[k] * x[t][k]`, lane by lane, in the order of `k`.
#[inline(always)]
pub(crate) fn float_tile<I: Isa, const N: usize>(
    isa: I,
    panel: &[[f32; LANES]],
    x: [&[f32]; N],
    acc: [I::WideFloats; N],
) -> [I::WideFloats; N] {
    wide_float_tile(isa, [panel], x, [acc])[0]
}

/// The same for several panels of one length.
#[inline(always)]
pub(crate) fn wide_float_tile<I: Isa, const W: usize, const N: usize>(
    isa: I,
    panels: [&[[f32; LANES]]; W],
    x: [&[f32]; N],
    mut acc: [[I::WideFloats; N]; W],
) -> [[I::WideFloats; N]; W] {
    const STEPS: usize = 16;
    let len = panels[0].len();
    // Lengths are compared once for several steps.
    for i in 0..len / STEPS {
        let mut vectors = [&[][..]; W];
        for w in 0..W {
            vectors[w] = &panels[w].as_chunks::<STEPS>().0[i];
        }
        let mut factors = [&[][..]; N];
        for t in 0..N {
            factors[t] = &x[t].as_chunks::<STEPS>().0[i];
        }
        for k in 0..STEPS {
            acc = step(isa, at(vectors, k), at(factors, k), acc);
        }
    }
    for k in len / STEPS * STEPS..len {
        acc = step(isa, at(panels, k), at(x, k), acc);
    }
    acc
}

/// Element `k` of each.
#[inline(always)]
fn at<T: Copy, const N: usize>(all: [&[T]; N], k: usize) -> [T; N] {
    map(
        all,
        #[inline(always)]
        |one| one[k],
    )
}

/// `acc[i][t] + vectors[i] * factors[t]`, lane by lane.
#[inline(always)]
pub(crate) fn step<I: Isa, const W: usize, const N: usize>(
    isa: I,
    vectors: [[f32; LANES]; W],
    factors: [f32; N],
    mut acc: [[I::WideFloats; N]; W],
) -> [[I::WideFloats; N]; W] {
    for t in 0..N {
        let factor = isa.wide_splat(factors[t]);
        for i in 0..W {
            acc[i][t] = isa.wide_mul_add(isa.wide_load_f32(&vectors[i]), factor, acc[i][t]);
        }
    }
    acc
}
