use std::array::from_fn;

use half::f16;

use super::{Format, SPAN, Scales, Shared, Split, Unsigned};
use crate::isa::{Half, Isa};

/// 3 bits: `d * (scale - 32) * (q - 4)`, with a 6-bit scale for each 16 weights.
pub struct Q3K;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    /// The third bits of the quants: bit `g` of each byte belongs to group `g`.
    hmask: [u8; 32],
    /// The lower two bits: group `4n + j` has bits `2j` and `2j + 1` of bytes `32n ..`.
    qs: [u8; 64],
    scales: [u8; 12],
    d: Half,
}
const _: () = assert!(size_of::<Block>() == 110);

impl Block {
    /// Returns the scale of weights `16 i ..`. Its four low bits are in the first 8 bytes, its two
    /// high bits in the last 4.
    #[inline(always)]
    fn scale(&self, i: usize) -> i8 {
        let low = self.scales[i % 8] >> (4 * (i / 8)) & 15;
        let high = self.scales[8 + i % 4] >> (2 * (i / 4)) & 3;
        (low | high << 4) as i8 - 32
    }
}

impl Format for Q3K {
    const NAME: &'static str = "q3_k";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Split<Unsigned<4>>;
    const CENTER: u8 = 4;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        for (i, o) in out.iter_mut().enumerate() {
            let low = b.qs[32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3;
            let high = b.hmask[i % 32] >> (i / 32) & 1;
            *o = d * f32::from(b.scale(i / 16)) * (f32::from(low | high << 2) - 4.0);
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        let scales = [from_fn(|g| b.scale(2 * g)), from_fn(|g| b.scale(2 * g + 1))];
        Scales::split_integers(isa, isa.f32_from_f16(b.d), scales)
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, _: Shared<I>, group: usize) -> I::Bytes {
        let (low, high) = (isa.load(&b.qs.as_chunks::<32>().0[group / 4]), isa.load(&b.hmask));
        let low = match group % 4 {
            0 => low,
            1 => isa.shr::<2>(low),
            2 => isa.shr::<4>(low),
            _ => isa.shr::<6>(low),
        };
        let high = match group {
            0 => isa.shl::<2>(high),
            1 => isa.shl::<1>(high),
            2 => high,
            3 => isa.shr::<1>(high),
            4 => isa.shr::<2>(high),
            5 => isa.shr::<3>(high),
            6 => isa.shr::<4>(high),
            _ => isa.shr::<5>(high),
        };
        isa.or(isa.and(low, isa.splat(3)), isa.and(high, isa.splat(4)))
    }
}
