//! Shared code of formats with code books. A code book is a table of vectors of 8 or 4 weights (or
//! magnitudes, with separate signs). Blocks store indices of its entries.

pub(super) mod iq1_s;
pub(super) mod iq2_s;
pub(super) mod iq2_xs;
pub(super) mod iq2_xxs;
pub(super) mod iq3_s;
pub(super) mod iq3_xxs;

use std::array::from_fn;

use super::{SPAN, Shared};
use crate::isa::Isa;

/// Returns the entries of a code book as bytes: each of the `LEN` fields of an entry is an index of
/// `values`.
pub(super) const fn expand<const LEN: usize, const N: usize>(
    entries: &[u16; N],
    values: &[u8],
) -> [[u8; LEN]; N] {
    let bits = 16 / LEN;
    let mut out = [[0; LEN]; N];
    let mut i = 0;
    while i < N {
        let mut j = 0;
        while j < LEN {
            out[i][j] = values[entries[i] as usize >> (bits * j) & ((1 << bits) - 1)];
            j += 1;
        }
        i += 1;
    }
    out
}

/// For each nibble, 128 if it has an odd number of one bits, otherwise 0.
const ODD: [u8; 16] = {
    let mut out = [0; 16];
    let mut i = 0u8;
    while i < 16 {
        out[i as usize] = (i.count_ones() as u8) << 7;
        i += 1;
    }
    out
};

/// Expands each byte's lower seven bits to eight signs, with an eighth bit such that the number of
/// one bits is even.
#[inline(always)]
pub(super) fn even_signs<I: Isa>(isa: I, sevens: I::Bytes) -> Shared<I> {
    let nibbles = isa.and(isa.xor(sevens, isa.shr::<4>(sevens)), isa.splat(15));
    isa.repeat_halves(isa.or(sevens, isa.lookup(&ODD, nibbles)))
}

/// Expands seven bits to eight signs as [`even_signs`] does, for one byte.
pub(super) fn even_sign_bits(seven: u8) -> u8 {
    seven | ODD[usize::from((seven ^ seven >> 4) & 15)]
}

/// Returns the signs of one group in the form for [`with_signs`], from the result of
/// [`even_signs`].
#[inline(always)]
pub(super) fn group_signs<I: Isa>(isa: I, signs: Shared<I>, group: usize) -> I::Bytes {
    isa.bit_mask_of(signs[group / 4], group % 4)
}

/// Returns `center + magnitude` if the byte of `signs` is 0, and `center - magnitude` if it is 255.
#[inline(always)]
pub(super) fn with_signs<I: Isa>(
    isa: I,
    magnitudes: &[u8; 32],
    signs: I::Bytes,
    center: u8,
) -> I::Bytes {
    isa.add_masked(isa.splat(center), isa.load(magnitudes), signs)
}

/// Writes the weights of magnitudes with signs. `group` returns for each group the scales of its
/// halves, its magnitudes and its signs.
pub(super) fn decode(
    out: &mut [f32; SPAN],
    group: impl Fn(usize) -> ([f32; 2], [u8; 32], [u8; 4]),
) {
    for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scales, magnitudes, signs) = group(g);
        *out = from_fn(|i| {
            let (magnitude, negative) =
                (f32::from(magnitudes[i]), signs[i / 8] >> (i % 8) & 1 == 1);
            scales[i / 16] * if negative { -magnitude } else { magnitude }
        });
    }
}
