use std::array::from_fn;

use half::f16;

use super::{Format, SPAN, Scales, Signed};
use crate::{
    isa::{Half, Isa},
    quantize::{Codes, Encode, around, fit, inverse},
};

/// 4-bit indices of 16 values: `d * VALUES[q]`; the first 16 weights in the low nibbles.
pub struct Iq4Nl;

/// 32 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    qs: [u8; 16],
}
const _: () = assert!(size_of::<Block>() == 18);

/// The values of a nibble in both 4-bit IQ formats (`IQ4_NL.kvalues` of the `gguf` package).
const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Returns weight `i` of 32 weights, without its scale.
pub(super) fn value(qs: &[u8; 16], i: usize) -> f32 {
    f32::from(VALUES[usize::from(qs[i % 16] >> (4 * (i / 16)) & 15)])
}

impl Format for Iq4Nl {
    const NAME: &'static str = "iq4_nl";
    const BLOCK: usize = 32;
    const NIBBLES: bool = true;
    type Span = [Block; 8];
    type Quants = Signed;

    fn decode(span: &[Block; 8], out: &mut [f32; SPAN]) {
        for (b, o) in span.iter().zip(out.as_chunks_mut::<32>().0) {
            let d = f16::from_le_bytes(b.d).to_f32();
            *o = from_fn(|i| d * value(&b.qs, i));
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, span: &[Block; 8]) -> Scales<I> {
        Scales::whole(isa, isa.floats_from_f16(&from_fn(|i| span[i].d)))
    }

    #[inline(always)]
    fn nibbles(span: &[Block; 8], group: usize) -> &[u8; 16] {
        &span[group].qs
    }

    #[inline(always)]
    fn of_nibbles<I: Isa>(isa: I, nibbles: I::Bytes) -> I::Bytes {
        isa.lookup(&VALUES.map(|v| v as u8), nibbles)
    }
}

/// The values, as codes of 32 weights.
pub(super) struct Values;

impl Codes<32> for Values {
    const SIGNED: bool = true;
    type Code = [u8; 32];
    #[inline(always)]
    fn nearest(&self, weights: &[f32; 32], _: &[f32; 32], scale: f32) -> ([u8; 32], [f32; 32]) {
        let inverse = inverse(scale);
        let weights = weights.map(|weight| weight * inverse);
        let (mut quants, mut values) = ([0; 32], [f32::from(VALUES[0]); 32]);
        for pair in VALUES.windows(2) {
            let [low, high] = [pair[0], pair[1]].map(f32::from);
            for i in 0..32 {
                let above = weights[i] > (low + high) * 0.5;
                quants[i] += u8::from(above);
                values[i] += if above { high - low } else { 0.0 };
            }
        }
        (quants, values)
    }
}

/// The values that are tried for the largest of 32 weights.
#[inline(always)]
pub(super) fn tried() -> impl Iterator<Item = f32> + Clone {
    around(-127.0, 0.02, -9..=9).chain(around(113.0, 0.02, -9..=9))
}

/// Packs the quants of 32 weights.
#[inline(always)]
pub(super) fn packed(quants: [u8; 32]) -> [u8; 16] {
    from_fn(|i| quants[i] | quants[i + 16] << 4)
}

impl Encode<32> for Iq4Nl {
    type Block = Block;
    #[inline(always)]
    fn encode(weights: &[f32; 32], importance: Option<&[f32; 32]>) -> Block {
        let importance = importance.unwrap_or(&[1.0; 32]);
        let d = f16::from_f32(fit(&Values, weights, importance, tried()).scale);
        let (quants, _) = Values.nearest(weights, importance, d.to_f32());
        Block { d: d.to_le_bytes(), qs: packed(quants) }
    }
}
