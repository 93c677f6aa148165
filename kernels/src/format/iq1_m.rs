use std::array::from_fn;

use half::f16;

use super::{
    Format, SPAN, Scales, Split, Unsigned,
    iq1_s::{CENTER, decode, eight},
};
use crate::isa::{Half, Isa};

/// 1.75 bits: indices as in Iq1S, for each 8 an eighth more or less, and for each 16 a 3-bit scale.
pub struct Iq1M;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    qs: [[u8; 4]; 8],
    /// For each two indices, from the low nibble on: three upper bits, and whether there is an eighth
    /// less.
    qh: [[u8; 2]; 8],
    /// Little-endian: four scales, and above them four bits of `d`.
    scales: [[u8; 2]; 4],
}
const _: () = assert!(size_of::<Block>() == 56);

impl Block {
    #[inline(always)]
    fn d(&self) -> Half {
        let [a, b, c, d] = self.scales.map(
            #[inline(always)]
            |[_, high]| high >> 4,
        );
        [a | b << 4, c | d << 4]
    }

    #[inline(always)]
    fn scale(&self, group: usize, half: usize) -> i8 {
        let four = u16::from_le_bytes(self.scales[group / 2]);
        (2 * (four >> (6 * (group % 2) + 3 * half) & 7) + 1) as i8
    }

    #[inline(always)]
    fn quants(&self, group: usize) -> [u8; 32] {
        // Four indices of 16 bits, made together: one by one, the compiler would bring them into a
        // vector and out again.
        let low = u64::from(u32::from_le_bytes(self.qs[group]));
        let low = (low | low << 16) & 0x0000ffff0000ffff;
        let low = (low | low << 8) & 0x00ff00ff00ff00ff;
        let high = u64::from(u16::from_le_bytes(self.qh[group]));
        let high = (high | high << 24) & 0x000000ff000000ff;
        let high = (high | high << 12) & 0x000f000f000f000f;
        let indices = low | high << 8;
        bytemuck::must_cast::<[[u8; 8]; 4], _>(from_fn(
            #[inline(always)]
            |i| eight(indices >> (16 * i)),
        ))
    }

    /// Whether there is an eighth less, for each quant: the highest bits of four nibbles, each eight
    /// times.
    #[inline(always)]
    fn less(&self, group: usize) -> u32 {
        let fours = u32::from(u16::from_le_bytes(self.qh[group])) >> 3 & 0x1111;
        let eights = (fours | fours << 8) & 0x00110011;
        ((eights | eights << 4) & 0x01010101) * 0xff
    }
}

impl Format for Iq1M {
    const NAME: &'static str = "iq1_m";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Split<Unsigned<5>>;
    const CENTER: u8 = CENTER;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d()).to_f32();
        for (g, o) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            *o = decode(|i| d * f32::from(b.scale(g, i / 16)), b.quants(g), b.less(g));
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        Scales::split_integers(isa, isa.f32_from_f16(b.d()) * 0.125, |g, half| b.scale(g, half))
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, group: usize) -> I::Bytes {
        isa.add_signed(isa.load(&b.quants(group)), isa.splat(1), b.less(group))
    }
}
