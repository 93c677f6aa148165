//! What the formats with code books share. A code book holds runs of 8 or 4 weights that are worth
//! an index; the magnitudes' signs are stored apart.

pub(super) mod iq1_s;
pub(super) mod iq2_s;
pub(super) mod iq2_xs;
pub(super) mod iq2_xxs;
pub(super) mod iq3_s;
pub(super) mod iq3_xxs;

use std::array::from_fn;

use super::{SPAN, Shared};
use crate::isa::Isa;

/// The entries of a code book as bytes: each of the `LEN` numbers in an entry chooses a value.
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

/// For a nibble: bit 7 where its number of bits is odd.
const ODD: [u8; 16] = {
    let mut out = [0; 16];
    let mut i = 0u8;
    while i < 16 {
        out[i as usize] = (i.count_ones() as u8) << 7;
        i += 1;
    }
    out
};

/// Eight signs of each byte's lower seven bits: the eighth makes their number even.
#[inline(always)]
pub(super) fn even_signs<I: Isa>(isa: I, sevens: I::Bytes) -> Shared<I> {
    let nibbles = isa.and(isa.xor(sevens, isa.shr::<4>(sevens)), isa.splat(15));
    isa.repeat_halves(isa.or(sevens, isa.lookup(&ODD, nibbles)))
}

/// As [`even_signs`], of one byte.
pub(super) fn even_sign_bits(seven: u8) -> u8 {
    seven | ODD[usize::from((seven ^ seven >> 4) & 15)]
}

/// The signs of one group, as [`with_signs`] takes them, of what [`even_signs`] gave.
#[inline(always)]
pub(super) fn group_signs<I: Isa>(isa: I, signs: Shared<I>, group: usize) -> I::Bytes {
    isa.bit_mask_of(signs[group / 4], group % 4)
}

/// `center + magnitude`, or `center - magnitude` where the sign's byte is 255 and not 0.
#[inline(always)]
pub(super) fn with_signs<I: Isa>(
    isa: I,
    magnitudes: &[u8; 32],
    signs: I::Bytes,
    center: u8,
) -> I::Bytes {
    isa.add_masked(isa.splat(center), isa.load(magnitudes), signs)
}

/// What magnitudes with signs stand for: of each group the scales of its halves, the magnitudes and
/// the signs.
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
