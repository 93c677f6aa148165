//! Instruction sets, each reduced to the few vector operations that the kernels use.
//!
//! A value of a type that implements [`Isa`] is proof that the running CPU has those
//! instructions, so every operation on it is safe. With the dot product of NEON, and an empty
//! assembly of AVX2 that hides a value from the compiler, the macros below hold the only `unsafe`
//! arithmetic of the program.

use bytemuck::{Pod, Zeroable, must_cast_mut, must_cast_ref};

use crate::array::map;

/// Defines operations of an instruction set in terms of its intrinsics.
///
/// Each becomes a method whose body is compiled with the instruction set enabled, so the
/// intrinsics in it are safe to call; the method itself is safe because `self` is proof.
macro_rules! operations {
    ($features:literal: $(
        fn $name:ident $(<const $n:ident: i32>)? (self $(, $arg:ident: $ty:ty)* $(,)?) -> $ret:ty $body:block
    )*) => { $(
        #[inline(always)]
        #[allow(unsafe_code, reason = "the value this is called on is proof of the instruction set")]
        fn $name $(<const $n: i32>)? (self $(, $arg: $ty)*) -> $ret {
            #[target_feature(enable = $features)]
            #[inline]
            fn op $(<const $n: i32>)? ($($arg: $ty),*) -> $ret $body
            // SAFETY: a value of this type exists only on a CPU with `$features`.
            unsafe { op $(::<$n>)? ($($arg),*) }
        }
    )* };
}

/// Implements [`Isa::call`] for a type that is proof of `$features`.
macro_rules! call_with {
    ($features:literal) => {
        #[inline(never)]
        #[allow(
            unsafe_code,
            reason = "the value this is called on is proof of the instruction set"
        )]
        fn call<K: Kernel>(self, kernel: K) -> K::Output {
            #[target_feature(enable = $features)]
            fn enabled<K: Kernel>(isa: impl Isa, kernel: K) -> K::Output {
                kernel.run(isa)
            }
            // SAFETY: a value of this type exists only on a CPU with `$features`.
            unsafe { enabled(self, kernel) }
        }
    };
}

mod pair;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avxvnni;
mod cpu;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
#[cfg(target_arch = "x86_64")]
pub use avxvnni::AvxVnni;
pub use cpu::Cpu;
#[cfg(target_arch = "aarch64")]
pub use neon::Neon;
pub use scalar::Scalar;

/// A half-precision number as in a file, of either format; of no alignment.
pub type Half = [u8; 2];

/// A computation that is written once and compiled for every instruction set.
///
/// Mark `run`, and every generic function that it calls, `#[inline(always)]`: one that is not
/// inlined is compiled without the instruction set, and each of its operations becomes a call.
pub trait Kernel {
    /// What the computation returns.
    type Output;
    /// The computation.
    fn run<I: Isa>(self, isa: I) -> Self::Output;
}

