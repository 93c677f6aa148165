#![cfg(target_arch = "x86_64")]

use std::arch::{asm, x86_64::*};

use bytemuck::must_cast;

use super::{CacheLine, Half, Isa, Kernel, pair::wide_as_pair};
use crate::array::{from_fn, map};

/// AVX2 with FMA and F16C.
#[derive(Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    /// Returns a proof if the running CPU has these instructions.
    pub fn new() -> Option<Self> {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        has.then_some(Self(()))
    }
}

/// Implements the operations on 32-byte registers that AVX2, AVX-VNNI and AVX-512 share.
macro_rules! on_32_bytes {
    ($features:literal) => {
        type Bytes = __m256i;
        type Ints = __m256i;
        type Floats = __m256;

        #[inline(always)]
        fn transpose(self, rows: [__m256i; 8]) -> [__m256i; 8] {
            must_cast(self.transpose_floats(must_cast(rows)))
        }

        #[inline(always)]
        #[allow(unsafe_code, reason = "prefetching takes a pointer")]
        fn prefetch(self, bytes: &[u8], at: usize) {
            if let Some(byte) = bytes.get(at) {
                // SAFETY: a prefetch reads nothing, and every x86-64 CPU has it.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) }
            }
        }

        operations! { $features:
            fn load(self, p: &[u8; 32]) -> __m256i { must_cast(*p) }
            fn to_bytes(self, a: __m256i) -> [u8; 32] { must_cast(a) }
            fn nibbles(self, p: &[u8; 16]) -> __m256i {
                let x: __m128i = must_cast(*p);
                _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16::<4>(x), x), _mm256_set1_epi8(15))
            }
            fn join(self, a: &[u8; 16], b: &[u8; 16]) -> __m256i {
                _mm256_set_m128i(must_cast(*b), must_cast(*a))
            }
            // Rows are joined as they are loaded, so that no lane is moved to the other half.
            fn transpose_half(self, rows: [&[u8; 16]; 8]) -> [__m256i; 4] {
                let [a, b, c, d] = $crate::array::from_fn(
                    #[inline(always)] |i| _mm256_set_m128i(must_cast(*rows[i + 4]), must_cast(*rows[i]))
                );
                let low = [_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d)];
                let high = [_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d)];
                [
                    _mm256_unpacklo_epi64(low[0], low[1]), _mm256_unpackhi_epi64(low[0], low[1]),
                    _mm256_unpacklo_epi64(high[0], high[1]), _mm256_unpackhi_epi64(high[0], high[1]),
                ]
            }
            fn evens_then_odds(self, a: __m256) -> __m256 {
                // Opaque for the reason given in `pair_halves`.
                let dealt = _mm256_permutevar8x32_ps(a, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
                must_cast($crate::isa::avx2::opaque(must_cast(dealt)))
            }
            fn widen(self, p: &[u8; 32]) -> [__m256i; 2] {
                let [a, b]: [__m128i; 2] = must_cast(*p);
                [_mm256_cvtepu8_epi16(a), _mm256_cvtepu8_epi16(b)]
            }
            fn narrow(self, a: [__m256i; 2]) -> __m256i {
                _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi16(a[0], a[1]))
            }
            fn repeat_halves(self, a: __m256i) -> [__m256i; 2] {
                [_mm256_permute2x128_si256::<0x00>(a, a), _mm256_permute2x128_si256::<0x11>(a, a)]
            }
            fn bit_mask_of(self, bits: __m256i, word: usize) -> __m256i {
                // Byte i becomes the byte of the word that holds bit i, masked to that bit.
                let source = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
                let source = _mm256_add_epi8(source, _mm256_set1_epi8(4 * word as i8));
                let bit = _mm256_set1_epi64x(0x8040201008040201u64 as i64);
                let bytes = _mm256_shuffle_epi8(bits, source);
                _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit)
            }
            fn splat(self, x: u8) -> __m256i { _mm256_set1_epi8(x as i8) }
            fn and(self, a: __m256i, b: __m256i) -> __m256i { _mm256_and_si256(a, b) }
            fn or(self, a: __m256i, b: __m256i) -> __m256i { _mm256_or_si256(a, b) }
            fn xor(self, a: __m256i, b: __m256i) -> __m256i { _mm256_xor_si256(a, b) }
            fn shr<const N: i32>(self, a: __m256i) -> __m256i {
                _mm256_and_si256(_mm256_srli_epi16::<N>(a), _mm256_set1_epi8((0xff >> N) as i8))
            }
            fn shl<const N: i32>(self, a: __m256i) -> __m256i {
                _mm256_and_si256(_mm256_slli_epi16::<N>(a), _mm256_set1_epi8((0xff << N) as i8))
            }
            fn shr16<const N: i32>(self, a: __m256i) -> __m256i { _mm256_srli_epi16::<N>(a) }
            fn shr32<const N: i32>(self, a: __m256i) -> __m256i { _mm256_srli_epi32::<N>(a) }
            fn shl32<const N: i32>(self, a: __m256i) -> __m256i { _mm256_slli_epi32::<N>(a) }
            fn sub(self, a: __m256i, b: __m256i) -> __m256i { _mm256_sub_epi8(a, b) }
            fn mul16(self, a: __m256i, b: __m256i) -> __m256i { _mm256_mullo_epi16(a, b) }
            fn at_least(self, a: __m256i, b: __m256i) -> __m256i { _mm256_cmpeq_epi8(_mm256_max_epu8(a, b), a) }
            fn lookup(self, table: &[u8; 16], indices: __m256i) -> __m256i {
                _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(must_cast(*table)), indices)
            }
            fn as_ints(self, a: __m256i) -> __m256i { a }
            fn to_floats(self, a: __m256i) -> __m256 { _mm256_cvtepi32_ps(a) }
            fn load_f32(self, p: &[f32; 8]) -> __m256 { must_cast(*p) }
            fn to_f32s(self, a: __m256) -> [f32; 8] { must_cast(a) }
            fn splat_f32(self, x: f32) -> __m256 { _mm256_set1_ps(x) }
            fn first_lanes(self, a: __m256, n: usize) -> __m256 {
                let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
                _mm256_and_ps(a, _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lanes)))
            }
            fn floats_from_f16(self, p: &[Half; 8]) -> __m256 { _mm256_cvtph_ps(must_cast(*p)) }
            fn f16_from_floats(self, a: __m256) -> [Half; 8] {
                must_cast(_mm256_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(a))
            }
            fn floats_from_bf16(self, p: &[Half; 8]) -> __m256 {
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(must_cast(*p))))
            }
            fn floats_from_i8(self, p: &[i8; 8]) -> __m256 {
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(must_cast(*p))))
            }
            fn floats_from_nibbles<const SHIFT: i32>(self, p: &[u8; 8]) -> __m256 {
                let x = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(must_cast(*p)));
                let low = _mm256_and_si256(x, _mm256_set1_epi32(15));
                let nibbles = if SHIFT == 0 { low } else { _mm256_srli_epi32::<4>(x) };
                _mm256_sub_ps(_mm256_cvtepi32_ps(nibbles), _mm256_set1_ps(8.0))
            }
            fn i8_from_floats(self, a: __m256) -> [i8; 8] {
                let i = _mm256_cvtps_epi32(a);
                let i = _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256::<1>(i));
                must_cast(_mm_cvtsi128_si64(_mm_packs_epi16(i, i)))
            }
            fn bytes_from_floats(self, a: [__m256; 4]) -> [u8; 32] {
                let [a, b, c, d] = crate::array::map(a, #[inline(always)] |a| _mm256_cvtps_epi32(a));
                let bytes = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
                let order = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
                must_cast(_mm256_shuffle_epi8(bytes, order))
            }
            fn f32_from_f16(self, x: Half) -> f32 {
                _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(u16::from_le_bytes(x).into())))
            }
            fn splat_f16(self, x: Half) -> __m256 { _mm256_cvtph_ps(_mm_set1_epi16(i16::from_le_bytes(x))) }
            fn pair_halves(self, a: __m256, b: __m256) -> [__m256; 2] {
                // Without `opaque`, the compiler merges this with the broadcasts that follow, into
                // two instructions for each group.
                let (first, last) = (_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b));
                let opaque = $crate::isa::avx2::opaque;
                [must_cast(opaque(must_cast(first))), must_cast(opaque(must_cast(last)))]
            }
            fn broadcast_in_halves<const N: i32>(self, a: __m256) -> __m256 { _mm256_permutevar_ps(a, _mm256_set1_epi32(N)) }
            fn add(self, a: __m256, b: __m256) -> __m256 { _mm256_add_ps(a, b) }
            fn mul(self, a: __m256, b: __m256) -> __m256 { _mm256_mul_ps(a, b) }
            fn div(self, a: __m256, b: __m256) -> __m256 { _mm256_div_ps(a, b) }
            fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 { _mm256_fmadd_ps(a, b, c) }
            fn neg_mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 { _mm256_fnmadd_ps(a, b, c) }
            fn max(self, a: __m256, b: __m256) -> __m256 { _mm256_max_ps(a, b) }
            fn min(self, a: __m256, b: __m256) -> __m256 { _mm256_min_ps(a, b) }
            fn abs(self, a: __m256) -> __m256 { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) }
            fn round(self, a: __m256) -> __m256 {
                _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)
            }
            fn power_of_two(self, a: __m256) -> __m256 {
                let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127));
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
            }
            fn transpose_floats(self, rows: [__m256; 8]) -> [__m256; 8] {
                let [a, b, c, d, e, f, g, h] = rows;
                let pairs = [
                    _mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b),
                    _mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d),
                    _mm256_unpacklo_ps(e, f), _mm256_unpackhi_ps(e, f),
                    _mm256_unpacklo_ps(g, h), _mm256_unpackhi_ps(g, h),
                ];
                let p = crate::array::map(pairs, #[inline(always)] |x| _mm256_castps_pd(x));
                let fours = [
                    _mm256_unpacklo_pd(p[0], p[2]), _mm256_unpackhi_pd(p[0], p[2]),
                    _mm256_unpacklo_pd(p[1], p[3]), _mm256_unpackhi_pd(p[1], p[3]),
                    _mm256_unpacklo_pd(p[4], p[6]), _mm256_unpackhi_pd(p[4], p[6]),
                    _mm256_unpacklo_pd(p[5], p[7]), _mm256_unpackhi_pd(p[5], p[7]),
                ];
                let q = crate::array::map(fours, #[inline(always)] |x| _mm256_castpd_ps(x));
                [
                    _mm256_permute2f128_ps::<0x20>(q[0], q[4]), _mm256_permute2f128_ps::<0x20>(q[1], q[5]),
                    _mm256_permute2f128_ps::<0x20>(q[2], q[6]), _mm256_permute2f128_ps::<0x20>(q[3], q[7]),
                    _mm256_permute2f128_ps::<0x31>(q[0], q[4]), _mm256_permute2f128_ps::<0x31>(q[1], q[5]),
                    _mm256_permute2f128_ps::<0x31>(q[2], q[6]), _mm256_permute2f128_ps::<0x31>(q[3], q[7]),
                ]
            }
            fn sum(self, a: __m256) -> f32 {
                let b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
                let c = _mm_add_ps(b, _mm_movehl_ps(b, b));
                _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)))
            }
            fn max_lane(self, a: __m256) -> f32 {
                let b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
                let c = _mm_max_ps(b, _mm_movehl_ps(b, b));
                _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)))
            }

            // Operations of attention.

            fn add_halves(self, a: __m256, b: __m256) -> __m256 {
                _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
            }
            fn add_quarters(self, a: __m256, b: __m256) -> __m256 {
                let (a, b) = (_mm256_castps_pd(a), _mm256_castps_pd(b));
                let (even, odd) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
                _mm256_add_ps(_mm256_castpd_ps(even), _mm256_castpd_ps(odd))
            }
            fn add_pairs(self, a: __m256, b: __m256) -> __m256 {
                _mm256_add_ps(_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xdd>(a, b))
            }
        }
    };
}
pub(super) use on_32_bytes;

