use half::f16;

use super::{Format, SPAN, Scales, Signed, iq4_nl};
use crate::isa::{Half, Isa};

/// 4 bits that choose one of 16 values: `d * scale * VALUES[q]`, with a 6-bit scale for each 32
/// weights.
pub struct Iq4Xs;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    scales_h: [u8; 2],
    scales_l: [u8; 4],
    /// As those of Iq4Nl.
    qs: [[u8; 16]; 8],
}
const _: () = assert!(size_of::<Block>() == 136);

impl Block {
    #[inline(always)]
    fn scale(&self, group: usize) -> i8 {
        let low = self.scales_l[group / 2] >> (4 * (group % 2)) & 15;
        let high = self.scales_h[group / 4] >> (2 * (group % 4)) & 3;
        (low | high << 4) as i8 - 32
    }
}

impl Format for Iq4Xs {
    const NAME: &'static str = "iq4_xs";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Signed;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        for (i, o) in out.iter_mut().enumerate() {
            *o = d * f32::from(b.scale(i / 32)) * iq4_nl::value(&b.qs[i / 32], i % 32);
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        Scales::integers(isa, isa.f32_from_f16(b.d), |g| b.scale(g))
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, group: usize) -> I::Bytes {
        iq4_nl::values(isa, &b.qs[group])
    }
}
