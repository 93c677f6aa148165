use std::array::from_fn;

use half::f16;

use super::{Format, SPAN, Scales, Unsigned};
use crate::{
    cache::{CacheFormat, Quantized},
    isa::{Half, Isa},
    quantize::{Encode, nearest_half, quick_half},
};

/// 4 bits: `d * (q - 8)`; the first 16 weights in the low nibbles.
pub struct Q4_0;

/// 32 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    qs: [u8; 16],
}
const _: () = assert!(size_of::<Block>() == 18);

impl Format for Q4_0 {
    const NAME: &'static str = "q4_0";
    const BLOCK: usize = 32;
    const NIBBLES: bool = true;
    type Span = [Block; 8];
    type Quants = Unsigned<4>;
    const CENTER: u8 = 8;

    fn decode(span: &[Block; 8], out: &mut [f32; SPAN]) {
        for (b, o) in span.iter().zip(out.as_chunks_mut::<32>().0) {
            let d = f16::from_le_bytes(b.d).to_f32();
            for i in 0..16 {
                o[i] = d * (f32::from(b.qs[i] & 15) - 8.0);
                o[i + 16] = d * (f32::from(b.qs[i] >> 4) - 8.0);
            }
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, span: &[Block; 8]) -> Scales<I> {
        let scale = isa.floats_from_f16(&from_fn(|i| span[i].d));
        Scales::whole(isa, scale)
    }

    #[inline(always)]
    fn nibbles(span: &[Block; 8], group: usize) -> &[u8; 16] {
        &span[group].qs
    }
}

impl Encode<32> for Q4_0 {
    type Block = Block;
    #[inline(always)]
    fn encode(weights: &[f32; 32], importance: Option<&[f32; 32]>) -> Block {
        let (d, quants) = nearest_half(weights, importance, 8.0);
        let q = quants.map(|quant| (quant + 8.0) as u8);
        Block { d: d.to_le_bytes(), qs: from_fn(|i| q[i] | q[i + 16] << 4) }
    }
}

impl CacheFormat for Q4_0 {
    const MIXED: bool = true;
    type Unit = Block;
    #[inline(always)]
    fn store<I: Isa>(_: I, values: &[f32; 32], out: &mut Block) {
        let (d, q) = quick_half(values, 8.0);
        *out = Block { d: d.to_le_bytes(), qs: from_fn(|i| q[i] | q[i + 16] << 4) };
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, block: &Block, half: usize) -> I::WideFloats {
        let quants = match half {
            0 => isa.wide_from_nibbles::<0>(&block.qs),
            _ => isa.wide_from_nibbles::<4>(&block.qs),
        };
        isa.wide_mul(quants, isa.wide_splat_f16(block.d))
    }
}

impl Quantized for Q4_0 {
    #[inline(always)]
    fn quants<I: Isa>(isa: I, block: &Block) -> I::Bytes {
        isa.sub(isa.nibbles(&block.qs), isa.splat(Self::CENTER))
    }
    #[inline(always)]
    fn scale(block: &Block) -> Half {
        block.d
    }
}