/// Returns `a`, hidden from the optimizer, which therefore computes it in place.
#[allow(unsafe_code, reason = "inline assembly")]
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn opaque(a: __m256i) -> __m256i {
    let mut a = a;
    // SAFETY: the assembly contains no instruction.
    unsafe { asm!("/* {0} */", inout(ymm_reg) a, options(nomem, nostack, preserves_flags)) }
    a
}

impl Avx2 {
    operations! { "avx2":
        fn ints(self, x: i32) -> __m256i { _mm256_set1_epi32(x) }
        fn splat4(self, p: &[u8; 4]) -> __m256i { _mm256_set1_epi32(i32::from_ne_bytes(*p)) }
        fn dot_add(self, acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
            _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(w, a), _mm256_set1_epi16(1)))
        }
        fn dot_pairs(self, w: __m256i, a: __m256i) -> __m256i { _mm256_maddubs_epi16(w, a) }
        fn add_pairs(self, a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi16(a, b) }
        fn add_up_pairs(self, acc: __m256i, a: __m256i) -> __m256i {
            _mm256_add_epi32(acc, _mm256_madd_epi16(a, _mm256_set1_epi16(1)))
        }
        // |w| times (a with the sign of w) equals w times a, and the first factor is unsigned.
        fn dot_add_signed(self, acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
            let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
            _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
        fn magnitudes(self, w: __m256i) -> __m256i { _mm256_abs_epi8(w) }
        fn negative(self, w: __m256i) -> __m256i { _mm256_cmpgt_epi8(_mm256_setzero_si256(), w) }
        fn add_ints(self, a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi32(a, b) }
        fn load_ints(self, p: &[i32; 8]) -> __m256i { must_cast(*p) }
        // Fixes the order of sums of many products. The compiler would compute one token after the
        // other, and then hold more cache lines of a panel than there are registers.
        fn in_place(self, sum: __m256i) -> __m256i { opaque(sum) }
    }
}

