use std::array::from_fn;

use super::{Format, SPAN, Scales, Shared, Split, Unsigned, mxfp4};
use crate::{array::map, isa::Isa};

/// 4-bit floats as in Mxfp4, with an 8-bit float as the scale of each 16 weights.
pub struct Nvfp4;

/// 64 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    /// E4M3 without a sign.
    d: [u8; 4],
    /// For each 16 weights, the first 8 in the low nibbles.
    qs: [[u8; 8]; 4],
}
const _: () = assert!(size_of::<Block>() == 36);

/// Half the value of each scale, as the values of quants are doubled. The sign is ignored, and NaN
/// is replaced by zero.
static SCALES: [f32; 256] = {
    let mut scales = [0.0; 256];
    let mut d = 0;
    while d < 256 {
        let (exponent, fraction) = (d as u32 >> 3 & 15, d as u32 & 7);
        if exponent == 0 {
            scales[d] = fraction as f32 / 1024.0;
        } else if d != 0x7f {
            // (1 + fraction / 8) * 2^(exponent - 8)
            scales[d] = f32::from_bits((exponent + 119) << 23 | fraction << 20);
        }
        d += 1;
    }
    scales
};

impl Format for Nvfp4 {
    const NAME: &'static str = "nvfp4";
    const BLOCK: usize = 64;
    type Span = [Block; 4];
    type Quants = Split<Unsigned<5>>;
    const CENTER: u8 = mxfp4::CENTER;

    fn decode(span: &[Block; 4], out: &mut [f32; SPAN]) {
        for (i, o) in out.iter_mut().enumerate() {
            let (b, part) = (span[i / 64], i / 16 % 4);
            *o = SCALES[usize::from(b.d[part])]
                * mxfp4::value(b.qs[part][i % 8] >> (4 * (i / 8 % 2)));
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, span: &[Block; 4]) -> Scales<I> {
        let scale = map(
            [0, 1],
            #[inline(always)]
            |h| {
                let scale = |g: usize| SCALES[usize::from(span[g / 2].d[2 * (g % 2) + h])];
                isa.load_f32(&from_fn(scale))
            },
        );
        Scales::split(isa, scale)
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, span: &[Block; 4], _: Shared<I>, group: usize) -> I::Bytes {
        let [first, last] = span[group / 2].qs.as_chunks::<2>().0[group % 2];
        let bytes = isa.load(&bytemuck::must_cast([first, first, last, last]));
        const LOW: [[u8; 8]; 4] = [[15; 8], [0; 8], [15; 8], [0; 8]];
        const HIGH: [[u8; 8]; 4] = [[0; 8], [15; 8], [0; 8], [15; 8]];
        let low = isa.and(bytes, isa.load(&bytemuck::must_cast(LOW)));
        let high = isa.and(isa.shr::<4>(bytes), isa.load(&bytemuck::must_cast(HIGH)));
        mxfp4::values(isa, isa.or(low, high))
    }
}
