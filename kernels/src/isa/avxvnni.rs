#![cfg(target_arch = "x86_64")]

use std::arch::x86_64::*;

use bytemuck::must_cast;

use super::{Avx2, Half, Isa, Kernel, avx2::on_32_bytes, pair::wide_as_pair};

/// AVX2 with the dot product of AVX-VNNI: laptops since Alder Lake, which lack AVX-512.
///
/// No emulator has AVX-VNNI. With this crate's feature `model-avxvnni`, it is AVX2 with a model of
/// the instruction in plain Rust, so that tests run on every CPU with AVX2.
#[derive(Clone, Copy)]
pub struct AvxVnni(Avx2);

#[cfg(not(feature = "model-avxvnni"))]
mod instruction {
    use std::arch::x86_64::*;

    /// Returns whether the running CPU has the instruction.
    pub fn available() -> bool {
        is_x86_feature_detected!("avxvnni")
    }

    /// Adds sums of four products of unsigned `w` and signed `a` to `acc`.
    #[target_feature(enable = "avx2,avxvnni")]
    #[inline]
    pub fn dpbusd(acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
        _mm256_dpbusd_avx_epi32(acc, w, a)
    }
}

#[cfg(feature = "model-avxvnni")]
mod instruction {
    use std::arch::x86_64::*;

    use bytemuck::must_cast;

    /// Returns true: a model needs no instruction.
    pub fn available() -> bool {
        true
    }

    /// Adds sums of four products of unsigned `w` and signed `a` to `acc`.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub fn dpbusd(acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
        let (mut acc, w, a): ([i32; 8], [u8; 32], [i8; 32]) =
            (must_cast(acc), must_cast(w), must_cast(a));
        for i in 0..32 {
            acc[i / 4] = acc[i / 4].wrapping_add(i32::from(w[i]) * i32::from(a[i]));
        }
        must_cast(acc)
    }
}

/// Implements [`AvxVnni`] on CPUs with `$features`.
macro_rules! avx_vnni {
    ($features:literal) => {
        impl AvxVnni {
            /// Returns a proof if the running CPU has these instructions.
            pub fn new() -> Option<Self> {
                Avx2::new().filter(|_| instruction::available()).map(Self)
            }

            operations! { $features:
                fn ints(self, x: i32) -> __m256i { _mm256_set1_epi32(x) }
                fn splat4(self, p: &[u8; 4]) -> __m256i { _mm256_set1_epi32(i32::from_ne_bytes(*p)) }
                fn dot_add(self, acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
                    instruction::dpbusd(acc, w, a)
                }
                fn load_ints(self, p: &[i32; 8]) -> __m256i { must_cast(*p) }
            }
            // The bias makes w unsigned; the initial value of the accumulator cancels its effect.
            #[inline(always)]
            fn dot_add_signed(self, acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
                self.dot_add(acc, w, a)
            }
        }

        /// Adds sums of four products of signed bytes to `acc`, as |w| times a with the sign of w.
        #[target_feature(enable = $features)]
        #[inline]
        fn add_signed_dot(acc: __m256i, w: __m256i, a: __m256i) -> __m256i {
            instruction::dpbusd(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(a, w))
        }

        impl Isa for AvxVnni {
            const INT_TILE: usize = 3;
            // Six fit, since there are no float sums in addition to the integer sums.
            const KEY_TILE: usize = 6;
            const FLOAT_TILE: usize = 6;
            const SIGNED_BIAS: u8 = 128;
            call_with!($features, K::FLOATS => 0);
            on_32_bytes!($features);
            wide_as_pair!();

            operations! { $features:
                fn dot_unsigned(self, w: __m256i, a: __m256i) -> __m256i {
                    instruction::dpbusd(_mm256_setzero_si256(), w, a)
                }
                fn dot_both_unsigned(self, w: [__m256i; 2], a: [__m256i; 2]) -> __m256i {
                    instruction::dpbusd(instruction::dpbusd(_mm256_setzero_si256(), w[0], a[0]), w[1], a[1])
                }
                fn dot_signed(self, w: __m256i, a: __m256i) -> __m256i {
                    add_signed_dot(_mm256_setzero_si256(), w, a)
                }
                fn dot_both_signed(self, w: [__m256i; 2], a: [__m256i; 2]) -> __m256i {
                    add_signed_dot(add_signed_dot(_mm256_setzero_si256(), w[0], a[0]), w[1], a[1])
                }
            }
        }
    };
}

#[cfg(not(feature = "model-avxvnni"))]
avx_vnni!("avx2,fma,f16c,avxvnni");
// Without AVX-VNNI: the compiler would use it wherever it can.
#[cfg(feature = "model-avxvnni")]
avx_vnni!("avx2,fma,f16c");
