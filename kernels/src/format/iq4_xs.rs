use half::f16;

use super::{
    Format, SPAN, Scales, Shared, Signed,
    bits::{integers, nibbles, pairs},
    iq4_nl,
};
use crate::isa::{Half, Isa};

/// 4-bit indices of 16 values: `d * scale * VALUES[q]`, with a 6-bit scale for each 32 weights.
pub struct Iq4Xs;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    scales_h: [u8; 2],
    scales_l: [u8; 4],
    /// The layout of Iq4Nl.
    qs: [[u8; 16]; 8],
}
const _: () = assert!(size_of::<Block>() == 136);

impl Block {
    /// Returns the scales of all groups, plus 32.
    #[inline(always)]
    fn scales(&self) -> [i8; 8] {
        let low = nibbles(u32::from_le_bytes(self.scales_l));
        let high = pairs(u16::from_le_bytes(self.scales_h));
        integers(low | high << 4)
    }
}

impl Format for Iq4Xs {
    const NAME: &'static str = "iq4_xs";
    const BLOCK: usize = 256;
    const TWO_GROUPS: bool = true;
    type Span = Block;
    type Quants = Signed;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        let scales = b.scales().map(|scale| f32::from(scale - 32));
        for (i, o) in out.iter_mut().enumerate() {
            *o = d * scales[i / 32] * iq4_nl::value(&b.qs[i / 32], i % 32);
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        let scales = isa.add(isa.floats_from_i8(&b.scales()), isa.splat_f32(-32.0));
        Scales::whole(isa, isa.mul(isa.splat_f32(isa.f32_from_f16(b.d)), scales))
    }

    #[inline(always)]
    fn two_groups<I: Isa>(isa: I, b: &Block, pair: usize) -> [I::Bytes; 2] {
        iq4_nl::values_of_two(isa, &b.qs.as_chunks().0[pair])
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, _: Shared<I>, group: usize) -> I::Bytes {
        iq4_nl::values(isa, isa.nibbles(&b.qs[group]))
    }
}
