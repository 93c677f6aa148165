use std::{array::from_fn, sync::LazyLock};

use bytemuck::must_cast_ref;
use half::f16;

use super::{
    Format, SPAN, Scales, Shared, Unsigned,
    bits::{integers, odd},
    codebook::{expand, iq1_s::ENTRIES},
};
use crate::{
    array,
    isa::{Half, Isa},
    quantize::{Codes, Encode, Grid, Multipliers, ScaledBlock, around},
};

/// 1.6 bits: indices of eight weights of -1, 0 or 1, and for each 32 weights a shift by 1/8 or -1/8
/// and a 3-bit scale. Quants are in units of 1/8.
pub struct Iq1S;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    d: Half,
    qs: [[u8; 4]; 8],
    /// For each group, little-endian: the upper bits of four indices, the scale, and a bit that is
    /// set if the shift is negative.
    qh: [[u8; 2]; 8],
}
const _: () = assert!(size_of::<Block>() == 50);

/// The quant that represents zero in both 1-bit formats.
pub(super) const CENTER: u8 = 9;
/// The quants of -1, 0 and 1, without a shift.
static QUANTS: [[u8; 8]; 2048] = expand(&ENTRIES, &[CENTER - 8, CENTER, CENTER + 8]);

const INDICES: Indices = Indices::new(3);

/// The layout of a group's four indices: their lower eight bits are bytes, their upper three bits
/// are in two other bytes.
pub(super) struct Indices {
    /// The distance in bits between the upper bits of two indices.
    step: u8,
    /// For each index, the positions of the two bytes (of 16) that hold its upper bits.
    bytes: [[u8; 32]; 2],
    /// For each index, the 16-bit factor that moves its upper bits to bit 8.
    factors: [u8; 32],
}

impl Indices {
    /// Creates a layout in which the upper bits of index `i` begin at bit `step * i`.
    pub const fn new(step: u8) -> Self {
        let mut out = Indices { step, bytes: [[0; 32]; 2], factors: [0; 32] };
        let mut i = 0;
        while i < 32 {
            let (group, from) = (i as u8 / 4, step * (i as u8 % 4));
            let (byte, bit) = (from / 8, from % 8);
            // If the bits are in the second byte, the byte after it is not used.
            let bytes = [2 * group + byte, 2 * group + 1];
            let factor = (1u16 << (8 - bit)).to_le_bytes();
            let mut j = 0;
            while j < 2 {
                out.bytes[i / 16][i % 16 * 2 + j] = bytes[j];
                out.factors[i % 16 * 2 + j] = factor[j];
                j += 1;
            }
            i += 1;
        }
        out
    }

    /// Returns the weights of a group. `less(i)` is whether the shift of weight `i` is negative.
    pub fn decode(
        &self,
        qs: [u8; 4],
        qh: [u8; 2],
        scale: impl Fn(usize) -> f32,
        less: impl Fn(usize) -> bool,
    ) -> [f32; 32] {
        let high = u16::from_le_bytes(qh);
        from_fn(|i| {
            let upper = usize::from(high >> (usize::from(self.step) * (i / 8)) & 7);
            let quant = QUANTS[upper << 8 | usize::from(qs[i / 8])][i % 8];
            let eighth = if less(i) { -1.0 } else { 1.0 };
            scale(i) * ((f32::from(quant) - f32::from(CENTER) + eighth) * 0.125)
        })
    }

    /// Returns the indices of all groups, two bytes each.
    #[inline(always)]
    pub fn unpack<I: Isa>(&self, isa: I, qs: &[[u8; 4]; 8], qh: &[[u8; 2]; 8]) -> Shared<I> {
        let low = isa.widen(bytemuck::must_cast_ref(qs));
        array::from_fn(
            #[inline(always)]
            |half| {
                let bits = isa.lookup(bytemuck::must_cast_ref(qh), isa.load(&self.bytes[half]));
                let bits = isa.mul16(bits, isa.load(&self.factors));
                isa.or(low[half], isa.and(bits, isa.splat32(0x07000700)))
            },
        )
    }
}

/// Returns the quants of a group, without a shift, from the result of [`Indices::unpack`].
#[inline(always)]
pub(super) fn quants<I: Isa>(isa: I, indices: Shared<I>, group: usize) -> I::Bytes {
    let fours: [[u8; 8]; 4] = bytemuck::must_cast(isa.to_bytes(indices[group / 4]));
    let four = u64::from_le_bytes(fours[group % 4]);
    isa.load(bytemuck::must_cast_ref(&[0, 16, 32, 48].map(
        #[inline(always)]
        |from| QUANTS[(four >> from) as usize & 0x7ff],
    )))
}

