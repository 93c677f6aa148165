use std::{array::from_fn, sync::LazyLock};

use bytemuck::must_cast;
use half::f16;

use super::{
    Format, SPAN, Scales, Shared, Split, Unsigned,
    codebook::{decode, expand, iq2_s::ENTRIES, with_signs},
    iq2_xs::{packed_scales, scales},
    iq2_xxs::{CENTER, VALUES, tried},
};
use crate::{
    isa::{Half, Isa},
    quantize::{Encode, Grid, Magnitudes},
};

/// 2.5 bits: indices of eight magnitudes, a sign bit for each weight, and a 4-bit scale for each 16
/// weights.
pub struct Iq2S;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    qs: [[u8; 4]; 8],
    signs: [[u8; 4]; 8],
    /// Bits 8 and 9 of a group's four indices.
    qh: [u8; 8],
    /// The layout of Iq2Xs.
    scales: [u8; 8],
}
const _: () = assert!(size_of::<Block>() == 82);

static MAGNITUDES: [[u8; 8]; 1024] = expand(&ENTRIES, &VALUES);

impl Block {
    #[inline(always)]
    fn magnitudes(&self, group: usize) -> [u8; 32] {
        bytemuck::must_cast::<[[u8; 8]; 4], _>(from_fn(
            #[inline(always)]
            |i| {
                let high = usize::from(self.qh[group]) << (8 - 2 * i) & 0x300;
                MAGNITUDES[usize::from(self.qs[group][i]) | high]
            },
        ))
    }
}

impl Format for Iq2S {
    const NAME: &'static str = "iq2_s";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Split<Unsigned<7>>;
    const CENTER: u8 = CENTER;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        let scales = scales(b.scales);
        decode(out, |g| {
            let scales = scales.map(|half| d * f32::from(half[g]) * 0.125);
            (scales, b.magnitudes(g), b.signs[g])
        });
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        Scales::split_integers(isa, isa.f32_from_f16(b.d) * 0.125, scales(b.scales))
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, _: Shared<I>, group: usize) -> I::Bytes {
        let signs = isa.bit_mask(u32::from_le_bytes(b.signs[group]));
        with_signs(isa, &b.magnitudes(group), signs, CENTER)
    }
}

static GRID: LazyLock<Grid<8>> = LazyLock::new(|| Grid::new(&MAGNITUDES, 8, 0));

impl Encode<256> for Iq2S {
    type Block = Block;
    fn encode(weights: &[f32; 256], importance: Option<&[f32; 256]>) -> Block {
        let magnitudes = Magnitudes::new(weights, importance, false);
        let block = magnitudes.block::<_, 16, 16>(&GRID, importance, tried());
        let index = |i: usize| block.codes[i / 2][i % 2];
        let qs: [u8; 32] = from_fn(|i| index(i) as u8);
        let high = |g: usize| (0..4).fold(0, |bits, i| bits | index(4 * g + i) >> 8 << (2 * i));
        Block {
            d: block.d.to_le_bytes(),
            qs: must_cast(qs),
            signs: must_cast(magnitudes.signs),
            qh: from_fn(|g| high(g) as u8),
            scales: packed_scales(block.scales),
        }
    }
}
