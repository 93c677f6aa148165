use std::array::from_fn;

use half::f16;

use super::{
    Format, SPAN, Scales, Unsigned,
    bits::{bytes, integers, odd},
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

/// 32 quants, by their four indices of 11 bits, each in 16.
#[inline(always)]
pub(super) fn quants(indices: u64) -> [u8; 32] {
    bytemuck::must_cast([0, 16, 32, 48].map(
        #[inline(always)]
        |from| QUANTS[(indices >> from) as usize & 0x7ff],
    ))
}

/// What 32 quants mean, each with an eighth less or more.
pub(super) fn decode(
    scale: impl Fn(usize) -> f32,
    quants: [u8; 32],
    less: impl Fn(usize) -> bool,
) -> [f32; 32] {
    from_fn(|i| {
        let eighth = if less(i) { -1.0 } else { 1.0 };
        scale(i) * ((f32::from(quants[i]) - f32::from(CENTER) + eighth) * 0.125)
    })
}

impl Block {
    #[inline(always)]
    fn quants(&self, group: usize) -> [u8; 32] {
        // Brings bits 3 i .. to bits 16 i + 8 ..
        const SPREAD: u64 = 1 << 8 | 1 << 21 | 1 << 34 | 1 << 47;
        let high = u64::from(u16::from_le_bytes(self.qh[group]) & 0xfff);
        let high = (high * SPREAD) & 0x0700070007000700;
        quants(bytes(u32::from_le_bytes(self.qs[group])) | high)
    }

    /// Whether there is an eighth less.
    #[inline(always)]
    fn less(&self, group: usize) -> bool {
        self.qh[group][1] > 127
    }

    #[inline(always)]
    fn scales(&self) -> [i8; 8] {
        let fours: [[u8; 8]; 2] = bytemuck::must_cast(self.qh);
        let fours = fours.map(
            #[inline(always)]
            |four| {
                let scales = u64::from_le_bytes(four) >> 12 & 0x0007000700070007;
                let scales = (scales | scales >> 8) & 0x0000ffff0000ffff;
                (scales | scales >> 16) & 0xffffffff
            },
        );
        integers(odd(fours[0] | fours[1] << 32))
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
        let scales = b.scales();
        for (g, o) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let scale = d * f32::from(scales[g]);
            *o = decode(|_| scale, b.quants(g), |_| b.less(g));
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        Scales::integers(isa, isa.f32_from_f16(b.d) * 0.125, b.scales())
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, group: usize) -> I::Bytes {
        // An eighth more is -1 less.
        isa.sub(isa.load(&b.quants(group)), isa.splat(if b.less(group) { 1 } else { 255 }))
    }
}
