use half::f16;

use super::{Format, SPAN, Scales, Shared, Unsigned, bits::pairs};
use crate::{
    isa::{Half, Isa},
    quantize::{Encode, ternary},
};

/// 2 bits: `d * (q - 1)`, with one scale for 256 weights.
pub struct Tq2_0;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    /// Group `k` of each half is bits `2k` and `2k + 1` of the half's 32 bytes.
    qs: [[u8; 32]; 2],
    d: Half,
}
const _: () = assert!(size_of::<Block>() == 66);

impl Format for Tq2_0 {
    const NAME: &'static str = "tq2_0";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Unsigned<4>;
    const CENTER: u8 = 1;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        for (i, o) in out.iter_mut().enumerate() {
            let q = b.qs[i / 128][i % 32] >> (2 * (i / 32 % 4)) & 3;
            *o = d * (f32::from(q) - 1.0);
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        Scales::whole(isa, isa.splat_f32(isa.f32_from_f16(b.d)))
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, _: Shared<I>, group: usize) -> I::Bytes {
        let q = isa.load(&b.qs[group / 4]);
        let q = match group % 4 {
            0 => q,
            1 => isa.shr::<2>(q),
            2 => isa.shr::<4>(q),
            _ => isa.shr::<6>(q),
        };
        isa.and(q, isa.splat(3))
    }
}

impl Encode<256> for Tq2_0 {
    type Block = Block;
    #[inline(always)]
    fn encode(weights: &[f32; 256], _: Option<&[f32; 256]>) -> Block {
        let (d, q) = ternary(weights);
        Block { qs: bytemuck::must_cast(pairs(&q)), d: d.to_le_bytes() }
    }
}
