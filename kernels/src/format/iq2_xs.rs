use std::{array::from_fn, sync::LazyLock};

use bytemuck::must_cast;
use half::f16;

use super::{
    Format, SPAN, Scales, Shared, Split, Unsigned,
    bits::{LOW, integers, odd},
    codebook::{
        decode, even_sign_bits, even_signs, expand, group_signs, iq2_xs::ENTRIES, with_signs,
    },
    iq2_xxs::{CENTER, VALUES, tried},
};
use crate::{
    isa::{Half, Isa},
    quantize::{Encode, Grid, Magnitudes},
};

/// 2.3 bits: indices of eight magnitudes, seven sign bits for each eight weights, and a 4-bit scale
/// for each 16 weights.
pub struct Iq2Xs;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    /// Little-endian: a 9-bit index, then seven sign bits.
    qs: [[[u8; 2]; 4]; 8],
    /// For each group: the scale of the first 16 weights in the low nibble, of the last 16 in the
    /// high one.
    scales: [u8; 8],
}
const _: () = assert!(size_of::<Block>() == 74);

static MAGNITUDES: [[u8; 8]; 512] = expand(&ENTRIES, &VALUES);

impl Block {
    #[inline(always)]
    fn magnitudes(&self, group: usize) -> [u8; 32] {
        bytemuck::must_cast(self.qs[group].map(
            #[inline(always)]
            |q| MAGNITUDES[usize::from(u16::from_le_bytes(q)) & 511],
        ))
    }
}

/// Returns eight times the scales of the first halves of all groups, and of the last halves, which
/// are odd integers.
#[inline(always)]
pub(super) fn scales(scales: [u8; 8]) -> [[i8; 8]; 2] {
    let nibbles = u64::from_le_bytes(scales);
    [integers(odd(nibbles & LOW)), integers(odd(nibbles >> 4 & LOW))]
}

impl Format for Iq2Xs {
    const NAME: &'static str = "iq2_xs";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Split<Unsigned<7>>;
    const CENTER: u8 = CENTER;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        let scales = scales(b.scales);
        decode(out, |g| {
            let scales = scales.map(|half| d * f32::from(half[g]) * 0.125);
            (scales, b.magnitudes(g), b.qs[g].map(|[_, high]| even_sign_bits(high >> 1)))
        });
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        Scales::split_integers(isa, isa.f32_from_f16(b.d) * 0.125, scales(b.scales))
    }

    #[inline(always)]
    fn shared<I: Isa>(isa: I, b: &Block) -> Shared<I> {
        let pairs: &[[u8; 32]; 2] = bytemuck::must_cast_ref(&b.qs);
        let sevens = [isa.shr16::<9>(isa.load(&pairs[0])), isa.shr16::<9>(isa.load(&pairs[1]))];
        even_signs(isa, isa.narrow(sevens))
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, signs: Shared<I>, group: usize) -> I::Bytes {
        let signs = group_signs(isa, signs, group);
        with_signs(isa, &b.magnitudes(group), signs, CENTER)
    }
}

static GRID: LazyLock<Grid<8>> = LazyLock::new(|| Grid::new(&MAGNITUDES, 8, 0));

/// Packs the scales of each 16 weights.
pub(super) fn packed_scales(scales: [u8; 16]) -> [u8; 8] {
    from_fn(|g| scales[2 * g] | scales[2 * g + 1] << 4)
}

impl Encode<256> for Iq2Xs {
    type Block = Block;
    fn encode(weights: &[f32; 256], importance: Option<&[f32; 256]>) -> Block {
        let magnitudes = Magnitudes::new(weights, importance, true);
        let block = magnitudes.block::<_, 16, 16>(&GRID, importance, tried());
        let vector = |i: usize| {
            (block.codes[i / 2][i % 2] | u16::from(magnitudes.signs[i] & 127) << 9).to_le_bytes()
        };
        let qs: [[u8; 2]; 32] = from_fn(vector);
        Block { d: block.d.to_le_bytes(), qs: must_cast(qs), scales: packed_scales(block.scales) }
    }
}
