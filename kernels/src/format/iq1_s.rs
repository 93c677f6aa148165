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
/// -1, 0 and 1, neither an eighth more nor less.
static QUANTS: [[u8; 8]; 2048] = expand(&ENTRIES, &[CENTER - 8, CENTER, CENTER + 8]);

/// Eight quants, by the low 11 bits of `index`.
#[inline(always)]
pub(super) fn eight(index: u64) -> [u8; 8] {
    QUANTS[index as usize & 0x7ff]
}

/// What 32 quants mean, each with an eighth less where its bit is set, and else with one more.
pub(super) fn decode(scale: impl Fn(usize) -> f32, quants: [u8; 32], less: u32) -> [f32; 32] {
    from_fn(|i| {
        let eighth = if less >> i & 1 == 1 { -1.0 } else { 1.0 };
        scale(i) * ((f32::from(quants[i]) - f32::from(CENTER) + eighth) * 0.125)
    })
}

impl Block {
    #[inline(always)]
    fn quants(&self, group: usize) -> [u8; 32] {
        let qh = u64::from(u16::from_le_bytes(self.qh[group]));
        bytemuck::must_cast::<[[u8; 8]; 4], _>(from_fn(
            #[inline(always)]
            |i| eight(u64::from(self.qs[group][i]) | (qh >> (3 * i) & 7) << 8),
        ))
    }

    /// Whether there is an eighth less, for each quant.
    #[inline(always)]
    fn less(&self, group: usize) -> u32 {
        0u32.wrapping_sub(u32::from(self.qh[group][1] >> 7))
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
    /// The compiler would make the indices of all groups in vectors, and take them out again.
    const UNROLLED: bool = false;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        for (g, o) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let scale = d * f32::from(b.scale(g));
            *o = decode(|_| scale, b.quants(g), b.less(g));
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        Scales::integers(isa, isa.f32_from_f16(b.d) * 0.125, |g| b.scale(g))
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, group: usize) -> I::Bytes {
        isa.add_signed(isa.load(&b.quants(group)), isa.splat(1), b.less(group))
    }
}
