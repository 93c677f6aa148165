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

/// Seven sign bits as bytes, 255 where one is set, and an eighth that makes their number even.
static EVEN_SIGNS: [[u8; 8]; 128] = {
    let mut out = [[0; 8]; 128];
    let mut seven = 0u32;
    while seven < 128 {
        let eight = seven | (seven.count_ones() % 2) << 7;
        let mut i = 0;
        while i < 8 {
            out[seven as usize][i] = if eight >> i & 1 == 1 { 255 } else { 0 };
            i += 1;
        }
        seven += 1;
    }
    out
};

/// The signs of 32 weights: of each eight by the low 7 bits of `sevens`.
#[inline(always)]
pub(super) fn even_signs(sevens: [u64; 4]) -> [u8; 32] {
    bytemuck::must_cast(sevens.map(
        #[inline(always)]
        |seven| EVEN_SIGNS[seven as usize & 127],
    ))
}

/// As [`even_signs`], of 28 bits from bit 0 on.
#[inline(always)]
pub(super) fn even_signs_of(bits: [u8; 4]) -> [u8; 32] {
    let bits = u64::from(u32::from_le_bytes(bits));
    even_signs([bits, bits >> 7, bits >> 14, bits >> 21])
}

/// `center + magnitude`, or `center - magnitude` where the sign's byte is 255 and not 0.
#[inline(always)]
pub(super) fn with_even_signs<I: Isa>(
    isa: I,
    magnitudes: &[u8; 32],
    signs: &[u8; 32],
    center: u8,
) -> I::Bytes {
    isa.add_masked(isa.splat(center), isa.load(magnitudes), isa.load(signs))
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

/// Bits as bytes, 255 where one is set.
pub(super) fn masks(bits: u32) -> [u8; 32] {
    from_fn(|i| if bits >> i & 1 == 1 { 255 } else { 0 })
}

/// What magnitudes with signs stand for: of each group the scales of its halves, the magnitudes and
/// the signs, as [`with_even_signs`] has them.
pub(super) fn decode(
    out: &mut [f32; SPAN],
    group: impl Fn(usize) -> ([f32; 2], [u8; 32], [u8; 32]),
) {
    for (g, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (scales, magnitudes, signs) = group(g);
        *out = from_fn(|i| {
            let magnitude = f32::from(magnitudes[i]);
            scales[i / 16] * if signs[i] > 0 { -magnitude } else { magnitude }
        });
    }
}
