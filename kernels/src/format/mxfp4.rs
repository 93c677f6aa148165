use std::array::from_fn;

use super::{Format, SPAN, Scales, Unsigned};
use crate::{isa::Isa, quantize::Encode};

/// 4-bit floats with a power of two for each 32 weights (OCP Microscaling Formats 1.0):
/// `d * VALUES[q]`, where values are doubled to make them integers, and `d` is half the power of
/// two.
pub struct Mxfp4;

/// 32 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    /// The exponent of `2 d`, plus 127.
    e: u8,
    /// The first 16 weights in the low nibbles.
    qs: [u8; 16],
}
const _: () = assert!(size_of::<Block>() == 17);

/// Twice the values of E2M1, in the order of their bits; shared with Nvfp4.
const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The quant that represents zero.
pub(super) const CENTER: u8 = 12;

/// The values plus [`CENTER`], computed at compile time.
const CENTERED: [u8; 16] = {
    let mut centered = [0; 16];
    let mut i = 0;
    while i < 16 {
        centered[i] = (VALUES[i] + CENTER as i8) as u8;
        i += 1;
    }
    centered
};

/// Returns the value of a nibble.
pub(super) fn value(nibble: u8) -> f32 {
    f32::from(VALUES[usize::from(nibble & 15)])
}

/// Returns the values of nibbles, plus [`CENTER`].
#[inline(always)]
pub(super) fn values<I: Isa>(isa: I, nibbles: I::Bytes) -> I::Bytes {
    isa.lookup(&CENTERED, nibbles)
}

/// `2^(e - 128)` for each exponent `e`. (A computation would need a case for subnormal numbers.)
static SCALES: [f32; 256] = {
    let mut scales = [0.0; 256];
    let mut e = 0;
    while e < 256 {
        scales[e] = f32::from_bits(if e < 2 { 0x00200000 << e } else { (e as u32 - 1) << 23 });
        e += 1;
    }
    scales
};

impl Format for Mxfp4 {
    const NAME: &'static str = "mxfp4";
    const BLOCK: usize = 32;
    const NIBBLES: bool = true;
    type Span = [Block; 8];
    type Quants = Unsigned<5>;
    const CENTER: u8 = CENTER;

    fn decode(span: &[Block; 8], out: &mut [f32; SPAN]) {
        for (b, o) in span.iter().zip(out.as_chunks_mut::<32>().0) {
            *o = from_fn(|i| SCALES[usize::from(b.e)] * value(b.qs[i % 16] >> (4 * (i / 16))));
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, span: &[Block; 8]) -> Scales<I> {
        Scales::whole(isa, isa.load_f32(&from_fn(|i| SCALES[usize::from(span[i].e)])))
    }

    #[inline(always)]
    fn nibbles(span: &[Block; 8], group: usize) -> &[u8; 16] {
        &span[group].qs
    }

    #[inline(always)]
    fn of_nibbles<I: Isa>(isa: I, nibbles: I::Bytes) -> I::Bytes {
        values(isa, nibbles)
    }
}

impl Encode<32> for Mxfp4 {
    type Block = Block;
    #[inline(always)]
    fn encode(weights: &[f32; 32], _: Option<&[f32; 32]>) -> Block {
        let largest = weights.iter().fold(0f32, |max, weight| max.max(weight.abs()));
        // The exponent of the largest weight, less that of the largest value, 6.
        let e = (largest.to_bits() >> 23).saturating_sub(2) as u8;
        let q = weights.map(|weight| nearest_value(weight, SCALES[usize::from(e)]));
        Block { e, qs: from_fn(|i| q[i] | q[i + 16] << 4) }
    }
}

/// Returns the nibble of the nearest multiple of `scale`, the first one if there are several.
#[inline(always)]
fn nearest_value(weight: f32, scale: f32) -> u8 {
    let error = |nibble: u8| (value(nibble) * scale - weight).abs();
    let nearer = |best: u8, nibble| if error(nibble) < error(best) { nibble } else { best };
    (1..16).fold(0, nearer)
}