/// Vector operations on 32 bytes, 8 `i32` and 8 `f32`, whatever the registers' width, and on
/// [`LANES`] lanes for tiles whose lanes are independent of each other.
///
/// Every operation gives the same bits on every instruction set.
pub trait Isa: Copy + 'static {
    /// The name on the command line.
    const NAME: &'static str;
    /// The value that is added (modulo 256) to signed weights in a panel: 128 if the dot product of
    /// the instruction set takes an unsigned first factor, otherwise 0.
    const SIGNED_BIAS: u8 = 0;

    // Sizes of tiles, such that their accumulators stay in registers. No result depends on them.

    /// Panels in a tile of [`Regime::Many`](crate::Regime::Many): 1 or 2. In attention, panels of 16
    /// queries for scores, and vectors of 16 values for weighted values.
    const TILE_PANELS: usize = 1;
    /// Tokens in a tile of the product with quantized weights.
    const INT_TILE: usize;
    /// Tokens in a tile of the product with floating-point weights.
    const FLOAT_TILE: usize;
    /// Many queries: keys in a tile of float scores, and queries in a tile of weighted values.
    const ATTENTION_TILE: usize = 6;
    /// Many queries: keys in a tile of integer scores.
    const KEY_TILE: usize = Self::INT_TILE;
    /// A few queries: accumulators of float scores, one for each pair of a query and a key.
    const FEW_SCORE_SUMS: usize = 4;
    /// A few queries: queries in a tile of integer scores.
    const FEW_INT_QUERIES: usize = 1;
    /// A few queries: queries in a tile of weighted values.
    const FEW_VALUE_QUERIES: usize = 2;

    /// 32 bytes.
    type Bytes: Copy;
    /// 8 `i32`.
    type Ints: Copy;
    /// 8 `f32`.
    type Floats: Copy;
    /// `4 * LANES` bytes.
    type WideBytes: Copy;
    /// `LANES` `i32`.
    type WideInts: Copy;
    /// `LANES` `f32`.
    type WideFloats: Copy;

    /// Runs `kernel` with this instruction set enabled.
    fn call<K: Kernel>(self, kernel: K) -> K::Output;

    /// Asks for the line of `bytes[at]`, which will be read soon. Nothing happens beyond the end,
    /// or where the machine needs no such hint.
    #[inline(always)]
    fn prefetch(self, bytes: &[u8], at: usize) {
        let _ = (bytes, at);
    }
    /// Reads 32 bytes.
    fn load(self, p: &[u8; 32]) -> Self::Bytes;
    /// The bytes in order.
    fn to_bytes(self, a: Self::Bytes) -> [u8; 32];
    /// The 16 low nibbles of `p`, then its 16 high nibbles.
    fn nibbles(self, p: &[u8; 16]) -> Self::Bytes;
    /// The bytes of `a`, then those of `b`.
    fn join(self, a: &[u8; 16], b: &[u8; 16]) -> Self::Bytes;
    /// The low nibbles of `a` and `b`, and their high nibbles.
    #[inline(always)]
    fn nibbles_of_two(self, a: &[u8; 16], b: &[u8; 16]) -> [Self::Bytes; 2] {
        let both = self.join(a, b);
        [self.and(both, self.splat(15)), self.shr::<4>(both)]
    }
    /// 255 for each bit of `bits` that is set, 0 for the others; the lowest bit first.
    #[inline(always)]
    fn bit_mask(self, bits: u32) -> Self::Bytes {
        self.bit_mask_of(self.load(must_cast_ref(&[bits.to_le_bytes(); 8])), 0)
    }
    /// Each byte as two, little-endian.
    fn widen(self, p: &[u8; 32]) -> [Self::Bytes; 2];
    /// Products of 16-bit numbers, little-endian, wrapping around.
    fn mul_pairs(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// The first 16 bytes twice, and the last 16 bytes twice.
    fn repeat_halves(self, a: Self::Bytes) -> [Self::Bytes; 2];
    /// As [`Isa::bit_mask`], of the 32 bits from byte `4 * word` on, `word <= 3`, of `bits`, whose
    /// halves are alike.
    fn bit_mask_of(self, bits: Self::Bytes, word: usize) -> Self::Bytes;
    /// Of each four bytes, little-endian, the lower 28 bits as four bytes.
    fn unpack_sevens(self, words: Self::Bytes) -> Self::Bytes;
    /// Of each two bytes, little-endian, the upper 7 bits.
    fn upper_seven_bits(self, pairs: [Self::Bytes; 2]) -> Self::Bytes;
    /// Of each four bytes, little-endian, the upper 4 bits.
    fn upper_nibbles(self, words: Self::Bytes) -> Self::Floats;
    /// `a + b`, or `a - b` where the byte of `negative` is 255 and not 0, bytes wrapping around.
    #[inline(always)]
    fn add_masked(self, a: Self::Bytes, b: Self::Bytes, negative: Self::Bytes) -> Self::Bytes {
        // 255 is -1, and x ^ -1 is -x - 1.
        self.sub(self.xor(b, negative), self.sub(negative, a))
    }
    /// `x` in every byte.
    fn splat(self, x: u8) -> Self::Bytes;
    /// Bitwise and.
    fn and(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Bitwise or.
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Bitwise exclusive or.
    fn xor(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Shifts each byte right, filling with zeros.
    fn shr<const N: i32>(self, a: Self::Bytes) -> Self::Bytes;
    /// Shifts each byte left, filling with zeros.
    fn shl<const N: i32>(self, a: Self::Bytes) -> Self::Bytes;
    /// `table[i]` for each byte `i <= 15`.
    fn lookup(self, table: &[u8; 16], indices: Self::Bytes) -> Self::Bytes;
    /// `3 * (a * power % 256) / 256` of each byte.
    fn ternary_digits(self, a: Self::Bytes, powers: &[u8; 32]) -> Self::Bytes;

    /// Sums of four products of unsigned `w <= 127` and signed `a`.
    fn dot_unsigned(self, w: Self::Bytes, a: Self::Bytes) -> Self::Ints;
    /// [`Isa::dot_unsigned`] of both registers of `w` and of `a`, added; `w <= 63`.
    fn dot_both_unsigned(self, w: [Self::Bytes; 2], a: [Self::Bytes; 2]) -> Self::Ints;
    /// Sums of four products of signed bytes; `|a| <= 127`.
    fn dot_signed(self, w: Self::Bytes, a: Self::Bytes) -> Self::Ints;
    /// [`Isa::dot_signed`] of both registers of `w` and of `a`, added.
    fn dot_both_signed(self, w: [Self::Bytes; 2], a: [Self::Bytes; 2]) -> Self::Ints;
    /// Integers as floats.
    fn to_floats(self, a: Self::Ints) -> Self::Floats;

    /// Reads 8 floats.
    fn load_f32(self, p: &[f32; 8]) -> Self::Floats;
    /// The floats in order.
    fn to_f32s(self, a: Self::Floats) -> [f32; 8];
    /// `x` in every lane.
    fn splat_f32(self, x: f32) -> Self::Floats;
    /// The first `n` lanes, then zeros.
    fn first_lanes(self, a: Self::Floats, n: usize) -> Self::Floats;
    /// IEEE half precision to single.
    fn floats_from_f16(self, p: &[Half; 8]) -> Self::Floats;
    /// Single to IEEE half precision, to nearest, ties to even.
    fn f16_from_floats(self, a: Self::Floats) -> [Half; 8];
    /// `bfloat16` to single.
    fn floats_from_bf16(self, p: &[Half; 8]) -> Self::Floats;
    /// Small integers to single.
    fn floats_from_i8(self, p: &[i8; 8]) -> Self::Floats;
    /// To the nearest integers, ties to even; `|a| <= 127` in every lane.
    fn i8_from_floats(self, a: Self::Floats) -> [i8; 8];
    /// One half-precision number. (`half`'s own conversion asks the CPU at every call.)
    fn f32_from_f16(self, x: Half) -> f32;
    /// Lanes of one half-precision number.
    #[inline(always)]
    fn splat_f16(self, x: Half) -> Self::Floats {
        self.splat_f32(self.f32_from_f16(x))
    }
    /// The first four lanes of `a`, then those of `b`; and the last four of both.
    fn pair_halves(self, a: Self::Floats, b: Self::Floats) -> [Self::Floats; 2];
    /// Lanes 0, 2, 4, 6, then 1, 3, 5, 7.
    fn evens_then_odds(self, a: Self::Floats) -> Self::Floats;
    /// In each half, lane `N <= 3` of that half.
    fn broadcast_in_halves<const N: i32>(self, a: Self::Floats) -> Self::Floats;
    /// `a + b`.
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b`.
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a / b`.
    fn div(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, rounded once.
    fn mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// `c - a * b`, rounded once.
    fn neg_mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// The larger; unspecified where one is not a number.
    fn max(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// The smaller; unspecified where one is not a number.
    fn min(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// The magnitude.
    fn abs(self, a: Self::Floats) -> Self::Floats;
    /// To the nearest integer, ties to even.
    fn round(self, a: Self::Floats) -> Self::Floats;
    /// `2^a` for integers `-126 <= a <= 127`, and 0 for -127.
    fn power_of_two(self, a: Self::Floats) -> Self::Floats;
    /// Four bytes are an element: element `i` of result `j` is element `j` of `rows[i]`.
    fn transpose(self, rows: [Self::Bytes; 8]) -> [Self::Bytes; 8];
    /// Element `i` of result `j` is element `j` of `rows[i]`.
    fn transpose_floats(self, rows: [Self::Floats; 8]) -> [Self::Floats; 8];
    /// The sum of all lanes, in one fixed order.
    #[inline(always)]
    fn sum(self, a: Self::Floats) -> f32 {
        let a = self.to_f32s(a);
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }
    /// The largest lane.
    #[inline(always)]
    fn max_lane(self, a: Self::Floats) -> f32 {
        self.to_f32s(a).into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    /// Reads four bytes for each lane.
    fn wide_load(self, p: &[u8; 4 * LANES]) -> Self::WideBytes;
    /// `x` in every lane.
    fn wide_ints(self, x: i32) -> Self::WideInts;
    /// In each lane: `acc` + four products of unsigned `w <= 127` and signed `a`.
    fn wide_dot_unsigned(
        self,
        acc: Self::WideInts,
        w: Self::WideBytes,
        a: &[u8; 4],
    ) -> Self::WideInts;
    /// In each lane: `acc` + four products of signed `w` and `a`, `|a| <= 127`, where `w` had
    /// [`Isa::SIGNED_BIAS`] flipped into it.
    fn wide_dot_signed(
        self,
        acc: Self::WideInts,
        w: Self::WideBytes,
        a: &[u8; 4],
    ) -> Self::WideInts;
    /// For each of `W` panels and `N` tokens: `start` + products of quants of at most `bits` bits in
    /// each line with the bytes of `a`, four to a line, by [`Isa::wide_dot_signed`] or its sibling.
    #[inline(always)]
    fn wide_dots<const W: usize, const N: usize>(
        self,
        signed: bool,
        _bits: u32,
        w: [&[CacheLine]; W],
        a: [&[[u8; 4]]; N],
        start: [i32; N],
    ) -> [[Self::WideInts; N]; W] {
        let mut sums = [map(
            start,
            #[inline(always)]
            |start| self.wide_ints(start),
        ); W];
        for j in 0..w[0].len() {
            for i in 0..W {
                let w = self.wide_load(&w[i][j].0);
                for t in 0..N {
                    sums[i][t] = if signed {
                        self.wide_dot_signed(sums[i][t], w, &a[t][j])
                    } else {
                        self.wide_dot_unsigned(sums[i][t], w, &a[t][j])
                    };
                }
            }
        }
        sums
    }
    /// The floats with the same bits.
    fn wide_from_bits(self, a: Self::WideInts) -> Self::WideFloats;
    /// Integers as floats.
    fn wide_to_floats(self, a: Self::WideInts) -> Self::WideFloats;
    /// Reads a float for each lane.
    fn wide_load_f32(self, p: &[f32; LANES]) -> Self::WideFloats;
    /// The floats in order.
    fn wide_to_f32s(self, a: Self::WideFloats) -> [f32; LANES];
    /// `x` in every lane.
    fn wide_splat(self, x: f32) -> Self::WideFloats;
    /// Lanes of one half-precision number.
    #[inline(always)]
    fn wide_splat_f16(self, x: Half) -> Self::WideFloats {
        self.wide_splat(self.f32_from_f16(x))
    }
    /// `a * b`.
    fn wide_mul(self, a: Self::WideFloats, b: Self::WideFloats) -> Self::WideFloats;
    /// `a * b + c`, rounded once.
    fn wide_mul_add(
        self,
        a: Self::WideFloats,
        b: Self::WideFloats,
        c: Self::WideFloats,
    ) -> Self::WideFloats;

    // Operations of attention, and of the element-wise steps.

    /// `a - b`, bytes wrapping around.
    fn sub(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// `bias` + sums of four products of signed `w` and `a`, `|a| <= 127`, where `w` had
    /// [`Isa::SIGNED_BIAS`] flipped into it.
    fn dot_biased(self, bias: &[i32; 8], w: Self::Bytes, a: Self::Bytes) -> Self::Ints;
    /// The [`Isa::sum`] of each vector.
    #[inline(always)]
    fn sums(self, a: [Self::Floats; 8]) -> Self::Floats {
        self.load_f32(&map(
            a,
            #[inline(always)]
            |a| self.sum(a),
        ))
    }
    /// The lower lanes and the upper ones.
    fn wide_halves(self, a: Self::WideFloats) -> [Self::Floats; 2];
    /// IEEE half precision to single.
    fn wide_from_f16(self, p: &[Half; LANES]) -> Self::WideFloats;
    /// `bfloat16` to single.
    fn wide_from_bf16(self, p: &[Half; LANES]) -> Self::WideFloats;
    /// Signed bytes to single.
    fn wide_from_i8(self, p: &[u8; LANES]) -> Self::WideFloats;
    /// The four bits from bit `SHIFT` (0 or 4) on of each byte, less 8, to single.
    fn wide_from_nibbles<const SHIFT: i32>(self, p: &[u8; LANES]) -> Self::WideFloats;
    /// Reads an integer for each lane.
    fn wide_load_ints(self, p: &[i32; LANES]) -> Self::WideInts;
    /// In each lane: `acc` + four products of signed `w` and `a`, `|w| <= 127`, where `a` had
    /// [`Isa::SIGNED_BIAS`] flipped into it.
    fn wide_dot_biased(
        self,
        acc: Self::WideInts,
        w: Self::WideBytes,
        a: &[u8; 4],
    ) -> Self::WideInts;
    /// `a + b`.
    fn wide_add(self, a: Self::WideFloats, b: Self::WideFloats) -> Self::WideFloats;
    /// `a / b`.
    fn wide_div(self, a: Self::WideFloats, b: Self::WideFloats) -> Self::WideFloats;
    /// `c - a * b`, rounded once.
    fn wide_neg_mul_add(
        self,
        a: Self::WideFloats,
        b: Self::WideFloats,
        c: Self::WideFloats,
    ) -> Self::WideFloats;
    /// The larger; unspecified where one is not a number.
    fn wide_max(self, a: Self::WideFloats, b: Self::WideFloats) -> Self::WideFloats;
    /// The smaller; unspecified where one is not a number.
    fn wide_min(self, a: Self::WideFloats, b: Self::WideFloats) -> Self::WideFloats;
    /// To the nearest integer, ties to even.
    fn wide_round(self, a: Self::WideFloats) -> Self::WideFloats;
    /// `2^a` for integers `-126 <= a <= 127`, and 0 for -127.
    fn wide_power_of_two(self, a: Self::WideFloats) -> Self::WideFloats;
}

/// Lanes of a wide vector: rows of weights, or cache positions, side by side.
pub const LANES: usize = 16;

/// Four bytes, or a float, for each lane.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct CacheLine(pub [u8; 4 * LANES]);

impl CacheLine {
    /// A float for each lane.
    #[inline(always)]
    pub fn floats(&self) -> &[f32; LANES] {
        must_cast_ref(self)
    }
    /// The same to change.
    #[inline(always)]
    pub fn floats_mut(&mut self) -> &mut [f32; LANES] {
        must_cast_mut(self)
    }
}
