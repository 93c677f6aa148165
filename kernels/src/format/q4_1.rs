use std::array::from_fn;

use half::f16;

use super::{Format, Offset, SPAN, Scales, Unsigned};
use crate::{
    isa::{Half, Isa},
    quantize::{Encode, LinearFit, inverse},
};

/// 4 bits: `d * q + m`; the first 16 weights in the low nibbles.
pub struct Q4_1;

/// 32 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    m: Half,
    qs: [u8; 16],
}
const _: () = assert!(size_of::<Block>() == 20);

impl Format for Q4_1 {
    const NAME: &'static str = "q4_1";
    const BLOCK: usize = 32;
    const NIBBLES: bool = true;
    type Span = [Block; 8];
    type Quants = Offset<Unsigned<4>>;

    fn decode(span: &[Block; 8], out: &mut [f32; SPAN]) {
        for (b, o) in span.iter().zip(out.as_chunks_mut::<32>().0) {
            let (d, m) = (f16::from_le_bytes(b.d).to_f32(), f16::from_le_bytes(b.m).to_f32());
            for i in 0..16 {
                o[i] = d * f32::from(b.qs[i] & 15) + m;
                o[i + 16] = d * f32::from(b.qs[i] >> 4) + m;
            }
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, span: &[Block; 8]) -> Scales<I> {
        let scale = isa.floats_from_f16(&from_fn(|i| span[i].d));
        let minimum = isa.floats_from_f16(&from_fn(|i| span[i].m));
        Scales { scale: [scale; 2], offset: [isa.mul(minimum, isa.splat_f32(-1.0)); 2] }
    }

    #[inline(always)]
    fn nibbles(span: &[Block; 8], group: usize) -> &[u8; 16] {
        &span[group].qs
    }
}

impl Encode<32> for Q4_1 {
    type Block = Block;
    #[inline(always)]
    fn encode(weights: &[f32; 32], importance: Option<&[f32; 32]>) -> Block {
        let (d, m, q) = match importance {
            Some(_) => {
                let (d, m) = LinearFit::of_block(weights, importance, 15.0);
                (d, m, LinearFit::stored((d, m)).quants(weights, 15.0))
            }
            // Rounded with the scale before it becomes an f16, for ggml's bytes.
            None => {
                let least = weights.iter().copied().fold(f32::INFINITY, f32::min);
                let most = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let d = (most - least) / 15.0;
                let inverse = inverse(d);
                let q = weights.map(|weight| ((weight - least) * inverse + 0.5).clamp(0.0, 15.0));
                (f16::from_f32(d), f16::from_f32(least), q)
            }
        };
        let q = q.map(|quant| quant as u8);
        let qs = from_fn(|i| q[i] | q[i + 16] << 4);
        Block { d: d.to_le_bytes(), m: m.to_le_bytes(), qs }
    }
}
