use std::{array::from_fn, sync::LazyLock};

use bytemuck::must_cast_ref;
use half::f16;

use super::{
    Format, SPAN, Scales, Shared, Unsigned,
    codebook::{decode, expand, group_signs, iq3_xxs::ENTRIES, with_signs},
    iq2_xxs::{pack_signs_and_scale, scale_and_signs, scales, signs},
};
use crate::{
    isa::{Half, Isa},
    quantize::{Encode, Grid, Magnitudes, around},
};

/// 3 bits: indices of four magnitudes, seven sign bits for each eight weights, and a 4-bit scale
/// for each 32 weights.
pub struct Iq3Xxs;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    qs: [[u8; 8]; 8],
    /// For each group, little-endian: four times seven sign bits, then the scale.
    signs_and_scales: [[u8; 4]; 8],
}
const _: () = assert!(size_of::<Block>() == 98);

/// The largest magnitude.
const CENTER: u8 = 62;
static MAGNITUDES: [[u8; 4]; 256] = expand(&ENTRIES, &[4, 12, 20, 28, 36, 44, 52, CENTER]);

impl Block {
    #[inline(always)]
    fn magnitudes(&self, group: usize) -> [u8; 32] {
        bytemuck::must_cast(self.qs[group].map(
            #[inline(always)]
            |i| MAGNITUDES[usize::from(i)],
        ))
    }
}

impl Format for Iq3Xxs {
    const NAME: &'static str = "iq3_xxs";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Unsigned<7>;
    const CENTER: u8 = CENTER;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        decode(out, |g| {
            let (scale, signs) = scale_and_signs(b.signs_and_scales[g]);
            ([d * scale * 0.25; 2], b.magnitudes(g), signs)
        });
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        scales(isa, isa.f32_from_f16(b.d) * 0.25, &b.signs_and_scales)
    }

    #[inline(always)]
    fn shared<I: Isa>(isa: I, b: &Block) -> Shared<I> {
        signs(isa, &b.signs_and_scales)
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, signs: Shared<I>, group: usize) -> I::Bytes {
        let signs = group_signs(isa, signs, group);
        with_signs(isa, &b.magnitudes(group), signs, CENTER)
    }
}

static GRID: LazyLock<Grid<4>> = LazyLock::new(|| Grid::new(&MAGNITUDES, 4, 0));

impl Encode<256> for Iq3Xxs {
    type Block = Block;
    fn encode(weights: &[f32; 256], importance: Option<&[f32; 256]>) -> Block {
        let magnitudes = Magnitudes::new(weights, importance, true);
        let block = magnitudes.block::<_, 32, 8>(&GRID, importance, around(15.5, 0.03, -12..=12));
        let signs: &[[u8; 4]; 8] = must_cast_ref(&magnitudes.signs);
        Block {
            d: block.d.to_le_bytes(),
            qs: block.codes.map(|indices| indices.map(|index| index as u8)),
            signs_and_scales: from_fn(|g| pack_signs_and_scale(signs[g], block.scales[g])),
        }
    }
}
