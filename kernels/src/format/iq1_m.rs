use half::f16;

use super::{
    Format, SPAN, Scales, Shared, Split, Unsigned,
    bits::{integers, odd},
    iq1_s::{CENTER, Indices, quants},
};
use crate::isa::{Half, Isa};

/// 1.75 bits: indices of eight weights as in Iq1S, a shift by 1/8 or -1/8 for each 8 weights, and a
/// 3-bit scale for each 16.
pub struct Iq1M;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    qs: [[u8; 4]; 8],
    /// A nibble for each index, the low nibble first: three upper bits of the index, and a bit that
    /// is set if the shift is negative.
    qh: [[u8; 2]; 8],
    /// Little-endian: four scales, and above them four bits of `d`.
    scales: [[u8; 2]; 4],
}
const _: () = assert!(size_of::<Block>() == 56);

const INDICES: Indices = Indices::new(4);

/// The values to subtract from 32 quants, for each value of [`Block::less`]: 1 (an eighth) or -1.
static LESS: [[u8; 32]; 16] = {
    let mut out = [[255; 32]; 16];
    let mut i = 0;
    while i < 16 * 32 {
        if (i / 32) >> (i % 32 / 8) & 1 == 1 {
            out[i / 32][i % 32] = 1;
        }
        i += 1;
    }
    out
};

impl Block {
    #[inline(always)]
    fn d(&self) -> Half {
        let [a, b, c, d] = self.scales.map(
            #[inline(always)]
            |[_, high]| high >> 4,
        );
        [a | b << 4, c | d << 4]
    }

    /// Returns the scales of the first halves of all groups, and of the last halves.
    #[inline(always)]
    fn scales(&self) -> [[i8; 8]; 2] {
        // Each 16 bits hold the scales of two groups.
        let fours = u64::from_le_bytes(bytemuck::must_cast(self.scales));
        let bytes = |even: u64, odd: u64| even & 0x0007000700070007 | odd & 0x0700070007000700;
        [integers(odd(bytes(fours, fours << 2))), integers(odd(bytes(fours >> 3, fours >> 1)))]
    }

    /// Returns four bits, one for each index of the group, which are set if the shift is negative.
    #[inline(always)]
    fn less(&self, group: usize) -> usize {
        // Moves bits 4 i + 3 to bits 12 + i.
        const GATHER: u32 = 1 << 9 | 1 << 6 | 1 << 3 | 1;
        let fours = u32::from(u16::from_le_bytes(self.qh[group])) & 0x8888;
        (fours * GATHER) as usize >> 12 & 15
    }
}

impl Format for Iq1M {
    const NAME: &'static str = "iq1_m";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Split<Unsigned<5>>;
    const CENTER: u8 = CENTER;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d()).to_f32();
        let scales = b.scales();
        for (g, o) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let scale = |i: usize| d * f32::from(scales[i / 16][g]);
            let less = |i: usize| b.less(g) >> (i / 8) & 1 == 1;
            *o = INDICES.decode(b.qs[g], b.qh[g], scale, less);
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        Scales::split_integers(isa, isa.f32_from_f16(b.d()) * 0.125, b.scales())
    }

    #[inline(always)]
    fn shared<I: Isa>(isa: I, b: &Block) -> Shared<I> {
        INDICES.unpack(isa, &b.qs, &b.qh)
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, indices: Shared<I>, group: usize) -> I::Bytes {
        isa.sub(quants(isa, indices, group), isa.load(&LESS[b.less(group)]))
    }
}
