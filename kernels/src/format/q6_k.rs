use std::array::from_fn;

use bytemuck::{must_cast, must_cast_ref};
use half::f16;

use super::{Format, SPAN, Scales, Shared, Split, Unsigned};
use crate::{
    isa::{Half, Isa},
    quantize::{Encode, SymmetricBlock},
};

/// 6 bits: `d * scale * (q - 32)`, with an 8-bit scale for each 16 weights.
pub struct Q6K;

/// 256 weights, in two halves of four groups.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    /// The low 4 bits: group `k` of a half has the low (`k < 2`) or high nibbles of the half's
    /// bytes `32 (k % 2) ..`.
    ql: [u8; 128],
    /// The high 2 bits: group `k` of a half has bits `2k` and `2k + 1` of the half's 32 bytes.
    qh: [u8; 64],
    scales: [i8; 16],
    d: Half,
}
const _: () = assert!(size_of::<Block>() == 210);

impl Format for Q6K {
    const NAME: &'static str = "q6_k";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Split<Unsigned<6>>;
    const CENTER: u8 = 32;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        let d = f16::from_le_bytes(b.d).to_f32();
        for (i, o) in out.iter_mut().enumerate() {
            let (half, k, l) = (i / 128, i / 32 % 4, i % 32);
            let low = b.ql[64 * half + 32 * (k % 2) + l] >> (4 * (k / 2)) & 15;
            let high = b.qh[32 * half + l] >> (2 * k) & 3;
            *o = d * f32::from(b.scales[i / 16]) * (f32::from(low | high << 4) - 32.0);
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        let scales = Scales::deal(isa, must_cast_ref(&b.scales));
        Scales::split_integers(isa, isa.f32_from_f16(b.d), must_cast(scales))
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, _: Shared<I>, group: usize) -> I::Bytes {
        let (half, k) = (group / 4, group % 4);
        let low = isa.load(&b.ql.as_chunks::<32>().0[2 * half + k % 2]);
        let low = if k < 2 { isa.and(low, isa.splat(15)) } else { isa.shr::<4>(low) };
        let high = isa.load(&b.qh.as_chunks::<32>().0[half]);
        let high = match k {
            0 => isa.shl::<4>(high),
            1 => isa.shl::<2>(high),
            2 => high,
            _ => isa.shr::<2>(high),
        };
        isa.or(low, isa.and(high, isa.splat(0x30)))
    }
}

impl Encode<256> for Q6K {
    type Block = Block;
    #[inline(always)]
    fn encode(weights: &[f32; 256], importance: Option<&[f32; 256]>) -> Block {
        let block = SymmetricBlock::new(weights, importance, 32.0);
        let quants = block.quants.map(|group| group.map(|quant| (quant + 32.0) as u8));
        let quants: [[[u8; 32]; 4]; 2] = must_cast(quants);
        let low = quants.map(|q| [0, 1].map(|k| from_fn(|l| q[k][l] & 15 | q[k + 2][l] << 4)));
        let high =
            quants.map(|q| from_fn(|l| (0..4).fold(0, |bits, k| bits | q[k][l] >> 4 << (2 * k))));
        Block {
            ql: must_cast::<[[[u8; 32]; 2]; 2], _>(low),
            qh: must_cast::<[[u8; 32]; 2], _>(high),
            scales: block.scales,
            d: block.d.to_le_bytes(),
        }
    }
}
