//! What the formats with code books share. A code book holds runs of 8 or 4 weights that are worth
//! an index; the magnitudes' signs are stored apart.

pub(super) mod iq1_s;
pub(super) mod iq2_s;
pub(super) mod iq2_xs;
pub(super) mod iq2_xxs;
pub(super) mod iq3_s;
pub(super) mod iq3_xxs;

use std::array::from_fn;

use super::SPAN;
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

/// Four times 7 sign bits, from bit 0 on, each with an eighth that makes their number even.
#[inline(always)]
pub(super) fn even_signs(sevens: u32) -> u32 {
    let fourteens = sevens & 0x3fff | (sevens & 0xfffc000) << 2;
    let bits = fourteens & 0x007f007f | (fourteens & 0x3f803f80) << 1;
    let mut parity = bits ^ bits >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    bits | (parity & 0x01010101) << 7
}

/// `center + magnitude`, or `center - magnitude` where the sign's bit is set.
#[inline(always)]
pub(super) fn with_signs<I: Isa>(
    isa: I,
    magnitudes: &[u8; 32],
    signs: u32,
    center: u8,
) -> I::Bytes {
    isa.add_signed(isa.splat(center), isa.load(magnitudes), signs)
}

/// What magnitudes with signs stand for: of each group the scales of its halves, the magnitudes and
/// the signs.
pub(super) fn decode(out: &mut [f32; SPAN], group: impl Fn(usize) -> ([f32; 2], [u8; 32], u32)) {
    for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scales, magnitudes, signs) = group(g);
        *out = from_fn(|i| {
            let magnitude = f32::from(magnitudes[i]);
            scales[i / 16] * if signs >> i & 1 == 1 { -magnitude } else { magnitude }
        });
    }
}
