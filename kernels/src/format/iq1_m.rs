use std::array::from_fn;

use half::f16;

use super::{
    Format, SPAN, Scales, Split, Unsigned,
    iq1_s::{CENTER, eight},
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
        let qh = u16::from_le_bytes(self.qh[group]);
        bytemuck::must_cast::<[[u8; 8]; 4], _>(from_fn(
            #[inline(always)]
            |i| eight(self.qs[group][i], qh >> (4 * i), qh >> (4 * i + 3) & 1 == 1),
        ))
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
        for (i, o) in out.iter_mut().enumerate() {
            let scale = d * f32::from(b.scale(i / 32, i / 16 % 2));
            let q = b.quants(i / 32)[i % 32];
            *o = scale * ((f32::from(q) - f32::from(CENTER)) * 0.125);
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        Scales::split_integers(isa, isa.f32_from_f16(b.d()) * 0.125, |g, half| b.scale(g, half))
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, group: usize) -> I::Bytes {
        isa.load(&b.quants(group))
    }
}
