//! The register tile of float products: 16 lanes by a few tokens. Products with floating-point
//! weights, scores of attention and weighted values use it.

use crate::{
    array::map,
    isa::{Isa, LANES},
};

/// A computation that [`tiles`] splits into tiles of a few tokens.
pub(crate) trait Tile {
    /// Maximum tokens of a tile: 8, 6, 4, 3, 2 or 1. Larger tiles are not compiled.
    const LARGEST: usize;
    /// Computes the tile of tokens `first .. first + N`.
    fn run<const N: usize>(&mut self, first: usize);
}

/// Runs `tile` for all of `tokens` tokens, in tiles of about the same size.
#[inline(always)]
pub(crate) fn tiles<T: Tile>(tokens: usize, tile: &mut T) {
    tiles_up_to(T::LARGEST, tokens, tile);
}

/// Runs `tile` for all of `tokens` tokens, in tiles of about the same size and of at most `largest`
/// tokens.
#[inline(always)]
pub(crate) fn tiles_up_to<T: Tile>(largest: usize, tokens: usize, tile: &mut T) {
    let mut first = 0;
    while first < tokens {
        let left = tokens - first;
        let even = left.div_ceil(left.div_ceil(largest));
        let fits = |n: &usize| *n <= largest && *n <= left;
        let mut sizes = [1, 2, 3, 4, 6, 8].into_iter().filter(fits);
        let size = sizes.clone().find(|&n| n >= even).or(sizes.next_back());
        match size {
            Some(8) => fitting::<8, T>(tile, first),
            Some(6) => fitting::<6, T>(tile, first),
            Some(4) => fitting::<4, T>(tile, first),
            Some(3) => fitting::<3, T>(tile, first),
            Some(2) => fitting::<2, T>(tile, first),
            _ => fitting::<1, T>(tile, first),
        }
        first += size.unwrap_or(1);
    }
}

/// Runs a tile of `N` tokens. The condition is a constant, so that no larger tile is compiled.
#[inline(always)]
fn fitting<const N: usize, T: Tile>(tile: &mut T, first: usize) {
    if const { N <= T::LARGEST } {
        tile.run::<N>(first);
    }
}

/// Computes `acc[t] + sum over k of panel[k] * x[t][k]` in each lane, in the order of `k`.
#[inline(always)]
pub(crate) fn float_tile<I: Isa, const N: usize>(
    isa: I,
    panel: &[[f32; LANES]],
    x: [&[f32]; N],
    acc: [I::WideFloats; N],
) -> [I::WideFloats; N] {
    wide_float_tile(isa, [panel], x, [acc])[0]
}

/// Computes `acc[w][t] + sum over k of panels[w][k] * x[t][k]` in each lane, in the order of `k`,
/// for panels of equal length.
#[inline(always)]
pub(crate) fn wide_float_tile<I: Isa, const W: usize, const N: usize>(
    isa: I,
    panels: [&[[f32; LANES]]; W],
    x: [&[f32]; N],
    mut acc: [[I::WideFloats; N]; W],
) -> [[I::WideFloats; N]; W] {
    const STEPS: usize = 16;
    let len = panels[0].len();
    // Check the bounds once for several steps.
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
            acc = step(isa, element(vectors, k), element(factors, k), acc);
        }
    }
    for k in len / STEPS * STEPS..len {
        acc = step(isa, element(panels, k), element(x, k), acc);
    }
    acc
}

/// Returns element `k` of each slice.
#[inline(always)]
fn element<T: Copy, const N: usize>(all: [&[T]; N], k: usize) -> [T; N] {
    map(
        all,
        #[inline(always)]
        |one| one[k],
    )
}

/// Computes `acc[i][t] + vectors[i] * factors[t]` in each lane.
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
