use std::array::from_fn;

use half::f16;

use super::{
    Format, SPAN, Scales, Shared, Split, Unsigned,
    codebook::{decode, expand, iq2_s::ENTRIES, with_signs},
    iq2_xs::scales,
    iq2_xxs::{CENTER, VALUES},
};
use crate::isa::{Half, Isa};

/// 2.5 bits: indices of eight magnitudes, a sign bit for each weight, and a 4-bit scale for each 16
/// weights.
pub struct Iq2S;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    qs: [[u8; 4]; 8],
    signs: [[u8; 4]; 8],
    /// Bits 8 and 9 of a group's four indices.
    qh: [u8; 8],
    /// The layout of Iq2Xs.
    scales: [u8; 8],
}
const _: () = assert!(size_of::<Block>() == 82);

static MAGNITUDES: [[u8; 8]; 1024] = expand(&ENTRIES, &VALUES);

impl Block {
    #[inline(always)]
    fn magnitudes(&self, group: usize) -> [u8; 32] {
        bytemuck::must_cast::<[[u8; 8]; 4], _>(from_fn(
            #[inline(always)]
            |i| {
                let high = usize::from(self.qh[group]) << (8 - 2 * i) & 0x300;
                MAGNITUDES[usize::from(self.qs[group][i]) | high]
            },
        ))
    }
}

impl Format for Iq2S {
    const NAME: &'static str = "iq2_s";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Split<Unsigned<7>>;
    const CENTER: u8 = CENTER;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        let scales = scales(b.scales);
        decode(out, |g| {
            let scales = scales.map(|half| d * f32::from(half[g]) * 0.125);
            (scales, b.magnitudes(g), b.signs[g])
        });
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        Scales::split_integers(isa, isa.f32_from_f16(b.d) * 0.125, scales(b.scales))
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, _: Shared<I>, group: usize) -> I::Bytes {
        let signs = isa.bit_mask(u32::from_le_bytes(b.signs[group]));
        with_signs(isa, &b.magnitudes(group), signs, CENTER)
    }
}
