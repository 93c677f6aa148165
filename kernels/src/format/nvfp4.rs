use std::array::from_fn;

use half::f16;

use super::{Format, SPAN, Scales, Split, Unsigned, mxfp4};
use crate::{
    array::map,
    isa::{Half, Isa},
};

/// 4-bit floats as in Mxfp4, with an 8-bit float as the scale of each 16.
pub struct Nvfp4;

/// 64 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    /// E4M3 without a sign.
    d: [u8; 4],
    /// Of each 16 weights, the first 8 in the low nibbles.
    qs: [[u8; 8]; 4],
}
const _: () = assert!(size_of::<Block>() == 36);

/// E4M3 is the upper part of a half-precision number, but for the bias of its exponent: see
/// [`UNBIAS`]. Its not-a-number stands for zero.
#[inline(always)]
fn half(d: u8) -> Half {
    let bits = if d == 0x7f { 0 } else { u16::from(d & 0x7f) << 7 };
    bits.to_le_bytes()
}

/// `2^8` for the bias, halved as values are doubled.
const UNBIAS: f32 = 128.0;

impl Format for Nvfp4 {
    const NAME: &'static str = "nvfp4";
    const BLOCK: usize = 64;
    type Span = [Block; 4];
    type Quants = Split<Unsigned<5>>;
    const CENTER: u8 = mxfp4::CENTER;

    fn decode(span: &[Block; 4], out: &mut [f32; SPAN]) {
        for (i, o) in out.iter_mut().enumerate() {
            let (b, part) = (span[i / 64], i / 16 % 4);
            let d = f16::from_le_bytes(half(b.d[part])).to_f32() * UNBIAS;
            *o = d * mxfp4::value(b.qs[part][i % 8] >> (4 * (i / 8 % 2)));
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, span: &[Block; 4]) -> Scales<I> {
        let scale = map(
            [0, 1],
            #[inline(always)]
            |h| {
                let d = from_fn(|g| half(span[g / 2].d[2 * (g % 2) + h]));
                isa.mul(isa.floats_from_f16(&d), isa.splat_f32(UNBIAS))
            },
        );
        Scales::split(isa, scale)
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, span: &[Block; 4], group: usize) -> I::Bytes {
        let [first, last] = span[group / 2].qs.as_chunks::<2>().0[group % 2];
        let bytes = isa.load(&bytemuck::must_cast([first, first, last, last]));
        const LOW: [[u8; 8]; 4] = [[15; 8], [0; 8], [15; 8], [0; 8]];
        const HIGH: [[u8; 8]; 4] = [[0; 8], [15; 8], [0; 8], [15; 8]];
        let low = isa.and(bytes, isa.load(&bytemuck::must_cast(LOW)));
        let high = isa.and(isa.shr::<4>(bytes), isa.load(&bytemuck::must_cast(HIGH)));
        mxfp4::values(isa, isa.or(low, high))
    }
}
