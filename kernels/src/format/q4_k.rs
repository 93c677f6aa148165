use std::{array::from_fn, ops::RangeInclusive};

use bytemuck::{must_cast, must_cast_ref};
use half::f16;

use super::{Format, Offset, SPAN, Scales, ScalesOfRows, Shared, Unsigned};
use crate::{
    array::map,
    isa::{Half, Isa},
    quantize::{AffineBlock, AffineLevels, Encode},
};

/// 4 bits: `d * scale * q - dmin * minimum`, with a 6-bit scale and minimum for each 32 weights.
pub struct Q4K;

/// 256 weights.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Block {
    pub(super) scales: ScalesAndMinimums,
    /// Group `2n` in the low nibbles of bytes `32n ..`, group `2n + 1` in the high ones.
    qs: [u8; 128],
}
const _: () = assert!(size_of::<Block>() == 144);

/// The first bytes of blocks of Q4_K and Q5_K.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct ScalesAndMinimums {
    d: Half,
    dmin: Half,
    packed: [u8; 12],
}

impl ScalesAndMinimums {
    /// Returns the scale and the offset of group `g`.
    pub(super) fn of_group(&self, g: usize) -> (f32, f32) {
        let p = &self.packed;
        let (scale, minimum) = if g < 4 {
            (p[g] & 63, p[g + 4] & 63)
        } else {
            (p[g + 4] & 15 | (p[g - 4] >> 6) << 4, p[g + 4] >> 4 | (p[g] >> 6) << 4)
        };
        let (d, dmin) =
            (f16::from_le_bytes(self.d).to_f32(), f16::from_le_bytes(self.dmin).to_f32());
        (d * f32::from(scale), dmin * f32::from(minimum))
    }

    /// Returns the scales and offsets of all groups.
    #[inline(always)]
    pub(super) fn unpack<I: Isa>(&self, isa: I) -> Scales<I> {
        let w: [u32; 3] = from_fn(|i| u32::from_le_bytes(from_fn(|j| self.packed[4 * i + j])));
        let (six, four, two) = (0x3f3f3f3f, 0x0f0f0f0f, 0x03030303);
        let scale = [w[0] & six, (w[2] & four) | ((w[0] >> 6) & two) << 4];
        let minimum = [w[1] & six, ((w[2] >> 4) & four) | ((w[1] >> 6) & two) << 4];
        let bytes = |x: [u32; 2]| -> [i8; 8] { bytemuck::must_cast(x.map(u32::to_le_bytes)) };
        let d = isa.splat_f32(isa.f32_from_f16(self.d));
        let dmin = isa.splat_f32(isa.f32_from_f16(self.dmin));
        Scales {
            scale: [isa.mul(d, isa.floats_from_i8(&bytes(scale))); 2],
            offset: [isa.mul(dmin, isa.floats_from_i8(&bytes(minimum))); 2],
        }
    }

    /// Returns the scales and offsets of all groups of eight rows.
    #[inline(always)]
    pub(super) fn unpack_rows<I: Isa>(isa: I, rows: [&Self; 8]) -> ScalesOfRows<I> {
        let [factors, a, b, c] = isa.transpose_half(map(rows, must_cast_ref));
        // Bits 4 and 5 of groups 4 .. 8.
        let [a_high, b_high] = map(
            [a, b],
            #[inline(always)]
            |x| isa.shl::<4>(isa.shr::<6>(x)),
        );
        let scales = [isa.and(a, isa.splat(63)), isa.or(isa.and(c, isa.splat(15)), a_high)];
        let minimums = [isa.and(b, isa.splat(63)), isa.or(isa.shr::<4>(c), b_high)];
        let factors: [[Half; 2]; 8] = must_cast(isa.to_bytes(factors));
        let d = isa.floats_from_f16(&factors.map(|[d, _]| d));
        let dmin = isa.floats_from_f16(&factors.map(|[_, dmin]| dmin));
        let scale = times_bytes(isa, d, scales);
        let offset = times_bytes(isa, dmin, minimums);
        ScalesOfRows { scale: [scale; 2], offset: [offset; 2] }
    }
}

/// Returns `factor` times the bytes of each lane, four of `x[0]` and four of `x[1]`.
#[inline(always)]
fn times_bytes<I: Isa>(isa: I, factor: I::Floats, x: [I::Bytes; 2]) -> [I::Floats; 8] {
    let byte = isa.splat32(0xff);
    let [[a, b, c, d], [e, f, g, h]] = map(
        x,
        #[inline(always)]
        |x| {
            [
                isa.and(x, byte),
                isa.and(isa.shr32::<8>(x), byte),
                isa.and(isa.shr32::<16>(x), byte),
                isa.shr32::<24>(x),
            ]
        },
    );
    map(
        [a, b, c, d, e, f, g, h],
        #[inline(always)]
        |x| isa.mul(factor, isa.to_floats(isa.as_ints(x))),
    )
}

