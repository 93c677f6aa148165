#![cfg(target_arch = "aarch64")]

use std::arch::{aarch64::*, asm};

use bytemuck::must_cast;

use super::{Half, Isa, Kernel, pair::wide_as_pair};

/// NEON with the dot-product extension. Two 16-byte registers hold a narrow vector.
#[derive(Clone, Copy)]
pub struct Neon(());

impl Neon {
    /// Returns a proof if the running CPU has these instructions.
    pub fn new() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("dotprod").then_some(Self(()))
    }
}

pub(super) type Bytes = [uint8x16_t; 2];
pub(super) type Ints = [int32x4_t; 2];
pub(super) type Floats = [float32x4_t; 2];

/// Implements the operations on pairs of 16-byte registers that NEON and I8MM share.
macro_rules! on_16_bytes {
    ($features:literal) => {
        type Bytes = Bytes;
        type Ints = Ints;
        type Floats = Floats;
        wide_as_pair!();

        #[inline(always)]
        fn transpose(self, rows: [Bytes; 8]) -> [Bytes; 8] {
            must_cast(self.transpose_floats(must_cast(rows)))
        }

        operations! { $features:
            fn transpose_floats(self, rows: [Floats; 8]) -> [Floats; 8] {
                // Transposes a quarter of 4 x 4 elements: rows `from ..`, half `half` of their
                // elements.
                let block = |from: usize, half: usize| {
                    let [a, b, c, d]: [float32x4_t; 4] = crate::array::from_fn(|i| rows[from + i][half]);
                    let ab = [vtrn1q_f32(a, b), vtrn2q_f32(a, b)].map(|x| vreinterpretq_f64_f32(x));
                    let cd = [vtrn1q_f32(c, d), vtrn2q_f32(c, d)].map(|x| vreinterpretq_f64_f32(x));
                    [
                        vtrn1q_f64(ab[0], cd[0]), vtrn1q_f64(ab[1], cd[1]),
                        vtrn2q_f64(ab[0], cd[0]), vtrn2q_f64(ab[1], cd[1]),
                    ].map(|x| vreinterpretq_f32_f64(x))
                };
                let [a, b, c, d] = [block(0, 0), block(4, 0), block(0, 1), block(4, 1)];
                crate::array::from_fn(|j| if j < 4 { [a[j], b[j]] } else { [c[j - 4], d[j - 4]] })
            }
            fn load(self, p: &[u8; 32]) -> Bytes { must_cast(*p) }
            fn to_bytes(self, a: Bytes) -> [u8; 32] { must_cast(a) }
            fn nibbles(self, p: &[u8; 16]) -> Bytes {
                let x = must_cast(*p);
                [vandq_u8(x, vdupq_n_u8(15)), vshrq_n_u8::<4>(x)]
            }
            fn join(self, a: &[u8; 16], b: &[u8; 16]) -> Bytes { [must_cast(*a), must_cast(*b)] }
            fn evens_then_odds(self, a: Floats) -> Floats { [vuzp1q_f32(a[0], a[1]), vuzp2q_f32(a[0], a[1])] }
            fn widen(self, p: &[u8; 32]) -> [Bytes; 2] {
                let (halves, zero): (Bytes, _) = (must_cast(*p), vdupq_n_u8(0));
                halves.map(|half| [vzip1q_u8(half, zero), vzip2q_u8(half, zero)])
            }
            fn narrow(self, a: [Bytes; 2]) -> Bytes { a.map(|[a, b]| vuzp1q_u8(a, b)) }
            fn repeat_halves(self, a: Bytes) -> [Bytes; 2] { a.map(|half| [half; 2]) }
            fn bit_mask_of(self, bits: Bytes, word: usize) -> Bytes {
                let bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
                let first = 4 * word as u8;
                [0, 2].map(|byte| {
                    let source = vcombine_u8(vdup_n_u8(first + byte), vdup_n_u8(first + byte + 1));
                    vtstq_u8(vqtbl1q_u8(bits[usize::from(byte) / 2], source), bit)
                })
            }
            fn splat(self, x: u8) -> Bytes { [vdupq_n_u8(x); 2] }
            fn and(self, a: Bytes, b: Bytes) -> Bytes { [vandq_u8(a[0], b[0]), vandq_u8(a[1], b[1])] }
            fn or(self, a: Bytes, b: Bytes) -> Bytes { [vorrq_u8(a[0], b[0]), vorrq_u8(a[1], b[1])] }
            fn xor(self, a: Bytes, b: Bytes) -> Bytes { [veorq_u8(a[0], b[0]), veorq_u8(a[1], b[1])] }
            fn shr<const N: i32>(self, a: Bytes) -> Bytes { [vshrq_n_u8::<N>(a[0]), vshrq_n_u8::<N>(a[1])] }
            fn shl<const N: i32>(self, a: Bytes) -> Bytes { [vshlq_n_u8::<N>(a[0]), vshlq_n_u8::<N>(a[1])] }
            fn shr16<const N: i32>(self, a: Bytes) -> Bytes {
                a.map(|half| vreinterpretq_u8_u16(vshrq_n_u16::<N>(vreinterpretq_u16_u8(half))))
            }
            fn shr32<const N: i32>(self, a: Bytes) -> Bytes {
                a.map(|half| vreinterpretq_u8_u32(vshrq_n_u32::<N>(vreinterpretq_u32_u8(half))))
            }
            fn shl32<const N: i32>(self, a: Bytes) -> Bytes {
                a.map(|half| vreinterpretq_u8_u32(vshlq_n_u32::<N>(vreinterpretq_u32_u8(half))))
            }
            fn sub(self, a: Bytes, b: Bytes) -> Bytes { [vsubq_u8(a[0], b[0]), vsubq_u8(a[1], b[1])] }
            fn mul16(self, a: Bytes, b: Bytes) -> Bytes {
                let mul = |a, b| vmulq_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b));
                [vreinterpretq_u8_u16(mul(a[0], b[0])), vreinterpretq_u8_u16(mul(a[1], b[1]))]
            }
            fn mul_bytes(self, a: Bytes, b: Bytes) -> Bytes { [vmulq_u8(a[0], b[0]), vmulq_u8(a[1], b[1])] }
            fn at_least(self, a: Bytes, b: Bytes) -> Bytes { [vcgeq_u8(a[0], b[0]), vcgeq_u8(a[1], b[1])] }
            fn lookup(self, table: &[u8; 16], indices: Bytes) -> Bytes {
                let table = must_cast(*table);
                [vqtbl1q_u8(table, indices[0]), vqtbl1q_u8(table, indices[1])]
            }
            fn dot_unsigned(self, w: Bytes, a: Bytes) -> Ints {
                [$crate::isa::neon::sdot(vdupq_n_s32(0), w[0], a[0]), $crate::isa::neon::sdot(vdupq_n_s32(0), w[1], a[1])]
            }
            fn dot_both_unsigned(self, w: [Bytes; 2], a: [Bytes; 2]) -> Ints { $crate::isa::neon::dot_both(w, a) }
            fn dot_signed(self, w: Bytes, a: Bytes) -> Ints {
                [$crate::isa::neon::sdot(vdupq_n_s32(0), w[0], a[0]), $crate::isa::neon::sdot(vdupq_n_s32(0), w[1], a[1])]
            }
            fn dot_both_signed(self, w: [Bytes; 2], a: [Bytes; 2]) -> Ints { $crate::isa::neon::dot_both(w, a) }
            fn as_ints(self, a: Bytes) -> Ints { a.map(|half| vreinterpretq_s32_u8(half)) }
            fn to_floats(self, a: Ints) -> Floats { [vcvtq_f32_s32(a[0]), vcvtq_f32_s32(a[1])] }
            fn load_f32(self, p: &[f32; 8]) -> Floats { must_cast(*p) }
            fn to_f32s(self, a: Floats) -> [f32; 8] { must_cast(a) }
            fn splat_f32(self, x: f32) -> Floats { [vdupq_n_f32(x); 2] }
            fn first_lanes(self, a: Floats, n: usize) -> Floats {
                let (n, lanes): (_, [uint32x4_t; 2]) = (vdupq_n_u32(n as u32), must_cast([0u32, 1, 2, 3, 4, 5, 6, 7]));
                let keep = |i: usize| {
                    vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(a[i]), vcltq_u32(lanes[i], n)))
                };
                [keep(0), keep(1)]
            }
            fn floats_from_f16(self, p: &[Half; 8]) -> Floats {
                let h: uint16x8_t = must_cast(*p);
                [vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(h))), vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(h)))]
            }
            fn f16_from_floats(self, a: Floats) -> [Half; 8] {
                must_cast([vreinterpret_u16_f16(vcvt_f16_f32(a[0])), vreinterpret_u16_f16(vcvt_f16_f32(a[1]))])
            }
            fn floats_from_bf16(self, p: &[Half; 8]) -> Floats {
                let h: uint16x8_t = must_cast(*p);
                [vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(h))), vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_high_u16(h)))]
            }
            fn floats_from_i8(self, p: &[i8; 8]) -> Floats {
                $crate::isa::neon::floats_from_bytes(must_cast(*p))
            }
            fn floats_from_nibbles<const SHIFT: i32>(self, p: &[u8; 8]) -> Floats {
                let x: uint8x8_t = must_cast(*p);
                let nibbles = if SHIFT == 0 { vand_u8(x, vdup_n_u8(15)) } else { vshr_n_u8::<4>(x) };
                $crate::isa::neon::floats_from_bytes(vreinterpret_s8_u8(vsub_u8(nibbles, vdup_n_u8(8))))
            }
            fn i8_from_floats(self, a: Floats) -> [i8; 8] {
                let i = vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(a[0])), vqmovn_s32(vcvtnq_s32_f32(a[1])));
                must_cast(vqmovn_s16(i))
            }
            fn bytes_from_floats(self, a: [Floats; 4]) -> [u8; 32] {
                let half = |half: usize| {
                    let [a, b, c, d]: [int32x4_t; 4] = crate::array::map(a, #[inline(always)] |a| vcvtnq_s32_f32(a[half]));
                    // Each shift inserts above the byte that is kept.
                    let cd = vsliq_n_s32::<8>(c, d);
                    vreinterpretq_u8_s32(vsliq_n_s32::<8>(a, vsliq_n_s32::<8>(b, cd)))
                };
                must_cast([half(0), half(1)])
            }
            fn f32_from_f16(self, x: Half) -> f32 {
                vgetq_lane_f32::<0>(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(u16::from_le_bytes(x)))))
            }
            fn pair_halves(self, a: Floats, b: Floats) -> [Floats; 2] { [[a[0], b[0]], [a[1], b[1]]] }
            fn broadcast_in_halves<const N: i32>(self, a: Floats) -> Floats { [vdupq_laneq_f32::<N>(a[0]), vdupq_laneq_f32::<N>(a[1])] }
            fn add(self, a: Floats, b: Floats) -> Floats { [vaddq_f32(a[0], b[0]), vaddq_f32(a[1], b[1])] }
            fn mul(self, a: Floats, b: Floats) -> Floats { [vmulq_f32(a[0], b[0]), vmulq_f32(a[1], b[1])] }
            fn div(self, a: Floats, b: Floats) -> Floats { [vdivq_f32(a[0], b[0]), vdivq_f32(a[1], b[1])] }
            fn mul_add(self, a: Floats, b: Floats, c: Floats) -> Floats { [vfmaq_f32(c[0], a[0], b[0]), vfmaq_f32(c[1], a[1], b[1])] }
            fn neg_mul_add(self, a: Floats, b: Floats, c: Floats) -> Floats { [vfmsq_f32(c[0], a[0], b[0]), vfmsq_f32(c[1], a[1], b[1])] }
            fn max(self, a: Floats, b: Floats) -> Floats { [vmaxq_f32(a[0], b[0]), vmaxq_f32(a[1], b[1])] }
            fn min(self, a: Floats, b: Floats) -> Floats { [vminq_f32(a[0], b[0]), vminq_f32(a[1], b[1])] }
            fn abs(self, a: Floats) -> Floats { [vabsq_f32(a[0]), vabsq_f32(a[1])] }
            fn round(self, a: Floats) -> Floats { [vrndnq_f32(a[0]), vrndnq_f32(a[1])] }
            fn power_of_two(self, a: Floats) -> Floats {
                let one = vdupq_n_s32(127);
                [
                    vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtnq_s32_f32(a[0]), one))),
                    vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtnq_s32_f32(a[1]), one))),
                ]
            }

            // Operations of attention.

            fn add_halves(self, a: Floats, b: Floats) -> Floats { [vaddq_f32(a[0], a[1]), vaddq_f32(b[0], b[1])] }
            fn add_quarters(self, a: Floats, b: Floats) -> Floats {
                crate::array::from_fn(|i| {
                    let (a, b) = (vreinterpretq_f64_f32(a[i]), vreinterpretq_f64_f32(b[i]));
                    vaddq_f32(vreinterpretq_f32_f64(vtrn1q_f64(a, b)), vreinterpretq_f32_f64(vtrn2q_f64(a, b)))
                })
            }
            fn add_pairs(self, a: Floats, b: Floats) -> Floats { [vpaddq_f32(a[0], b[0]), vpaddq_f32(a[1], b[1])] }
        }
    };
}
pub(super) use on_16_bytes;