impl Avx2 {
    /// Adds sums of four products of signed `w` and `a` to `acc`, less the magnitudes of negative `w`.
    ///
    /// If `w` is negative, `w a = |w| (-a - 1) + |w|`, and `-a - 1` is `a` with all bits inverted. The
    /// last term is the same for all `a`. `vpsignb` computes `-a`, but on AMD's CPUs it takes the units
    /// of multiplications, which limit the speed.
    #[inline(always)]
    fn dot_less_terms(self, acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
        self.dot_add(acc, self.magnitudes(w), self.xor(a, self.negative(w)))
    }

    /// Computes [`Isa::wide_dots`] with `add`, which adds the products of `K` cache lines, 1 or 2, to a
    /// sum.
    #[inline(always)]
    fn dots_by<const K: usize, const W: usize, const N: usize>(
        self,
        w: [&[CacheLine]; W],
        a: [&[[u8; 4]]; N],
        start: [i32; N],
        add: impl Fn(__m256i, [__m256i; K], [__m256i; K]) -> __m256i,
    ) -> [[<Self as Isa>::WideInts; N]; W] {
        // The compiler unrolls a loop over this many cache lines, but not one over all of them,
        // which takes a fifth more instructions.
        const LINES: usize = 4;
        debug_assert!(a[0].len().is_multiple_of(LINES));
        let w = map(
            w,
            #[inline(always)]
            |w| w.as_chunks::<LINES>().0,
        );
        let a = map(
            a,
            #[inline(always)]
            |a| a.as_chunks::<LINES>().0,
        );
        let mut sums = [map(
            start,
            #[inline(always)]
            |start| self.wide_ints(start),
        ); W];
        for lines in 0..a[0].len() {
            for j in (0..LINES).step_by(K) {
                for i in 0..W {
                    let w: [_; K] = from_fn(
                        #[inline(always)]
                        |k| self.wide_load(&w[i][lines][j + k].0),
                    );
                    for t in 0..N {
                        let a = from_fn(
                            #[inline(always)]
                            |k| self.splat4(&a[t][lines][j + k]),
                        );
                        for half in 0..2 {
                            let w = map(
                                w,
                                #[inline(always)]
                                |w| w[half],
                            );
                            let sum = &mut sums[i][t][half];
                            *sum = self.in_place(add(*sum, w, a));
                        }
                    }
                }
            }
        }
        sums
    }
}

