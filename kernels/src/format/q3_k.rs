use std::array::from_fn;

use bytemuck::{must_cast, must_cast_ref};
use half::f16;

use super::{
    Format, SPAN, Scales, Shared, Split, Unsigned,
    bits::{LOW, pairs},
};
use crate::{
    isa::{Half, Isa},
    quantize::{Encode, Integers, Multipliers, ScaledBlock, around},
};

/// 3 bits: `d * (scale - 32) * (q - 4)`, with a 6-bit scale for each 16 weights.
pub struct Q3K;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    /// The third bits of the quants: bit `g` of each byte belongs to group `g`.
    hmask: [u8; 32],
    /// The lower two bits: group `4n + j` has bits `2j` and `2j + 1` of bytes `32n ..`.
    qs: [u8; 64],
    scales: [u8; 12],
    d: Half,
}
const _: () = assert!(size_of::<Block>() == 110);

impl Block {
    /// Returns the scales of each 16 weights. The four low bits of scale `i` are nibble `i / 8` of byte
    /// `i % 8`, its two high bits are field `i / 4` of byte `8 + i % 4`.
    #[inline(always)]
    fn scales(&self) -> [i8; 16] {
        const FIELDS: u64 = 0x0303030303030303;
        const SIGNS: u64 = 0x8080808080808080;
        let [a, b, high]: [[u8; 4]; 3] = must_cast(self.scales);
        let low = u64::from_le_bytes(must_cast([a, b]));
        let high = u64::from(u32::from_le_bytes(high));
        let high = high | high >> 2 << 32;
        // Less 32, without borrowing between bytes.
        let scales = [0, 4].map(|shift| {
            let scales = low >> shift & LOW | (high >> shift & FIELDS) << 4;
            ((scales | SIGNS) - 0x2020202020202020) ^ SIGNS
        });
        must_cast(scales.map(u64::to_le_bytes))
    }
}

impl Format for Q3K {
    const NAME: &'static str = "q3_k";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Split<Unsigned<4>>;
    const CENTER: u8 = 4;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        let scales = b.scales();
        for (i, o) in out.iter_mut().enumerate() {
            let low = b.qs[32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4)) & 3;
            let high = b.hmask[i % 32] >> (i / 32) & 1;
            *o = d * f32::from(scales[i / 16]) * (f32::from(low | high << 2) - 4.0);
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        let scales = Scales::deal(isa, must_cast_ref(&b.scales()));
        Scales::split_integers(isa, isa.f32_from_f16(b.d), must_cast(scales))
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, _: Shared<I>, group: usize) -> I::Bytes {
        let (low, high) = (isa.load(&b.qs.as_chunks::<32>().0[group / 4]), isa.load(&b.hmask));
        let low = match group % 4 {
            0 => low,
            1 => isa.shr::<2>(low),
            2 => isa.shr::<4>(low),
            _ => isa.shr::<6>(low),
        };
        let high = match group {
            0 => isa.shl::<2>(high),
            1 => isa.shl::<1>(high),
            2 => high,
            3 => isa.shr::<1>(high),
            4 => isa.shr::<2>(high),
            5 => isa.shr::<3>(high),
            6 => isa.shr::<4>(high),
            _ => isa.shr::<5>(high),
        };
        isa.or(isa.and(low, isa.splat(3)), isa.and(high, isa.splat(4)))
    }
}

impl Encode<256> for Q3K {
    type Block = Block;
    #[inline(always)]
    fn encode(weights: &[f32; 256], importance: Option<&[f32; 256]>) -> Block {
        let values = around(-4.0, 0.025, -9..=9);
        let block = ScaledBlock::<_, 16>::new(
            &Integers(4.0),
            must_cast_ref::<_, [[f32; 16]; 16]>(weights),
            importance.map(must_cast_ref),
            Multipliers::SIX_BITS,
            values,
        );
        let quants = block.codes.map(|group| group.map(|quant| (quant + 4.0) as u8));
        let groups: &[[u8; 32]; 8] = must_cast_ref(&quants);
        let scale = block.scales;
        let high = |i: usize| (0..4).fold(0, |bits, k| bits | scale[4 * k + i] >> 4 << (2 * k));
        Block {
            hmask: from_fn(|i| (0..8).fold(0, |bits, g| bits | groups[g][i] >> 2 << g)),
            qs: pairs(must_cast_ref(&quants)),
            scales: from_fn(|i| match i {
                0..8 => scale[i] & 15 | scale[i + 8] << 4,
                _ => high(i - 8),
            }),
            d: block.d.to_le_bytes(),
        }
    }
}
