use half::f16;

use super::{
    Format, SPAN, Scales, Split, Unsigned,
    codebook::{decode, even_signs, expand, iq2_xs::ENTRIES, with_signs},
    iq2_xxs::{CENTER, VALUES},
};
use crate::isa::{Half, Isa};

/// 2.3 bits: indices of eight magnitudes, seven signs for them, and a 4-bit scale for each 16.
pub struct Iq2Xs;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    /// Little-endian: an index of nine bits, and the signs above it.
    qs: [[[u8; 2]; 4]; 8],
    /// For each group: the first 16 weights' in the low nibble, the last 16 in the high one.
    scales: [u8; 8],
}
const _: () = assert!(size_of::<Block>() == 74);

static MAGNITUDES: [[u8; 8]; 512] = expand(&ENTRIES, &VALUES);

impl Block {
    #[inline(always)]
    fn magnitudes(&self, group: usize) -> [u8; 32] {
        bytemuck::must_cast(self.qs[group].map(
            #[inline(always)]
            |q| MAGNITUDES[usize::from(u16::from_le_bytes(q) & 511)],
        ))
    }

    #[inline(always)]
    fn signs(&self, group: usize) -> u32 {
        let sevens = self.qs[group].map(
            #[inline(always)]
            |[_, high]| u32::from(high >> 1),
        );
        even_signs(sevens[0] | sevens[1] << 7 | sevens[2] << 14 | sevens[3] << 21)
    }
}

/// Scale `half` of a group, odd: what is to be divided by 8.
#[inline(always)]
pub(super) fn scale(scales: &[u8; 8], group: usize, half: usize) -> i8 {
    (2 * (scales[group] >> (4 * half) & 15) + 1) as i8
}

/// All scales.
#[inline(always)]
pub(super) fn scales<I: Isa>(isa: I, d: Half, scales: &[u8; 8]) -> Scales<I> {
    Scales::split_integers(isa, isa.f32_from_f16(d) * 0.125, |g, half| scale(scales, g, half))
}

impl Format for Iq2Xs {
    const NAME: &'static str = "iq2_xs";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Split<Unsigned<7>>;
    const CENTER: u8 = CENTER;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        decode(out, |g| {
            let scales = [0, 1].map(|half| d * f32::from(scale(&b.scales, g, half)) * 0.125);
            (scales, b.magnitudes(g), b.signs(g))
        });
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        scales(isa, b.d, &b.scales)
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, group: usize) -> I::Bytes {
        with_signs(isa, &b.magnitudes(group), b.signs(group), CENTER)
    }
}
