use std::{array::from_fn, sync::LazyLock};

use bytemuck::must_cast;
use half::f16;

use super::{
    Format, SPAN, Scales, Shared, Unsigned,
    bits::{integers, nibbles, odd},
    codebook::{decode, expand, iq3_s::ENTRIES, with_signs},
};
use crate::{
    isa::{Half, Isa},
    quantize::{Encode, Grid, Magnitudes, around},
};

/// 3.4 bits: indices of four magnitudes, a sign bit for each weight, and a 4-bit scale for each 32
/// weights.
pub struct Iq3S;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    qs: [[u8; 8]; 8],
    /// The ninth bits of the indices.
    qh: [u8; 8],
    signs: [[u8; 4]; 8],
    /// The scales of two groups in each byte.
    scales: [u8; 4],
}
const _: () = assert!(size_of::<Block>() == 110);

/// The largest magnitude.
const CENTER: u8 = 15;
static MAGNITUDES: [[u8; 4]; 512] = expand(&ENTRIES, &[1, 3, 5, 7, 9, 11, 13, CENTER]);

impl Block {
    #[inline(always)]
    fn magnitudes(&self, group: usize) -> [u8; 32] {
        bytemuck::must_cast::<[[u8; 4]; 8], _>(from_fn(
            #[inline(always)]
            |i| {
                let high = usize::from(self.qh[group]) << (8 - i) & 256;
                MAGNITUDES[usize::from(self.qs[group][i]) | high]
            },
        ))
    }

    #[inline(always)]
    fn scales(&self) -> [i8; 8] {
        integers(odd(nibbles(u32::from_le_bytes(self.scales))))
    }
}

impl Format for Iq3S {
    const NAME: &'static str = "iq3_s";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Unsigned<5>;
    const CENTER: u8 = CENTER;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        let scales = b.scales().map(|scale| d * f32::from(scale));
        decode(out, |g| ([scales[g]; 2], b.magnitudes(g), b.signs[g]));
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        Scales::integers(isa, isa.f32_from_f16(b.d), b.scales())
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, _: Shared<I>, group: usize) -> I::Bytes {
        let signs = isa.bit_mask(u32::from_le_bytes(b.signs[group]));
        with_signs(isa, &b.magnitudes(group), signs, CENTER)
    }
}

static GRID: LazyLock<Grid<4>> = LazyLock::new(|| Grid::new(&MAGNITUDES, 1, 0));

impl Encode<256> for Iq3S {
    type Block = Block;
    fn encode(weights: &[f32; 256], importance: Option<&[f32; 256]>) -> Block {
        let magnitudes = Magnitudes::new(weights, importance, false);
        let block = magnitudes.block::<_, 32, 8>(&GRID, importance, around(15.0, 0.03, -12..=12));
        let ninth = |indices: [u16; 8]| (0..8).fold(0, |bits, i| bits | (indices[i] >> 8) << i);
        Block {
            d: block.d.to_le_bytes(),
            qs: block.codes.map(|indices| indices.map(|index| index as u8)),
            qh: block.codes.map(|indices| ninth(indices) as u8),
            signs: must_cast(magnitudes.signs),
            scales: from_fn(|i| block.scales[2 * i] | block.scales[2 * i + 1] << 4),
        }
    }
}
