use std::array::from_fn;

use half::f16;

use super::{Format, SPAN, Scales, Unsigned};
use crate::isa::{Half, Isa};

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
    fn quants<I: Isa>(isa: I, span: &[Block; 8], group: usize) -> I::Bytes {
        isa.nibbles(&span[group].qs)
    }
}
