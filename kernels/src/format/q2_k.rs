use std::array::from_fn;

use bytemuck::must_cast_ref;
use half::f16;

use super::{
    Format, Offset, SPAN, Scales, Shared, Split, Unsigned,
    bits::{LOW, integers, pairs},
};
use crate::{
    array::map,
    isa::{Half, Isa},
    quantize::{AffineBlock, AffineLevels, Encode},
};

/// 2 bits: `d * scale * q - dmin * minimum`, with a 4-bit scale and minimum for each 16 weights.
pub struct Q2K;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    /// The scale in the low nibble, the minimum in the high one.
    scales: [u8; 16],
    /// Group `4n + j` has bits `2j` and up of bytes `32n ..`.
    qs: [u8; 64],
    d: Half,
    dmin: Half,
}
const _: () = assert!(size_of::<Block>() == 84);

impl Format for Q2K {
    const NAME: &'static str = "q2_k";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Split<Offset<Unsigned<4>>>;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let (d, dmin) = (f16::from_le_bytes(b.d).to_f32(), f16::from_le_bytes(b.dmin).to_f32());
        for (i, o) in out.iter_mut().enumerate() {
            let scale = b.scales[i / 16];
            let q = b.qs[32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3;
            *o = d * f32::from(scale & 15) * f32::from(q) - dmin * f32::from(scale >> 4);
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        let d = isa.splat_f32(isa.f32_from_f16(b.d));
        let dmin = isa.splat_f32(isa.f32_from_f16(b.dmin));
        let [first, last] = Scales::deal(isa, &b.scales).map(u64::from_le_bytes);
        let floats = map(
            [first, last, first >> 4, last >> 4],
            #[inline(always)]
            |nibbles| isa.floats_from_i8(&integers(nibbles & LOW)),
        );
        Scales {
            scale: [isa.mul(d, floats[0]), isa.mul(d, floats[1])],
            offset: [isa.mul(dmin, floats[2]), isa.mul(dmin, floats[3])],
        }
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, _: Shared<I>, group: usize) -> I::Bytes {
        let q = isa.load(&b.qs.as_chunks::<32>().0[group / 4]);
        let q = match group % 4 {
            0 => q,
            1 => isa.shr::<2>(q),
            2 => isa.shr::<4>(q),
            _ => isa.shr::<6>(q),
        };
        isa.and(q, isa.splat(3))
    }
}

impl Encode<256> for Q2K {
    type Block = Block;
    #[inline(always)]
    fn encode(weights: &[f32; 256], importance: Option<&[f32; 256]>) -> Block {
        let levels = AffineLevels { quant: 3.0, scale: 15.0, steps: -9..=9 };
        let importance = importance.map(must_cast_ref);
        let block = AffineBlock::<16, 16>::new(must_cast_ref(weights), importance, levels);
        Block {
            scales: from_fn(|g| block.scales[g] | block.minimums[g] << 4),
            qs: pairs(must_cast_ref(&block.quants)),
            d: block.d.to_le_bytes(),
            dmin: block.dmin.to_le_bytes(),
        }
    }
}
