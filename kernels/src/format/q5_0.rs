use std::array::from_fn;

use half::f16;

use super::{Format, SPAN, Scales, Shared, Unsigned};
use crate::{
    cache::{CacheFormat, Quantized},
    isa::{Half, Isa},
    quantize::{Encode, nearest_half, quick_half},
};

/// 5 bits: `d * (q - 16)`; the fifth bits in a separate word for 32 weights.
pub struct Q5_0;

/// 32 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    qh: [u8; 4],
    qs: [u8; 16],
}
const _: () = assert!(size_of::<Block>() == 22);

/// Returns quant `i` of a block of Q5_0 or Q5_1.
pub(super) fn quant(qs: &[u8; 16], qh: [u8; 4], i: usize) -> f32 {
    let low = if i < 16 { qs[i] & 15 } else { qs[i - 16] >> 4 };
    let high = (u32::from_le_bytes(qh) >> i & 1) as u8;
    f32::from(low | high << 4)
}

/// Returns all quants of a block of Q5_0 or Q5_1.
#[inline(always)]
pub(super) fn quants<I: Isa>(isa: I, qs: &[u8; 16], qh: [u8; 4]) -> I::Bytes {
    isa.or(isa.nibbles(qs), fifth_bits(isa, qh))
}

#[inline(always)]
fn fifth_bits<I: Isa>(isa: I, qh: [u8; 4]) -> I::Bytes {
    isa.and(isa.bit_mask(u32::from_le_bytes(qh)), isa.splat(16))
}

/// Returns the first 16 quants of two blocks, and the last 16 quants of both.
#[inline(always)]
pub(super) fn quants_of_two<I: Isa>(isa: I, [a, b]: [(&[u8; 16], [u8; 4]); 2]) -> [I::Bytes; 2] {
    let [low, high] = isa.nibbles_of_two(a.0, b.0);
    let (a, b) = (a.1, b.1);
    [
        isa.or(low, fifth_bits(isa, [a[0], a[1], b[0], b[1]])),
        isa.or(high, fifth_bits(isa, [a[2], a[3], b[2], b[3]])),
    ]
}

impl Format for Q5_0 {
    const NAME: &'static str = "q5_0";
    const BLOCK: usize = 32;
    const TWO_GROUPS: bool = true;
    type Span = [Block; 8];
    type Quants = Unsigned<5>;
    const CENTER: u8 = 16;

    fn decode(span: &[Block; 8], out: &mut [f32; SPAN]) {
        for (b, o) in span.iter().zip(out.as_chunks_mut::<32>().0) {
            let d = f16::from_le_bytes(b.d).to_f32();
            *o = from_fn(|i| d * (quant(&b.qs, b.qh, i) - 16.0));
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, span: &[Block; 8]) -> Scales<I> {
        let scale = isa.floats_from_f16(&from_fn(|i| span[i].d));
        Scales::whole(isa, scale)
    }

    #[inline(always)]
    fn two_groups<I: Isa>(isa: I, span: &[Block; 8], pair: usize) -> [I::Bytes; 2] {
        let [a, b] = &span.as_chunks().0[pair];
        quants_of_two(isa, [(&a.qs, a.qh), (&b.qs, b.qh)])
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, span: &[Block; 8], _: Shared<I>, group: usize) -> I::Bytes {
        quants(isa, &span[group].qs, span[group].qh)
    }
}

/// Packs the quants of a block of Q5_0 or Q5_1: their fifth bits, and their nibbles.
#[inline(always)]
pub(super) fn packed(q: &[u8; 32]) -> ([u8; 4], [u8; 16]) {
    let high = q.iter().enumerate().fold(0, |high, (i, q)| high | u32::from(q >> 4) << i);
    (high.to_le_bytes(), from_fn(|i| q[i] & 15 | q[i + 16] << 4))
}

impl Encode<32> for Q5_0 {
    type Block = Block;
    #[inline(always)]
    fn encode(weights: &[f32; 32], importance: Option<&[f32; 32]>) -> Block {
        let (d, quants) = nearest_half(weights, importance, 16.0);
        let (qh, qs) = packed(&quants.map(|quant| (quant + 16.0) as u8));
        Block { d: d.to_le_bytes(), qh, qs }
    }
}

impl CacheFormat for Q5_0 {
    const MIXED: bool = true;
    type Unit = Block;
    #[inline(always)]
    fn store<I: Isa>(_: I, values: &[f32; 32], out: &mut Block) {
        let (d, q) = quick_half(values, 16.0);
        let (qh, qs) = packed(&q);
        *out = Block { d: d.to_le_bytes(), qh, qs };
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, block: &Block, half: usize) -> I::WideFloats {
        let quants = isa.to_bytes(<Self as Quantized>::quants(isa, block));
        let quants = isa.wide_from_i8(&quants.as_chunks().0[half]);
        isa.wide_mul(quants, isa.wide_splat_f16(block.d))
    }
}

impl Quantized for Q5_0 {
    #[inline(always)]
    fn quants<I: Isa>(isa: I, block: &Block) -> I::Bytes {
        isa.sub(quants(isa, &block.qs, block.qh), isa.splat(Self::CENTER))
    }
    #[inline(always)]
    fn scale(block: &Block) -> Half {
        block.d
    }
}
