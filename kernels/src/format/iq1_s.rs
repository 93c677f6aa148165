use std::array::from_fn;

use half::f16;

use super::{
    Format, SPAN, Scales, Unsigned,
    codebook::{expand, iq1_s::ENTRIES},
};
use crate::isa::{Half, Isa};

/// 1.6 bits: indices of eight of -1, 0 and 1, and for each 32 an eighth more or less and a 3-bit
/// scale. Quants are in eighths.
pub struct Iq1S;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    qs: [[u8; 4]; 8],
    /// For each group, little-endian: the upper bits of four indices, the scale, and whether there is
    /// an eighth less.
    qh: [[u8; 2]; 8],
}
const _: () = assert!(size_of::<Block>() == 50);

/// The quant that stands for zero in both 1-bit formats.
pub(super) const CENTER: u8 = 9;
/// With an eighth less: -9/8, -1/8, 7/8.
static QUANTS: [[u8; 8]; 2048] = expand(&ENTRIES, &[0, 8, 16]);

/// Eight quants: index `low | high % 8 << 8`, with an eighth more or less.
#[inline(always)]
pub(super) fn eight(low: u8, high: u16, less: bool) -> [u8; 8] {
    let quants = QUANTS[usize::from(low) | usize::from(high & 7) << 8];
    let more = if less { 0 } else { 0x0202020202020202 };
    (u64::from_ne_bytes(quants) | more).to_ne_bytes()
}

impl Block {
    #[inline(always)]
    fn quants(&self, group: usize) -> [u8; 32] {
        let qh = u16::from_le_bytes(self.qh[group]);
        bytemuck::must_cast::<[[u8; 8]; 4], _>(from_fn(
            #[inline(always)]
            |i| eight(self.qs[group][i], qh >> (3 * i), qh >> 15 == 1),
        ))
    }

    #[inline(always)]
    fn scale(&self, group: usize) -> i8 {
        (2 * (self.qh[group][1] >> 4 & 7) + 1) as i8
    }
}

impl Format for Iq1S {
    const NAME: &'static str = "iq1_s";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Unsigned<5>;
    const CENTER: u8 = CENTER;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        for (g, o) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let scale = d * f32::from(b.scale(g));
            *o = b.quants(g).map(|q| scale * ((f32::from(q) - f32::from(CENTER)) * 0.125));
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        Scales::integers(isa, isa.f32_from_f16(b.d) * 0.125, |g| b.scale(g))
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, group: usize) -> I::Bytes {
        isa.load(&b.quants(group))
    }
}
