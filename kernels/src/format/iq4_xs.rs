use std::array::from_fn;

use bytemuck::must_cast_ref;
use half::f16;

use super::{Format, SPAN, Scales, Signed, iq4_nl};
use crate::{
    isa::{Half, Isa},
    quantize::{Encode, Multipliers, ScaledBlock},
};

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
    /// Returns the scale of a group, plus 32.
    fn scale(&self, group: usize) -> u8 {
        let low = self.scales_l[group / 2] >> (4 * (group % 2)) & 15;
        let high = self.scales_h[group / 4] >> (2 * (group % 4)) & 3;
        low | high << 4
    }

    /// Returns the first 16 bytes, with the scales.
    #[inline(always)]
    fn head(&self) -> &[u8; 16] {
        let eights: &[[u8; 8]; 17] = must_cast_ref(self);
        must_cast_ref(&eights.as_chunks::<2>().0[0])
    }
}

/// For each group, the bytes of [`Block::head`] with its upper two bits and with its lower four, as
/// the lower halves of 16-bit elements.
#[rustfmt::skip]
static SCALE_BYTES: [[u8; 4]; 8] = [
    [2, 0, 4, 0], [2, 0, 4, 0], [2, 0, 5, 0], [2, 0, 5, 0],
    [3, 0, 6, 0], [3, 0, 6, 0], [3, 0, 7, 0], [3, 0, 7, 0],
];

/// The factors that move these bits to the top of their elements, and the bits above them out.
/// They are powers of two from 256 on, so their lower bytes are 0.
#[rustfmt::skip]
static SCALE_FACTORS: [[u8; 4]; 8] = [
    [0, 64, 0, 16], [0, 16, 0, 1], [0, 4, 0, 16], [0, 1, 0, 1],
    [0, 64, 0, 16], [0, 16, 0, 1], [0, 4, 0, 16], [0, 1, 0, 1],
];

impl Format for Iq4Xs {
    const NAME: &'static str = "iq4_xs";
    const BLOCK: usize = 256;
    const NIBBLES: bool = true;
    type Span = Block;
    type Quants = Signed;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        let scales: [_; 8] = from_fn(|group| f32::from(b.scale(group)) - 32.0);
        for (i, o) in out.iter_mut().enumerate() {
            *o = d * scales[i / 32] * iq4_nl::value(&b.qs[i / 32], i % 32);
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        let elements = isa.lookup(b.head(), isa.load(must_cast_ref(&SCALE_BYTES)));
        let elements = isa.mul16(elements, isa.load(must_cast_ref(&SCALE_FACTORS)));
        let high = isa.and(isa.shr32::<10>(elements), isa.splat32(0x30));
        let scales = isa.or(isa.shr32::<28>(elements), high);
        let scales = isa.add(isa.to_floats(isa.as_ints(scales)), isa.splat_f32(-32.0));
        Scales::whole(isa, isa.mul(isa.splat_f32(isa.f32_from_f16(b.d)), scales))
    }

    #[inline(always)]
    fn nibbles(b: &Block, group: usize) -> &[u8; 16] {
        &b.qs[group]
    }

    #[inline(always)]
    fn of_nibbles<I: Isa>(isa: I, nibbles: I::Bytes) -> I::Bytes {
        iq4_nl::Iq4Nl::of_nibbles(isa, nibbles)
    }
}

impl Encode<256> for Iq4Xs {
    type Block = Block;
    #[inline(always)]
    fn encode(weights: &[f32; 256], importance: Option<&[f32; 256]>) -> Block {
        let block = ScaledBlock::<_, 8>::new(
            &iq4_nl::Values,
            must_cast_ref::<_, [[f32; 32]; 8]>(weights),
            importance.map(must_cast_ref),
            Multipliers::SIX_BITS,
            iq4_nl::tried(),
        );
        let scale = block.scales;
        let high = |i: usize| (0..4).fold(0, |bits, k| bits | scale[4 * i + k] >> 4 << (2 * k));
        Block {
            d: block.d.to_le_bytes(),
            scales_h: from_fn(high),
            scales_l: from_fn(|i| scale[2 * i] & 15 | scale[2 * i + 1] << 4),
            qs: block.codes.map(iq4_nl::packed),
        }
    }
}
