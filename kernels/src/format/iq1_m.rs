use std::array::from_fn;

use bytemuck::must_cast_ref;
use half::f16;

use super::{
    Format, SPAN, Scales, Shared, Split, Unsigned,
    bits::{integers, odd},
    iq1_s::{CENTER, Indices, nearest_shifted, quants, tried},
};
use crate::{
    isa::{Half, Isa},
    quantize::{Codes, Encode, Multipliers, ScaledBlock},
};

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

/// Two vectors, each with a shift, which is negative if the code says so.
struct Shifted;

impl Codes<16> for Shifted {
    const SIGNED: bool = false;
    type Code = [(u16, bool); 2];
    fn nearest(
        &self,
        weights: &[f32; 16],
        importance: &[f32; 16],
        scale: f32,
    ) -> ([(u16, bool); 2], [f32; 16]) {
        let (weights, importance) = (weights.as_chunks().0, importance.as_chunks().0);
        let vectors: [_; 2] = from_fn(|i| {
            let [more, less] = [0.125, -0.125]
                .map(|shift| nearest_shifted(&weights[i], &importance[i], scale, shift));
            let is_less = less.2 < more.2;
            (if is_less { less } else { more }, is_less)
        });
        let values: [[f32; 8]; 2] = vectors.map(|((_, values, _), _)| values);
        (vectors.map(|((index, ..), is_less)| (index, is_less)), bytemuck::must_cast(values))
    }
}

impl Encode<256> for Iq1M {
    type Block = Block;
    fn encode(weights: &[f32; 256], importance: Option<&[f32; 256]>) -> Block {
        let block = ScaledBlock::<_, 16>::new(
            &Shifted,
            must_cast_ref::<_, [[f32; 16]; 16]>(weights),
            importance.map(must_cast_ref),
            Multipliers::odd(15.0),
            tried(),
        );
        let vector = |g: usize, i: usize| block.codes[2 * g + i / 2][i % 2];
        let nibble = |(index, is_less): (u16, bool)| (index >> 8) as u8 | u8::from(is_less) << 3;
        let d = block.d.to_bits();
        let scales = |word: usize| {
            let scale = |i: usize| u16::from(block.scales[4 * word + i]) << (3 * i);
            scale(0) | scale(1) | scale(2) | scale(3) | (d >> (4 * word) & 15) << 12
        };
        Block {
            qs: from_fn(|g| from_fn(|i| vector(g, i).0 as u8)),
            qh: from_fn(|g| {
                from_fn(|i| nibble(vector(g, 2 * i)) | nibble(vector(g, 2 * i + 1)) << 4)
            }),
            scales: from_fn(|word| scales(word).to_le_bytes()),
        }
    }
}
