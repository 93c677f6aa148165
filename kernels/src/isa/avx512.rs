#![cfg(target_arch = "x86_64")]

use std::arch::x86_64::*;

use bytemuck::must_cast;

use super::{Avx2, Half, Isa, Kernel, avx2::on_32_bytes};

/// AVX-512 with VL, BW and VNNI. Only wide vectors use 64-byte registers.
#[derive(Clone, Copy)]
pub struct Avx512(());

impl Avx512 {
    /// Returns a proof if the running CPU has these instructions.
    pub fn new() -> Option<Self> {
        let has = Avx2::new().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vnni");
        has.then_some(Self(()))
    }
}

/// Adds sums of four products of signed bytes to `acc`, as |w| times a with the sign of w.
#[target_feature(enable = "avx2,avx512f,avx512vl,avx512bw,avx512vnni")]
#[inline]
fn add_signed_dot(acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
    _mm256_dpbusd_epi32(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(a, w))
}

impl Avx512 {
    operations! { "avx2,avx512f,avx512vl,avx512bw,avx512vnni":
        fn wide_product_unsigned(self, acc: __m512i, w: __m512i, a: __m512i) -> __m512i {
            _mm512_dpbusd_epi32(acc, w, a)
        }
        fn wide_product_signed(self, acc: __m512i, w: __m512i, a: __m512i) -> __m512i {
            let negative = _mm512_movepi8_mask(w);
            let a = _mm512_mask_sub_epi8(a, negative, _mm512_setzero_si512(), a);
            _mm512_dpbusd_epi32(acc, _mm512_abs_epi8(w), a)
        }
    }
}

impl Isa for Avx512 {
    const SIGNED_BIAS: u8 = 128;
    // 32 registers, each a wide vector.
    const TILE_PANELS: usize = 2;
    const INT_TILE: usize = 6;
    // Eight fit, since there are no float sums in addition to the integer sums.
    const KEY_TILE: usize = 8;
    const FLOAT_TILE: usize = 8;
    const ATTENTION_TILE: usize = 8;
    const FEW_SCORE_SUMS: usize = 16;
    const FEW_VALUE_QUERIES: usize = 8;
    type WideBytes = __m512i;
    type WideInts = __m512i;
    type WideFloats = __m512;
    call_with!("avx2,fma,f16c,avx512f,avx512vl,avx512bw,avx512vnni");
    on_32_bytes!("avx2,fma,f16c,avx512f,avx512vl,avx512bw,avx512vnni");

