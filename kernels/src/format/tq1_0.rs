use std::array::from_fn;

use half::f16;

use super::{Format, SPAN, Scales, Shared, Unsigned};
use crate::{
    isa::{Half, Isa},
    quantize::{Encode, ternary},
};

/// Ternary digits: `d * (q - 1)`, with one scale for 256 weights.
///
/// A byte, divided by 256, is a ternary fraction of five (or four) digits. Digit `n` is the integer
/// part of three times the fractional part of `3^n * byte / 256`.
pub struct Tq1_0;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    /// The first five groups: digit `n` of the bytes is group `n`.
    first: [u8; 32],
    /// The following half groups, up to the middle of the last group: digit `n` of the bytes is
    /// half group `n`.
    second: [u8; 16],
    /// The last 16 weights: digit `n` of the bytes is weights `4 n ..` of these.
    third: [u8; 4],
    d: Half,
}
const _: () = assert!(size_of::<Block>() == 54);

const POWERS: [u8; 5] = [1, 3, 9, 27, 81];

impl Block {
    /// Returns the bytes that contain the digits of group `g`, and the power of three for each
    /// byte.
    #[inline(always)]
    fn group(&self, g: usize) -> ([u8; 32], [u8; 32]) {
        let halves = |a: [u8; 16], b: [u8; 16]| bytemuck::must_cast([a, b]);
        match g {
            0..5 => (self.first, [POWERS[g]; 32]),
            5 | 6 => {
                let n = 2 * (g - 5);
                (halves(self.second, self.second), halves([POWERS[n]; 16], [POWERS[n + 1]; 16]))
            }
            _ => {
                let last = bytemuck::must_cast([self.third; 4]);
                let powers = [0, 1, 2, 3].map(|n| [POWERS[n]; 4]);
                (halves(self.second, last), halves([POWERS[4]; 16], bytemuck::must_cast(powers)))
            }
        }
    }
}

impl Format for Tq1_0 {
    const NAME: &'static str = "tq1_0";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Unsigned<4>;
    const CENTER: u8 = 1;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        for (i, o) in out.iter_mut().enumerate() {
            let (byte, n) = match i {
                0..160 => (b.first[i % 32], i / 32),
                160..240 => (b.second[i % 16], (i - 160) / 16),
                _ => (b.third[i % 4], (i - 240) / 4),
            };
            let digit = (3 * u16::from(byte.wrapping_mul(POWERS[n]))) >> 8;
            *o = d * (f32::from(digit) - 1.0);
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        Scales::whole(isa, isa.splat_f32(isa.f32_from_f16(b.d)))
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, _: Shared<I>, group: usize) -> I::Bytes {
        let (bytes, powers) = b.group(group);
        let fraction = isa.mul_bytes(isa.load(&bytes), isa.load(&powers));
        // The digit is at least 1 from 256 / 3 on, and 2 from 512 / 3 on. A true comparison is -1.
        let digit = isa.sub(isa.splat(0), isa.at_least(fraction, isa.splat(86)));
        isa.sub(digit, isa.at_least(fraction, isa.splat(171)))
    }
}

impl Encode<256> for Tq1_0 {
    type Block = Block;
    #[inline(always)]
    fn encode(weights: &[f32; 256], _: Option<&[f32; 256]>) -> Block {
        let (d, q) = ternary(weights);
        // The digits of a byte are `step` weights apart. Rounded up, so that each is the integer part.
        let byte = |first: usize, step: usize, digits: usize| {
            let digit = |n| if n < digits { u16::from(q[first + n * step]) } else { 0 };
            let number = (0..POWERS.len()).fold(0, |number, n| 3 * number + digit(n));
            (number * 256).div_ceil(243) as u8
        };
        Block {
            first: from_fn(|i| byte(i, 32, 5)),
            second: from_fn(|i| byte(160 + i, 16, 5)),
            third: from_fn(|i| byte(240 + i, 4, 4)),
            d: d.to_le_bytes(),
        }
    }
}
