use std::array::from_fn;

use half::f16;

use super::{
    Format, Offset, SPAN, Scales, Shared, Unsigned,
    q5_0::{packed, quant, quants, quants_of_two},
};
use crate::{
    isa::{Half, Isa},
    quantize::{Encode, LinearFit},
};

/// 5 bits: `d * q + m`; the fifth bits in a separate word for 32 weights.
pub struct Q5_1;

/// 32 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    m: Half,
    qh: [u8; 4],
    qs: [u8; 16],
}
const _: () = assert!(size_of::<Block>() == 24);

impl Format for Q5_1 {
    const NAME: &'static str = "q5_1";
    const BLOCK: usize = 32;
    const TWO_GROUPS: bool = true;
    type Span = [Block; 8];
    type Quants = Offset<Unsigned<5>>;

    fn decode(span: &[Block; 8], out: &mut [f32; SPAN]) {
        for (b, o) in span.iter().zip(out.as_chunks_mut::<32>().0) {
            let (d, m) = (f16::from_le_bytes(b.d).to_f32(), f16::from_le_bytes(b.m).to_f32());
            *o = from_fn(|i| d * quant(&b.qs, b.qh, i) + m);
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, span: &[Block; 8]) -> Scales<I> {
        let scale = isa.floats_from_f16(&from_fn(|i| span[i].d));
        let minimum = isa.floats_from_f16(&from_fn(|i| span[i].m));
        Scales { scale: [scale; 2], offset: [isa.mul(minimum, isa.splat_f32(-1.0)); 2] }
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

impl Encode<32> for Q5_1 {
    type Block = Block;
    #[inline(always)]
    fn encode(weights: &[f32; 32], importance: Option<&[f32; 32]>) -> Block {
        let (d, m) = LinearFit::of_block(weights, importance, 31.0);
        let quants = LinearFit::stored((d, m)).quants(weights, 31.0);
        let (qh, qs) = packed(&quants.map(|quant| quant as u8));
        Block { d: d.to_le_bytes(), m: m.to_le_bytes(), qh, qs }
    }
}