/// Returns the nibbles of group `group`, in the layout of Q4_K.
#[inline(always)]
pub(super) fn nibbles<I: Isa>(isa: I, qs: &[u8; 128], group: usize) -> I::Bytes {
    let q = isa.load(&qs.as_chunks::<32>().0[group / 2]);
    if group.is_multiple_of(2) { isa.and(q, isa.splat(15)) } else { isa.shr::<4>(q) }
}

impl Format for Q4K {
    const NAME: &'static str = "q4_k";
    const BLOCK: usize = 256;
    type Span = Block;
    type Quants = Offset<Unsigned<4>>;

    fn decode(b: &Block, out: &mut [f32; SPAN]) {
        for (g, o) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let (scale, offset) = b.scales.of_group(g);
            *o = from_fn(|i| {
                let q = b.qs[32 * (g / 2) + i] >> (4 * (g % 2)) & 15;
                scale * f32::from(q) - offset
            });
        }
    }

    #[inline(always)]
    fn scales<I: Isa>(isa: I, b: &Block) -> Scales<I> {
        b.scales.unpack(isa)
    }

    #[inline(always)]
    fn scales_of_rows<I: Isa>(isa: I, rows: [&Block; 8]) -> ScalesOfRows<I> {
        ScalesAndMinimums::unpack_rows(
            isa,
            map(
                rows,
                #[inline(always)]
                |b| &b.scales,
            ),
        )
    }

    /// Both groups are in the same bytes, which are transposed once.
    #[inline(always)]
    fn panels<I: Isa>(
        isa: I,
        rows: [&Block; 8],
        _: &[Shared<I>; 8],
        pair: usize,
        mut put: impl FnMut(usize, [I::Bytes; 8]),
    ) {
        let [[a, b, c, d], [e, f, g, h]] = map(
            [2 * pair, 2 * pair + 1],
            #[inline(always)]
            |half| {
                isa.panel_half(map(
                    rows,
                    #[inline(always)]
                    |b| &b.qs.as_chunks::<16>().0[half],
                ))
            },
        );
        let packed = [a, b, c, d, e, f, g, h];
        let low = map(
            packed,
            #[inline(always)]
            |line| isa.and(line, isa.splat(15)),
        );
        put(0, low);
        let high = map(
            packed,
            #[inline(always)]
            |line| isa.shr::<4>(line),
        );
        put(1, high);
    }

    #[inline(always)]
    fn quants<I: Isa>(isa: I, b: &Block, _: Shared<I>, group: usize) -> I::Bytes {
        nibbles(isa, &b.qs, group)
    }
}

impl ScalesAndMinimums {
    /// Packs the scales and minimums of a block.
    #[inline(always)]
    pub(super) fn pack(block: &AffineBlock<32, 8>) -> Self {
        let (scale, minimum) = (block.scales, block.minimums);
        let packed = from_fn(|i| match i {
            0..4 => scale[i] | (scale[i + 4] >> 4) << 6,
            4..8 => minimum[i - 4] | (minimum[i] >> 4) << 6,
            _ => scale[i - 4] & 15 | minimum[i - 4] << 4,
        });
        Self { d: block.d.to_le_bytes(), dmin: block.dmin.to_le_bytes(), packed }
    }
}

/// Quantizes a block with quants up to `quant`.
#[inline(always)]
pub(super) fn affine_block(
    weights: &[f32; 256],
    importance: Option<&[f32; 256]>,
    quant: f32,
    steps: RangeInclusive<i32>,
) -> AffineBlock<32, 8> {
    let levels = AffineLevels { quant, scale: 63.0, steps };
    AffineBlock::new(must_cast_ref(weights), importance.map(must_cast_ref), levels)
}

/// Packs the low 4 bits of quants in the layout of Q4_K.
#[inline(always)]
pub(super) fn low_nibbles(quants: &[[u8; 32]; 8]) -> [u8; 128] {
    from_fn(|i| quants[i / 32 * 2][i % 32] & 15 | quants[i / 32 * 2 + 1][i % 32] << 4)
}

impl Encode<256> for Q4K {
    type Block = Block;
    #[inline(always)]
    fn encode(weights: &[f32; 256], importance: Option<&[f32; 256]>) -> Block {
        let block = affine_block(weights, importance, 15.0, -10..=10);
        Block { scales: ScalesAndMinimums::pack(&block), qs: low_nibbles(&block.quants) }
    }
}
