use std::{array::from_fn, sync::LazyLock};

use bytemuck::must_cast_ref;
use half::f16;

use super::{
    Format, SPAN, Scales, Shared, Unsigned,
    codebook::{
        decode, even_sign_bits, even_signs, expand, group_signs, iq2_xxs::ENTRIES, with_signs,
    },
};
use crate::{
    array,
    isa::{Half, Isa},
    quantize::{Encode, Grid, Magnitudes, around},
};

/// 2 bits: indices of eight magnitudes, seven sign bits for each eight weights, and a 4-bit scale
/// for each 32 weights.
pub struct Iq2Xxs;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    groups: [Group; 8],
}
const _: () = assert!(size_of::<Block>() == 66);

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Group {
    qs: [u8; 4],
    /// Little-endian: four times seven sign bits, then the scale.
    signs_and_scale: [u8; 4],
}

/// The magnitudes of all 2-bit IQ formats.
pub(super) const VALUES: [u8; 3] = [8, 25, CENTER];
/// The largest magnitude.
pub(super) const CENTER: u8 = 43;
static MAGNITUDES: [[u8; 8]; 256] = expand(&ENTRIES, &VALUES);

/// Returns an odd scale from 1 to 31, and the signs of 32 weights.
pub(super) fn scale_and_signs(bits: [u8; 4]) -> (f32, [u8; 4]) {
    let bits = u32::from_le_bytes(bits);
    let sevens = [bits, bits >> 7, bits >> 14, bits >> 21].map(|x| x as u8 & 127);
    ((2 * (bits >> 28) + 1) as f32, sevens.map(even_sign_bits))
}

/// The inverse of [`scale_and_signs`]: seven of each eight signs, and the upper four bits of a scale.
pub(super) fn pack_signs_and_scale(signs: [u8; 4], scale: u8) -> [u8; 4] {
    let [a, b, c, d] = signs.map(|signs| u32::from(signs & 127));
    (a | b << 7 | c << 14 | d << 21 | u32::from(scale) << 28).to_le_bytes()
}

/// Returns the scales of all groups, times `d`.
#[inline(always)]
pub(super) fn scales<I: Isa>(isa: I, d: f32, signs_and_scales: &[[u8; 4]; 8]) -> Scales<I> {
    let nibbles = isa.shr32::<28>(isa.load(bytemuck::must_cast_ref(signs_and_scales)));
    let nibbles = isa.to_floats(isa.as_ints(nibbles));
    Scales::whole(isa, isa.mul_add(isa.splat_f32(2.0 * d), nibbles, isa.splat_f32(d)))
}

/// Returns the signs of all groups.
#[inline(always)]
pub(super) fn signs<I: Isa>(isa: I, signs_and_scales: &[[u8; 4]; 8]) -> Shared<I> {
    even_signs(isa, unpack_sevens(isa, isa.load(bytemuck::must_cast_ref(signs_and_scales))))
}

/// Returns the four 7-bit fields in the lower 28 bits of each 32-bit element, one in each byte.
#[inline(always)]
fn unpack_sevens<I: Isa>(isa: I, words: I::Bytes) -> I::Bytes {
    // Two fields move to each 16 bits, then one to each byte.
    let low = isa.and(words, isa.splat32(0x00003fff));
    let high = isa.and(isa.shl32::<2>(words), isa.splat32(0x3fff0000));
    let pairs = isa.or(low, high);
    let low = isa.and(pairs, isa.splat32(0x007f007f));
    let high = isa.and(isa.shl32::<1>(pairs), isa.splat32(0x7f007f00));
    isa.or(low, high)
}

impl Group {
    #[inline(always)]
    fn magnitudes(&self) -> [u8; 32] {
        bytemuck::must_cast(self.qs.map(
            #[inline(always)]
            |i| MAGNITUDES[usize::from(i)],
        ))
    }
}

impl Block {
    #[inline(always)]
    fn signs_and_scales(&self) -> [[u8; 4]; 8] {
        array::map(
            self.groups,
            #[inline(always)]
            |group| group.signs_and_scale,
        )
    }
}

impl Format for Iq2Xxs {
    const NAME: &'static str = "iq2_xxs";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Unsigned<7>;
    const CENTER: u8 = CENTER;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        decode(out, |g| {
            let (scale, signs) = scale_and_signs(b.groups[g].signs_and_scale);
            ([d * scale * 0.125; 2], b.groups[g].magnitudes(), signs)
        });
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        scales(isa, isa.f32_from_f16(b.d) * 0.125, &b.signs_and_scales())
    }

    #[inline(always)]
    fn shared<I: Isa>(isa: I, b: &Block) -> Shared<I> {
        signs(isa, &b.signs_and_scales())
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, signs: Shared<I>, group: usize) -> I::Bytes {
        let signs = group_signs(isa, signs, group);
        with_signs(isa, &b.groups[group].magnitudes(), signs, CENTER)
    }
}

static GRID: LazyLock<Grid<8>> = LazyLock::new(|| Grid::new(&MAGNITUDES, 8, 0));

/// The values that are tried for the largest magnitude of a group: often, it is better to make it
/// smaller.
pub(super) fn tried() -> impl Iterator<Item = f32> + Clone {
    around(f32::from(CENTER) / 8.0, 0.06, -6..=16)
}

impl Encode<256> for Iq2Xxs {
    type Block = Block;
    fn encode(weights: &[f32; 256], importance: Option<&[f32; 256]>) -> Block {
        let magnitudes = Magnitudes::new(weights, importance, true);
        let block = magnitudes.block::<_, 32, 8>(&GRID, importance, tried());
        let signs: &[[u8; 4]; 8] = must_cast_ref(&magnitudes.signs);
        let group = |g: usize| Group {
            qs: from_fn(|i| block.codes[g][i] as u8),
            signs_and_scale: pack_signs_and_scale(signs[g], block.scales[g]),
        };
        Block { d: block.d.to_le_bytes(), groups: from_fn(group) }
    }
}