impl Block {
    /// Returns whether the shift is negative.
    #[inline(always)]
    fn less(&self, group: usize) -> bool {
        self.qh[group][1] > 127
    }

    #[inline(always)]
    fn scales(&self) -> [i8; 8] {
        let fours: [[u8; 8]; 2] = bytemuck::must_cast(self.qh);
        let fours = fours.map(
            #[inline(always)]
            |four| {
                let scales = u64::from_le_bytes(four) >> 12 & 0x0007000700070007;
                let scales = (scales | scales >> 8) & 0x0000ffff0000ffff;
                (scales | scales >> 16) & 0xffffffff
            },
        );
        integers(odd(fours[0] | fours[1] << 32))
    }
}

impl Format for Iq1S {
    const NAME: &'static str = "iq1_s";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Unsigned<5>;
    const CENTER: u8 = CENTER;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        let scales = b.scales();
        for (g, o) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let scale = d * f32::from(scales[g]);
            *o = INDICES.decode(b.qs[g], b.qh[g], |_| scale, |_| b.less(g));
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        Scales::integers(isa, isa.f32_from_f16(b.d) * 0.125, b.scales())
    }

    #[inline(always)]
    fn shared<I: Isa>(isa: I, b: &Block) -> Shared<I> {
        INDICES.unpack(isa, &b.qs, &b.qh)
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, indices: Shared<I>, group: usize) -> I::Bytes {
        // Subtracts 1 for a negative shift, and -1 for a positive one.
        isa.sub(quants(isa, indices, group), isa.splat(if b.less(group) { 1 } else { 255 }))
    }
}

/// The code book of both 1-bit formats, with values of -1, 0 and 1.
pub(super) static GRID: LazyLock<Grid<8>> = LazyLock::new(|| Grid::new(&QUANTS, 8, CENTER));

/// Returns the index and the values of the nearest vector, which are shifted by `shift`, and the
/// error.
pub(super) fn nearest_shifted(
    weights: &[f32; 8],
    importance: &[f32; 8],
    scale: f32,
    shift: f32,
) -> (u16, [f32; 8], f32) {
    let weights = weights.map(|weight| weight - scale * shift);
    let (index, values, error) = GRID.nearest_vector(&weights, importance, scale);
    (index, values.map(|value| value + shift), error)
}

/// The values that are tried for the largest magnitude of a group.
pub(super) fn tried() -> impl Iterator<Item = f32> + Clone {
    around(1.0, 0.08, -2..=20)
}

/// Four vectors with one shift, which is negative if the code says so.
struct Shifted;

impl Codes<32> for Shifted {
    const SIGNED: bool = false;
    type Code = ([u16; 4], bool);
    fn nearest(
        &self,
        weights: &[f32; 32],
        importance: &[f32; 32],
        scale: f32,
    ) -> (([u16; 4], bool), [f32; 32]) {
        let (weights, importance) = (weights.as_chunks().0, importance.as_chunks().0);
        let [more, less] = [0.125, -0.125].map(|shift| {
            let vectors: [_; 4] =
                from_fn(|i| nearest_shifted(&weights[i], &importance[i], scale, shift));
            (vectors, vectors.iter().map(|vector| vector.2).sum::<f32>())
        });
        let is_less = less.1 < more.1;
        let (vectors, _) = if is_less { less } else { more };
        let values: [[f32; 8]; 4] = vectors.map(|vector| vector.1);
        ((vectors.map(|vector| vector.0), is_less), bytemuck::must_cast(values))
    }
}

impl Encode<256> for Iq1S {
    type Block = Block;
    fn encode(weights: &[f32; 256], importance: Option<&[f32; 256]>) -> Block {
        let block = ScaledBlock::<_, 8>::new(
            &Shifted,
            must_cast_ref::<_, [[f32; 32]; 8]>(weights),
            importance.map(must_cast_ref),
            Multipliers::odd(15.0),
            tried(),
        );
        let high = |g: usize| {
            let (indices, is_less) = block.codes[g];
            let upper = (0..4).fold(0, |bits, i| bits | indices[i] >> 8 << (3 * i));
            upper | u16::from(block.scales[g]) << 12 | u16::from(is_less) << 15
        };
        Block {
            d: block.d.to_le_bytes(),
            qs: block.codes.map(|(indices, _)| indices.map(|index| index as u8)),
            qh: from_fn(|g| high(g).to_le_bytes()),
        }
    }
}