    operations! { "avx2,avx512f,avx512vl,avx512bw,avx512vnni":
        fn dot_unsigned(self, w: __m256i, a: __m256i) -> __m256i {
            _mm256_dpbusd_epi32(_mm256_setzero_si256(), w, a)
        }
        fn dot_both_unsigned(self, w: [__m256i; 2], a: [__m256i; 2]) -> __m256i {
            _mm256_dpbusd_epi32(_mm256_dpbusd_epi32(_mm256_setzero_si256(), w[0], a[0]), w[1], a[1])
        }
        fn dot_signed(self, w: __m256i, a: __m256i) -> __m256i {
            add_signed_dot(_mm256_setzero_si256(), w, a)
        }
        fn dot_both_signed(self, w: [__m256i; 2], a: [__m256i; 2]) -> __m256i {
            add_signed_dot(add_signed_dot(_mm256_setzero_si256(), w[0], a[0]), w[1], a[1])
        }
        fn add_masked(self, a: __m256i, b: __m256i, negative: __m256i) -> __m256i {
            _mm256_mask_sub_epi8(_mm256_add_epi8(a, b), _mm256_movepi8_mask(negative), a, b)
        }
        fn wide_load(self, p: &[u8; 64]) -> __m512i { must_cast(*p) }
        fn wide_ints(self, x: i32) -> __m512i { _mm512_set1_epi32(x) }
        fn wide_dot_unsigned(self, acc: __m512i, w: __m512i, a: &[u8; 4]) -> __m512i {
            _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(i32::from_ne_bytes(*a)))
        }
        // The bias makes w unsigned; the initial value of the accumulator cancels its effect.
        fn wide_dot_signed(self, acc: __m512i, w: __m512i, a: &[u8; 4]) -> __m512i {
            _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(i32::from_ne_bytes(*a)))
        }
        fn wide_join(self, a: __m256i, b: __m256i) -> __m512i {
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(a), b)
        }
        fn wide_broadcast_in_halves<const N: i32>(self, a: __m256) -> __m512 {
            let lanes = [N, N + 4, N + 1, N + 5];
            let index: [[i32; 4]; 4] = [[lanes[0]; 4], [lanes[1]; 4], [lanes[2]; 4], [lanes[3]; 4]];
            _mm512_permutexvar_ps(must_cast(index), _mm512_castps256_ps512(a))
        }
        fn wide_from_bits(self, a: __m512i) -> __m512 { _mm512_castsi512_ps(a) }
        fn wide_to_floats(self, a: __m512i) -> __m512 { _mm512_cvtepi32_ps(a) }
        fn wide_load_f32(self, p: &[f32; 16]) -> __m512 { must_cast(*p) }
        fn wide_to_f32s(self, a: __m512) -> [f32; 16] { must_cast(a) }
        fn wide_splat(self, x: f32) -> __m512 { _mm512_set1_ps(x) }
        fn wide_splat_f16(self, x: Half) -> __m512 { _mm512_cvtph_ps(_mm256_set1_epi16(i16::from_le_bytes(x))) }
        fn wide_mul(self, a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        fn wide_mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }

        // Operations of attention, and of the element-wise steps.

        fn wide_halves(self, a: __m512) -> [__m256; 2] {
            let upper = _mm512_extractf64x4_pd::<1>(_mm512_castps_pd(a));
            [_mm512_castps512_ps256(a), _mm256_castpd_ps(upper)]
        }
        fn wide_from_f16(self, p: &[Half; 16]) -> __m512 { _mm512_cvtph_ps(must_cast(*p)) }
        fn wide_from_bf16(self, p: &[Half; 16]) -> __m512 {
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(must_cast(*p))))
        }
        fn wide_from_i8(self, p: &[u8; 16]) -> __m512 { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(must_cast(*p))) }
        // Looks up a table of all values; only the lowest four bits of an index are used.
        fn wide_from_nibbles<const SHIFT: i32>(self, p: &[u8; 16]) -> __m512 {
            let table = _mm512_setr_ps(-8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0);
            let index = _mm512_cvtepu8_epi32(must_cast(*p));
            _mm512_permutexvar_ps(if SHIFT == 0 { index } else { _mm512_srli_epi32::<4>(index) }, table)
        }
        fn wide_load_ints(self, p: &[i32; 16]) -> __m512i { must_cast(*p) }
        fn wide_dot_biased(self, acc: __m512i, w: __m512i, a: &[u8; 4]) -> __m512i {
            _mm512_dpbusd_epi32(acc, _mm512_set1_epi32(i32::from_ne_bytes(*a)), w)
        }
        fn wide_dot_by_unsigned(self, acc: __m512i, w: __m512i, a: &[u8; 4]) -> __m512i {
            _mm512_dpbusd_epi32(acc, _mm512_set1_epi32(i32::from_ne_bytes(*a)), w)
        }
        fn wide_bytes(self, a: [__m512; 4]) -> [u8; 64] {
            let [a, b, c, d] = crate::array::map(a, #[inline(always)] |a| _mm512_cvtps_epi32(a));
            let bytes = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
            let order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
            must_cast(_mm512_shuffle_epi8(bytes, order))
        }
        fn wide_add(self, a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
        fn wide_div(self, a: __m512, b: __m512) -> __m512 { _mm512_div_ps(a, b) }
        fn wide_neg_mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fnmadd_ps(a, b, c) }
        fn wide_max(self, a: __m512, b: __m512) -> __m512 { _mm512_max_ps(a, b) }
        fn wide_min(self, a: __m512, b: __m512) -> __m512 { _mm512_min_ps(a, b) }
        fn wide_round(self, a: __m512) -> __m512 {
            _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)
        }
        fn wide_power_of_two(self, a: __m512) -> __m512 {
            let exponent = _mm512_add_epi32(_mm512_cvtps_epi32(a), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(exponent))
        }
    }

    #[inline(always)]
    fn wide_products<const K: usize>(
        self,
        signed: bool,
        w: [__m512i; K],
        a: [__m512i; K],
    ) -> __m512i {
        let mut sum = self.wide_ints(0);
        for k in 0..K {
            sum = match signed {
                true => self.wide_product_signed(sum, w[k], a[k]),
                false => self.wide_product_unsigned(sum, w[k], a[k]),
            };
        }
        sum
    }
}
