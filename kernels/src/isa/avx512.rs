use std::arch::x86_64::*;

use bytemuck::must_cast;

use super::{Avx2, Half, Isa, Kernel, avx2::on_32_bytes};

/// AVX-512 with VL, BW and VNNI; 64-byte registers for tiles alone.
#[derive(Clone, Copy)]
pub struct Avx512(());

impl Avx512 {
    /// Proof, if the running CPU has these instructions.
    pub fn new() -> Option<Self> {
        let has = Avx2::new().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vnni");
        has.then_some(Self(()))
    }
}

impl Isa for Avx512 {
    const NAME: &'static str = "avx512";
    const INT_TILE: usize = 8;
    const FLOAT_TILE: usize = 8;
    const SIGNED_BIAS: u8 = 128;
    type WideBytes = __m512i;
    type WideInts = __m512i;
    type WideFloats = __m512;
    on_32_bytes!("avx2,fma,f16c,avx512f,avx512vl,avx512bw,avx512vnni");

    operations! { "avx2,avx512f,avx512vl,avx512bw,avx512vnni":
        fn dot_unsigned(self, w: __m256i, a: __m256i) -> __m256i {
            _mm256_dpbusd_epi32(_mm256_setzero_si256(), w, a)
        }
        fn dot_signed(self, w: __m256i, a: __m256i) -> __m256i {
            _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_abs_epi8(w), _mm256_sign_epi8(a, w))
        }
        fn wide_load(self, p: &[u8; 64]) -> __m512i { must_cast(*p) }
        fn wide_ints(self, x: i32) -> __m512i { _mm512_set1_epi32(x) }
        fn wide_dot_unsigned(self, acc: __m512i, w: __m512i, a: &[u8; 4]) -> __m512i {
            _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(i32::from_ne_bytes(*a)))
        }
        // The bias makes w unsigned; the accumulator was started with what it adds too much.
        fn wide_dot_signed(self, acc: __m512i, w: __m512i, a: &[u8; 4]) -> __m512i {
            _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(i32::from_ne_bytes(*a)))
        }
        fn wide_to_floats(self, a: __m512i) -> __m512 { _mm512_cvtepi32_ps(a) }
        fn wide_load_f32(self, p: &[f32; 16]) -> __m512 { must_cast(*p) }
        fn wide_to_f32s(self, a: __m512) -> [f32; 16] { must_cast(a) }
        fn wide_splat(self, x: f32) -> __m512 { _mm512_set1_ps(x) }
        fn wide_mul(self, a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        fn wide_mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
    }
}
