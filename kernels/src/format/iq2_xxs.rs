use half::f16;

use super::{
    Format, SPAN, Scales, Unsigned,
    codebook::{decode, even_signs_of, expand, iq2_xxs::ENTRIES, with_even_signs},
};
use crate::isa::{Half, Isa};

/// 2 bits: indices of eight magnitudes, seven signs for them, and a 4-bit scale for each 32.
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
    /// Four times seven signs, and the scale above them.
    signs_and_scale: [u8; 4],
}

/// The magnitudes of all 2-bit IQ formats.
pub(super) const VALUES: [u8; 3] = [8, 25, CENTER];
/// The largest magnitude.
pub(super) const CENTER: u8 = 43;
static MAGNITUDES: [[u8; 8]; 256] = expand(&ENTRIES, &VALUES);

impl Group {
    #[inline(always)]
    fn magnitudes(&self) -> [u8; 32] {
        bytemuck::must_cast(self.qs.map(
            #[inline(always)]
            |i| MAGNITUDES[usize::from(i)],
        ))
    }

    #[inline(always)]
    fn signs(&self) -> [u8; 32] {
        even_signs_of(self.signs_and_scale)
    }

    /// Odd: what is to be divided by 8.
    #[inline(always)]
    fn scale(&self) -> i8 {
        (2 * (self.signs_and_scale[3] >> 4) + 1) as i8
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
            let group = &b.groups[g];
            ([d * f32::from(group.scale()) * 0.125; 2], group.magnitudes(), group.signs())
        });
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        Scales::integers(isa, isa.f32_from_f16(b.d) * 0.125, b.groups.map(|group| group.scale()))
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, group: usize) -> I::Bytes {
        let group = &b.groups[group];
        with_even_signs(isa, &group.magnitudes(), &group.signs(), CENTER)
    }
}