impl Isa for Avx2 {
    // Four would spill registers. That costs more than it saves if another program runs on the same
    // core.
    const INT_TILE: usize = 3;
    const SIGNED_TERMS: bool = true;
    // Four fit, since there are no float sums in addition to the integer sums.
    const KEY_TILE: usize = 4;
    const FLOAT_TILE: usize = 6;
    call_with!("avx2,fma,f16c");
    on_32_bytes!("avx2,fma,f16c");
    wide_as_pair!();

    #[inline(always)]
    fn wide_dots<const W: usize, const N: usize>(
        self,
        signed: bool,
        bits: u32,
        w: [&[CacheLine]; W],
        a: [&[[u8; 4]]; N],
        start: [i32; N],
    ) -> [[Self::WideInts; N]; W] {
        let lines = (128 >> bits).min(w[0].len());
        if signed {
            return self.dots_by(
                w,
                a,
                start,
                #[inline(always)]
                |sum, [w], [a]| self.dot_add_signed(sum, w, a),
            );
        }
        if lines == 1 {
            return self.dots_by(
                w,
                a,
                start,
                #[inline(always)]
                |sum, [w], [a]| self.dot_add(sum, w, a),
            );
        }
        if lines == 2 {
            return self.dots_by(
                w,
                a,
                start,
                #[inline(always)]
                |sum, w: [_; 2], a| {
                    let pairs = [self.dot_pairs(w[0], a[0]), self.dot_pairs(w[1], a[1])];
                    self.add_up_pairs(sum, self.add_pairs(pairs[0], pairs[1]))
                },
            );
        }
        // Sums of several products of small weights fit in 16 bits, so only their sum is widened.
        // A cache line adds two products, less than `2 * 2^7 * 2^bits`.
        let mut sums = [map(
            start,
            #[inline(always)]
            |start| self.wide_ints(start),
        ); W];
        for first in (0..w[0].len()).step_by(lines) {
            let mut pairs = [[[self.splat(0); 2]; N]; W];
            for j in first..first + lines {
                for i in 0..W {
                    let w = self.wide_load(&w[i][j].0);
                    for t in 0..N {
                        let a = self.splat4(&a[t][j]);
                        for half in 0..2 {
                            let (w, sum) = (w[half], &mut pairs[i][t][half]);
                            *sum = self.in_place(self.add_pairs(*sum, self.dot_pairs(w, a)));
                        }
                    }
                }
            }
            for i in 0..W {
                for t in 0..N {
                    for half in 0..2 {
                        let sum = &mut sums[i][t][half];
                        *sum = self.add_up_pairs(*sum, pairs[i][t][half]);
                    }
                }
            }
        }
        sums
    }

