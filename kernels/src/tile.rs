//! The register tile of float products: 16 lanes by a few tokens. Weights, scores of attention and
//! weighted values all go through it.

use std::array::from_fn;

use crate::isa::{Isa, LANES};

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
    mut acc: [I::WideFloats; N],
) -> [I::WideFloats; N] {
    let x: [&[f32]; N] = from_fn(
        #[inline(always)]
        |t| &x[t][..panel.len()],
    );
    for (k, lanes) in panel.iter().enumerate() {
        let w = isa.wide_load_f32(lanes);
        for t in 0..N {
            acc[t] = isa.wide_mul_add(w, isa.wide_splat(x[t][k]), acc[t]);
        }
    }
    acc
}
