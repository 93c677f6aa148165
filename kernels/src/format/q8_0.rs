use std::array::from_fn;

use half::f16;

use super::{Format, SPAN, Scales, Shared, Signed};
use crate::{
    activations::quantize_group,
    cache::{CacheFormat, Quantized},
    isa::{Half, Isa},
    quantize::{Encode, inverse, largest, nearest},
};

/// 8 bits: `d * q`, signed.
pub struct Q8_0;

/// 32 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    qs: [u8; 32],
}
const _: () = assert!(size_of::<Block>() == 34);

impl Format for Q8_0 {
    const NAME: &'static str = "q8_0";
    const BLOCK: usize = 32;
    type Span = [Block; 8];
    type Quants = Signed;

    fn decode(span: &[Block; 8], out: &mut [f32; SPAN]) {
        for (b, o) in span.iter().zip(out.as_chunks_mut::<32>().0) {
            let d = f16::from_le_bytes(b.d).to_f32();
            *o = b.qs.map(|q| f32::from(q as i8) * d);
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, span: &[Block; 8]) -> Scales<I> {
        let scale = isa.floats_from_f16(&from_fn(|i| span[i].d));
        Scales::whole(isa, scale)
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, span: &[Block; 8], _: Shared<I>, group: usize) -> I::Bytes {
        isa.load(&span[group].qs)
    }
}

impl Encode<32> for Q8_0 {
    type Block = Block;
    #[inline(always)]
    fn encode(weights: &[f32; 32], _: Option<&[f32; 32]>) -> Block {
        let d = f16::from_f32(largest(weights).abs() / 127.0);
        let inverse = inverse(d.to_f32());
        let qs = weights.map(|weight| nearest(weight * inverse, -127.0, 127.0) as i8 as u8);
        Block { d: d.to_le_bytes(), qs }
    }
}

impl CacheFormat for Q8_0 {
    type Unit = Block;
    #[inline(always)]
    fn store<I: Isa>(isa: I, values: &[f32; 32], out: &mut Block) {
        let (quants, scale) = quantize_group(isa, values);
        *out = Block { d: f16::from_f32(scale).to_le_bytes(), qs: bytemuck::must_cast(quants) };
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, block: &Block, half: usize) -> I::WideFloats {
        let halves: &[[u8; 16]; 2] = bytemuck::must_cast_ref(&block.qs);
        isa.wide_mul(isa.wide_from_i8(&halves[half]), isa.wide_splat_f16(block.d))
    }
}

impl Quantized for Q8_0 {
    #[inline(always)]
    fn quants<I: Isa>(isa: I, block: &Block) -> I::Bytes {
        isa.load(&block.qs)
    }
    #[inline(always)]
    fn scale(block: &Block) -> Half {
        block.d
    }
}
