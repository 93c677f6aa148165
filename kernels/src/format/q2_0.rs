use std::array::from_fn;

use half::f16;

use super::{Format, SPAN, Scales, Shared, Unsigned};
use crate::{
    isa::{Half, Isa},
    quantize::{Encode, ternary},
};

/// 2 bits: `d * (q - 1)`, with one scale for 64 weights.
pub struct Q2_0;

/// 64 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    /// Four weights in each byte, the first in the lowest bits.
    qs: [u8; 16],
}
const _: () = assert!(size_of::<Block>() == 18);

/// Returns the quants of four bytes from each of eight places.
#[inline(always)]
fn unpack<I: Isa>(isa: I, qs: &[u8; 16], bytes: [u8; 8]) -> I::Bytes {
    // Each byte is repeated four times, for its four quants.
    let places: [[u8; 4]; 8] = bytes.map(|byte| [byte; 4]);
    let bytes = isa.lookup(qs, isa.load(bytemuck::must_cast_ref(&places)));
    // Of each 16 bits, the nibble with their two quants is moved to bit 4 and to bit 10.
    let nibbles = isa.and(bytes, isa.splat32(0x00f0_000f));
    let moved = isa.mul16(nibbles, isa.splat32(0x0041_0410));
    isa.and(isa.shr16::<4>(moved), isa.splat(3))
}

impl Format for Q2_0 {
    const NAME: &'static str = "q2_0";
    const BLOCK: usize = 64;
    const TWO_GROUPS: bool = true;
    type Span = [Block; 4];
    type Quants = Unsigned<4>;
    const CENTER: u8 = 1;

    fn decode(span: &[Block; 4], out: &mut [f32; SPAN]) {
        for (b, o) in span.iter().zip(out.as_chunks_mut::<64>().0) {
            let d = f16::from_le_bytes(b.d).to_f32();
            *o = from_fn(|i| (f32::from(b.qs[i / 4] >> (2 * (i % 4)) & 3) - 1.0) * d);
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, span: &[Block; 4]) -> Scales<I> {
        Scales::whole(isa, isa.floats_from_f16(&from_fn(|group| span[group / 2].d)))
    }

    #[inline(always)]
    fn two_groups<I: Isa>(isa: I, span: &[Block; 4], pair: usize) -> [I::Bytes; 2] {
        let qs = &span[pair].qs;
        [unpack(isa, qs, [0, 1, 2, 3, 8, 9, 10, 11]), unpack(isa, qs, [4, 5, 6, 7, 12, 13, 14, 15])]
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, span: &[Block; 4], _: Shared<I>, group: usize) -> I::Bytes {
        let first = 8 * (group % 2) as u8;
        unpack(isa, &span[group / 2].qs, from_fn(|i| first + i as u8))
    }
}

impl Encode<64> for Q2_0 {
    type Block = Block;
    #[inline(always)]
    fn encode(weights: &[f32; 64], _: Option<&[f32; 64]>) -> Block {
        // No weight is rounded to 2, which only other quantizers write.
        let (d, q) = ternary(weights);
        let byte = |i| q[i] | q[i + 1] << 2 | q[i + 2] << 4 | q[i + 3] << 6;
        Block { d: d.to_le_bytes(), qs: from_fn(|i| byte(4 * i)) }
    }
}
