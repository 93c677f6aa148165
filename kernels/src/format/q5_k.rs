use std::array::from_fn;

use super::{
    Format, Offset, SPAN, Scales, ScalesOfRows, Shared, Unsigned,
    q4_k::{ScalesAndMinimums, affine_block, low_nibbles, nibbles},
};
use crate::{array::map, isa::Isa, quantize::Encode};

/// 5 bits: as Q4_K, with the fifth bits stored separately.
pub struct Q5K;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    scales: ScalesAndMinimums,
    /// The fifth bits of the quants: bit `g` of each byte belongs to group `g`.
    qh: [u8; 32],
    qs: [u8; 128],
}
const _: () = assert!(size_of::<Block>() == 176);

impl Format for Q5K {
    const NAME: &'static str = "q5_k";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Offset<Unsigned<5>>;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        for (g, o) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (scale, offset) = b.scales.of_group(g);
            *o = from_fn(|i| {
                let low = b.qs[32 * (g / 2) + i] >> (4 * (g % 2)) & 15;
                scale * f32::from(low | (b.qh[i] >> g & 1) << 4) - offset
            });
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        b.scales.unpack(isa)
    }

    #[inline(always)]
    fn scales_of_rows<I: Isa>(isa: I, rows: [&Block; 8]) -> ScalesOfRows<I> {
        ScalesAndMinimums::unpack_rows(
            isa,
            map(
                rows,
                #[inline(always)]
                |b| &b.scales,
            ),
        )
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, _: Shared<I>, group: usize) -> I::Bytes {
        let high = isa.load(&b.qh);
        let high = match group {
            0 => isa.shl::<4>(high),
            1 => isa.shl::<3>(high),
            2 => isa.shl::<2>(high),
            3 => isa.shl::<1>(high),
            4 => high,
            5 => isa.shr::<1>(high),
            6 => isa.shr::<2>(high),
            _ => isa.shr::<3>(high),
        };
        isa.or(nibbles(isa, &b.qs, group), isa.and(high, isa.splat(16)))
    }
}

impl Encode<256> for Q5K {
    type Block = Block;
    #[inline(always)]
    fn encode(weights: &[f32; 256], importance: Option<&[f32; 256]>) -> Block {
        let block = affine_block(weights, importance, 31.0, -5..=10);
        let qh = from_fn(|i| (0..8).fold(0, |bits, g| bits | block.quants[g][i] >> 4 << g));
        let qs = low_nibbles(&block.quants);
        Block { scales: ScalesAndMinimums::pack(&block), qh, qs }
    }
}
