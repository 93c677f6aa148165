use std::array::from_fn;

use half::f16;

use super::{Format, SPAN, Scales, Shared, Unsigned};
use crate::{
    array::map,
    isa::{Half, Isa},
    quantize::Encode,
};

/// 1 bit: `d` or `-d`, with one scale for 128 weights. The quants are 2 and 0.
pub struct Q1_0;

/// 128 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    /// Set for `d`, the lowest bit of a byte first.
    bits: [u8; 16],
}
const _: () = assert!(size_of::<Block>() == 18);

/// Swaps the last half of each even group with the first half of the next group.
const HALVES_OF_TWO: [u8; 16] = [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15];

/// Returns the quants of 32 weights; both halves of `bits` hold the same 16 bytes.
#[inline(always)]
fn unpack<I: Isa>(isa: I, bits: I::Bytes, word: usize) -> I::Bytes {
    isa.and(isa.bit_mask_of(bits, word), isa.splat(2))
}

impl Format for Q1_0 {
    const NAME: &'static str = "q1_0";
    const BLOCK: usize = 128;
    const TWO_GROUPS: bool = true;
    type Span = [Block; 2];
    type Quants = Unsigned<4>;
    const CENTER: u8 = 1;

    fn decode(span: &[Block; 2], out: &mut [f32; SPAN]) {
        for (b, o) in span.iter().zip(out.as_chunks_mut::<128>().0) {
            let d = f16::from_le_bytes(b.d).to_f32();
            *o = from_fn(|i| if b.bits[i / 8] >> (i % 8) & 1 == 1 { d } else { -d });
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, span: &[Block; 2]) -> Scales<I> {
        Scales::whole(isa, isa.floats_from_f16(&from_fn(|group| span[group / 4].d)))
    }

    #[inline(always)]
    fn two_groups<I: Isa>(isa: I, span: &[Block; 2], pair: usize) -> [I::Bytes; 2] {
        let order = isa.join(&HALVES_OF_TWO, &HALVES_OF_TWO);
        let bits = isa.lookup(&span[pair / 2].bits, order);
        map(
            [0, 1],
            #[inline(always)]
            |half| unpack(isa, bits, 2 * (pair % 2) + half),
        )
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, span: &[Block; 2], _: Shared<I>, group: usize) -> I::Bytes {
        let bits = &span[group / 4].bits;
        unpack(isa, isa.join(bits, bits), group % 4)
    }
}

impl Encode<128> for Q1_0 {
    type Block = Block;
    #[inline(always)]
    fn encode(weights: &[f32; 128], _: Option<&[f32; 128]>) -> Block {
        // In the order of ggml's sum, for the same bits.
        let sum: f32 = weights.iter().map(|weight| weight.abs()).sum();
        let bit = |i: usize| u8::from(weights[i] >= 0.0) << (i % 8);
        let bits = from_fn(|byte| (8 * byte..8 * byte + 8).fold(0, |bits, i| bits | bit(i)));
        Block { d: f16::from_f32(sum / 128.0).to_le_bytes(), bits }
    }
}