/// Returns the sums of products of both pairs of vectors.
#[target_feature(enable = "neon,dotprod")]
#[inline]
pub(super) fn dot_both(w: [Bytes; 2], a: [Bytes; 2]) -> Ints {
    let half = |i: usize| sdot(sdot(vdupq_n_s32(0), w[0][i], a[0][i]), w[1][i], a[1][i]);
    [half(0), half(1)]
}

/// Adds sums of four products to `acc`. The intrinsic, `vdotq_s32`, is not stable in Rust 1.95.
#[target_feature(enable = "neon,dotprod")]
#[inline]
#[allow(unsafe_code, reason = "no stable intrinsic for this instruction")]
pub(super) fn sdot(mut acc: int32x4_t, a: uint8x16_t, b: uint8x16_t) -> int32x4_t {
    // SAFETY: the instruction accesses only the registers named, and the function enables its
    // feature.
    unsafe {
        asm!(
            "sdot {c:v}.4s, {a:v}.16b, {b:v}.16b",
            c = inout(vreg) acc, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    acc
}

/// Converts signed bytes to floats.
#[target_feature(enable = "neon,dotprod")]
#[inline]
pub(super) fn floats_from_bytes(bytes: int8x8_t) -> Floats {
    let h = vmovl_s8(bytes);
    [vcvtq_f32_s32(vmovl_s16(vget_low_s16(h))), vcvtq_f32_s32(vmovl_high_s16(h))]
}

impl Neon {
    operations! { "neon,dotprod":
        fn load_ints(self, p: &[i32; 8]) -> Ints { must_cast(*p) }
        fn ints(self, x: i32) -> Ints { [vdupq_n_s32(x); 2] }
        fn splat4(self, p: &[u8; 4]) -> Bytes { [vreinterpretq_u8_u32(vdupq_n_u32(u32::from_ne_bytes(*p))); 2] }
        fn dot_add(self, acc: Ints, w: Bytes, a: Bytes) -> Ints { [sdot(acc[0], w[0], a[0]), sdot(acc[1], w[1], a[1])] }
    }
    #[inline(always)]
    fn dot_add_signed(self, acc: Ints, w: Bytes, a: Bytes) -> Ints {
        self.dot_add(acc, w, a)
    }
}

impl Isa for Neon {
    const INT_TILE: usize = 3;
    const FLOAT_TILE: usize = 6;
    call_with!("neon,dotprod");
    on_16_bytes!("neon,dotprod");
}