    #[inline(always)]
    fn wide_dot_less_terms(
        self,
        acc: Self::WideInts,
        w: Self::WideBytes,
        a: &[u8; 4],
    ) -> Self::WideInts {
        let a = self.splat4(a);
        [self.dot_less_terms(acc[0], w[0], a), self.dot_less_terms(acc[1], w[1], a)]
    }

    #[inline(always)]
    fn signed_terms(self, quants: &[CacheLine]) -> CacheLine {
        let mut sums = [self.ints(0); 2];
        for line in quants {
            let w = self.wide_load(&line.0);
            for half in 0..2 {
                let below = self.and(self.magnitudes(w[half]), self.negative(w[half]));
                sums[half] = self.dot_add(sums[half], below, self.splat(1));
            }
        }
        must_cast(sums)
    }

    #[inline(always)]
    fn panel_dots<const W: usize, const N: usize>(
        self,
        signed: bool,
        bits: u32,
        w: [&[CacheLine]; W],
        a: [&[[u8; 4]]; N],
        start: [i32; N],
    ) -> [[Self::WideInts; N]; W] {
        if !signed {
            return self.wide_dots(signed, bits, w, a, start);
        }
        let mut sums = self.dots_by(
            w,
            a,
            start,
            #[inline(always)]
            |sum, [w], [a]| self.dot_less_terms(sum, w, a),
        );
        for i in 0..W {
            let terms = self.wide_load(&w[i][a[0].len()].0);
            for t in 0..N {
                for half in 0..2 {
                    sums[i][t][half] = self.add_ints(sums[i][t][half], terms[half]);
                }
            }
        }
        sums
    }

    #[inline(always)]
    fn dot_both_unsigned(self, w: [__m256i; 2], a: [__m256i; 2]) -> __m256i {
        // The sum of four products is less than 4 * 63 * 127 < 2^15.
        let pairs = self.add_pairs(self.dot_pairs(w[0], a[0]), self.dot_pairs(w[1], a[1]));
        self.add_up_pairs(self.ints(0), pairs)
    }
    #[inline(always)]
    fn dot_unsigned(self, w: __m256i, a: __m256i) -> __m256i {
        self.dot_add(self.ints(0), w, a)
    }
    #[inline(always)]
    fn dot_signed(self, w: __m256i, a: __m256i) -> __m256i {
        self.dot_add_signed(self.ints(0), w, a)
    }
    #[inline(always)]
    fn dot_both_signed(self, w: [__m256i; 2], a: [__m256i; 2]) -> __m256i {
        self.dot_add_signed(self.dot_signed(w[0], a[0]), w[1], a[1])
    }
}
