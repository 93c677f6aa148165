//! Instruction sets, each reduced to the few vector operations that the kernels use.
//!
//! A value of a type that implements [`Isa`] is proof that the running CPU has the instruction set,
//! so every operation on it is safe. The program has `unsafe` arithmetic only in the macros below,
//! in the integer products of NEON and I8MM, and in AVX2's empty assembly block, which hides a
//! value from the optimizer. All of it is on registers: `must_cast` loads and stores arrays, and
//! compares sizes as it compiles. Of kernels, only a prefetch takes a pointer.

use bytemuck::{Pod, Zeroable, must_cast_mut, must_cast_ref};

use crate::array::{from_fn, map};

/// Defines operations of an instruction set in terms of its intrinsics.
///
/// Each operation becomes a method. Its body is compiled with the instruction set enabled, so it
/// may call the intrinsics. The method is safe because `self` is proof of the instruction set.
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

/// Implements [`Isa::call`] for a type that is proof of `$features`. Kernels `K` with `$other` run with
/// the instruction set `self.$isa`, if it is given.
macro_rules! call_with {
    ($features:literal $(, $other:expr => $isa:tt)?) => {
        #[inline(never)]
        #[allow(
            unsafe_code,
            reason = "the value this is called on is proof of the instruction set"
        )]
        fn call<K: Kernel>(self, kernel: K) -> K::Output {
            $(if const { $other } {
                return self.$isa.call(kernel);
            })?
            #[target_feature(enable = $features)]
            fn enabled<K: Kernel>(isa: impl Isa, kernel: K) -> K::Output {
                kernel.run(isa)
            }
            // SAFETY: a value of this type exists only on a CPU with `$features`.
            unsafe { enabled(self, kernel) }
        }
    };
}

/// Calls `$callback!` with `$argument` and the instruction sets of each architecture, the slowest
/// first. Their modules are named as on the command line.
#[macro_export]
macro_rules! instruction_sets {
    ($callback:ident, $argument:ident) => {
        $callback! { $argument:
            "x86_64": avx2::Avx2 avxvnni::AvxVnni avx512::Avx512;
            "aarch64": neon::Neon i8mm::I8mm;
        }
    };
}

mod avx2;
mod avx512;
mod avxvnni;
mod cpu;
mod i8mm;
mod neon;
mod pair;
mod scalar;

pub use cpu::*;
pub use scalar::Scalar;

/// The bytes of an f16 or bf16 number, little-endian and unaligned.
pub type Half = [u8; 2];

/// A computation that is written once and compiled for every instruction set.
///
/// `run`, and every generic function that it calls, must be marked `#[inline(always)]`: a function
/// that is not inlined is compiled without the instruction set, and each of its operations becomes
/// a call.
///
/// ```
/// use rope_cpu_kernels::{Cpu, isa::{Isa, Kernel, LANES}};
///
/// struct Double<'a>(&'a mut [f32; LANES]);
///
/// impl Kernel for Double<'_> {
///     type Output = ();
///     #[inline(always)]
///     fn run<I: Isa>(self, isa: I) {
///         let x = isa.wide_load_f32(self.0);
///         *self.0 = isa.wide_to_f32s(isa.wide_add(x, x));
///     }
/// }
///
/// let mut x = [1.5; LANES];
/// Cpu::best().call(Double(&mut x));
/// assert_eq!(x, [3.0; LANES]);
/// ```
pub trait Kernel {
    /// Whether the computation has no dot products of integers: instruction sets that differ only
    /// in these share its code.
    const FLOATS: bool = false;
    /// Whether the computation unpacks or multiplies panels: instruction sets that differ only in
    /// [`Isa::panel_dots`] share the code of others.
    const PANELS: bool = false;
    /// The result of the computation.
    type Output;
    /// Runs the computation.
    fn run<I: Isa>(self, isa: I) -> Self::Output;
}

/// The vector operations of an instruction set.
///
/// Narrow vectors are 32 bytes, 8 `i32` or 8 `f32`, and wide vectors have [`LANES`] lanes, whatever
/// the width of a register. Wide vectors are for tiles with lanes that are independent of each
/// other.
///
/// Every operation returns the same bits on every instruction set. Lanes and bytes are counted from
/// the lowest address, and 16-bit and 32-bit elements of byte vectors are little-endian.
pub trait Isa: Copy + 'static {
    /// The value that is added (modulo 256) to signed weights in a panel. It is 128 if the
    /// instruction set's dot product takes an unsigned first factor, otherwise 0.
    const SIGNED_BIAS: u8 = 0;

    /// Whether products of signed quants lack [`Isa::signed_terms`]: [`Isa::panel_dots`] reads these from
    /// one more cache line, and [`Isa::wide_dot_less_terms`] leaves them to its caller.
    const SIGNED_TERMS: bool = false;

    /// Whether [`Isa::arrange`] changes the order of a token's quants.
    const ARRANGES_TOKENS: bool = false;

    /// Whether code should be small rather than fast.
    const SMALL_CODE: bool = false;

    // Sizes of tiles. They are chosen so that accumulators stay in registers, and do not affect
    // results.

    /// Panels in a tile of [`Regime::Many`](crate::Regime::Many): 1 or 2. In attention, panels of
    /// 16 queries for scores, and vectors of 16 values for weighted values.
    const TILE_PANELS: usize = 1;
    /// Tokens in a tile of the product with quantized weights.
    const INT_TILE: usize;
    /// Tokens in a tile of the product with floating-point weights.
    const FLOAT_TILE: usize;
    /// Many queries: keys in a tile of float scores, and queries in a tile of weighted values.
    const ATTENTION_TILE: usize = 6;
    /// Many queries: keys in a tile of integer scores.
    const KEY_TILE: usize = Self::INT_TILE;
    /// Many queries in 8 bits: queries in a tile of weighted values.
    const WEIGHING_TILE: usize = Self::KEY_TILE;
    /// A few queries: queries in a tile of float scores, which share a block of rows.
    const FEW_TILE: usize = 4;
    /// A few queries: accumulators of float scores, one for each pair of a query and a key.
    const FEW_SCORE_SUMS: usize = 4;
    /// A few queries: queries in a tile of weighted values, if it computes whole units of 32 values.
    /// Tiles of more queries, up to [`Isa::FLOAT_TILE`], compute half units.
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

    /// Prefetches the cache line of `bytes[at]`. Does nothing if `at` is out of bounds, or if the
    /// instruction set does not implement it.
    #[inline(always)]
    fn prefetch(self, bytes: &[u8], at: usize) {
        let _ = (bytes, at);
    }
    /// Reads 32 bytes.
    fn load(self, p: &[u8; 32]) -> Self::Bytes;
    /// Returns the bytes in order.
    fn to_bytes(self, a: Self::Bytes) -> [u8; 32];
    /// Returns the 16 low nibbles of `p`, then its 16 high nibbles.
    fn nibbles(self, p: &[u8; 16]) -> Self::Bytes;
    /// Returns the bytes of `a`, then the bytes of `b`.
    fn join(self, a: &[u8; 16], b: &[u8; 16]) -> Self::Bytes;
    /// Returns the low nibbles of `a` and `b`, and their high nibbles.
    #[inline(always)]
    fn nibbles_of_two(self, a: &[u8; 16], b: &[u8; 16]) -> [Self::Bytes; 2] {
        let both = self.join(a, b);
        [self.and(both, self.splat(15)), self.shr::<4>(both)]
    }
    /// Returns a byte for each bit of `bits`, the lowest bit first: 255 if it is set, otherwise 0.
    #[inline(always)]
    fn bit_mask(self, bits: u32) -> Self::Bytes {
        self.bit_mask_of(self.splat32(bits), 0)
    }
    /// Zero-extends each byte to 16 bits.
    fn widen(self, p: &[u8; 32]) -> [Self::Bytes; 2];
    /// Returns 16-bit elements, of at most 255, as bytes: the inverse of [`Isa::widen`].
    fn narrow(self, a: [Self::Bytes; 2]) -> Self::Bytes;
    /// Returns the first 16 bytes twice, and the last 16 bytes twice.
    fn repeat_halves(self, a: Self::Bytes) -> [Self::Bytes; 2];
    /// Expands 32 bits of `bits` like [`Isa::bit_mask`], from bytes `4 * word ..`. `word <= 3`, and
    /// both halves of `bits` must hold the same 16 bytes.
    fn bit_mask_of(self, bits: Self::Bytes, word: usize) -> Self::Bytes;
    /// Returns for each byte `a + b` if the byte of `negative` is 0, and `a - b` if it is 255,
    /// wrapping around.
    #[inline(always)]
    fn add_masked(self, a: Self::Bytes, b: Self::Bytes, negative: Self::Bytes) -> Self::Bytes {
        // 255 is -1, and (x ^ -1) - -1 is -x. Compilers make a blend of `a - negative`, which takes
        // Intel's cores several operations.
        let signed = self.sub(self.xor(b, negative), negative);
        self.sub(signed, self.sub(self.splat(0), a))
    }
    /// Returns `x` in every byte.
    fn splat(self, x: u8) -> Self::Bytes;
    /// Returns `x` in every 32-bit element.
    #[inline(always)]
    fn splat32(self, x: u32) -> Self::Bytes {
        self.load(must_cast_ref(&[x.to_le_bytes(); 8]))
    }
    /// Computes the bitwise and.
    fn and(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Computes the bitwise or.
    fn or(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Computes the bitwise exclusive or.
    fn xor(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Shifts each byte right, filling with zeros.
    fn shr<const N: i32>(self, a: Self::Bytes) -> Self::Bytes;
    /// Shifts each byte left, filling with zeros.
    fn shl<const N: i32>(self, a: Self::Bytes) -> Self::Bytes;
    /// Shifts 16-bit elements right, filling with zeros.
    fn shr16<const N: i32>(self, a: Self::Bytes) -> Self::Bytes;
    /// Shifts 32-bit elements right, filling with zeros.
    fn shr32<const N: i32>(self, a: Self::Bytes) -> Self::Bytes;
    /// Shifts 32-bit elements left, filling with zeros.
    fn shl32<const N: i32>(self, a: Self::Bytes) -> Self::Bytes;
    /// Computes `a - b` for each byte, wrapping around.
    fn sub(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Multiplies 16-bit elements, wrapping around.
    fn mul16(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Multiplies bytes, wrapping around.
    #[inline(always)]
    fn mul_bytes(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes {
        // Even and odd bytes are multiplied as 16-bit elements, and one byte of each is used.
        let (low, high) = (self.splat32(0x00ff00ff), self.splat32(0xff00ff00));
        let even = self.mul16(a, self.and(b, low));
        let odd = self.mul16(self.and(a, high), self.shr16::<8>(b));
        self.or(self.and(even, low), odd)
    }
    /// Returns 255 for each byte `a >= b`, otherwise 0.
    fn at_least(self, a: Self::Bytes, b: Self::Bytes) -> Self::Bytes;
    /// Returns `table[i]` for each byte `i <= 15` of `indices`.
    fn lookup(self, table: &[u8; 16], indices: Self::Bytes) -> Self::Bytes;

    /// Computes sums of four products of unsigned `w <= 127` and signed `a`.
    fn dot_unsigned(self, w: Self::Bytes, a: Self::Bytes) -> Self::Ints;
    /// Returns `dot_unsigned(w[0], a[0]) + dot_unsigned(w[1], a[1])`; `w <= 63`.
    fn dot_both_unsigned(self, w: [Self::Bytes; 2], a: [Self::Bytes; 2]) -> Self::Ints;
    /// Computes sums of four products of signed bytes; `|a| <= 127`.
    fn dot_signed(self, w: Self::Bytes, a: Self::Bytes) -> Self::Ints;
    /// Returns `dot_signed(w[0], a[0]) + dot_signed(w[1], a[1])`.
    fn dot_both_signed(self, w: [Self::Bytes; 2], a: [Self::Bytes; 2]) -> Self::Ints;
    /// Returns the 32-bit elements of bytes.
    fn as_ints(self, a: Self::Bytes) -> Self::Ints;
    /// Converts integers to floats.
    fn to_floats(self, a: Self::Ints) -> Self::Floats;

    /// Reads 8 floats.
    fn load_f32(self, p: &[f32; 8]) -> Self::Floats;
    /// Returns the floats in order.
    fn to_f32s(self, a: Self::Floats) -> [f32; 8];
    /// Returns `x` in every lane.
    fn splat_f32(self, x: f32) -> Self::Floats;
    /// Returns the first `n` lanes, then zeros.
    fn first_lanes(self, a: Self::Floats, n: usize) -> Self::Floats;
    /// Converts f16 to f32.
    fn floats_from_f16(self, p: &[Half; 8]) -> Self::Floats;
    /// Converts f32 to f16, rounding to nearest, ties to even.
    fn f16_from_floats(self, a: Self::Floats) -> [Half; 8];
    /// Converts bf16 to f32.
    fn floats_from_bf16(self, p: &[Half; 8]) -> Self::Floats;
    /// Converts bytes to f32.
    fn floats_from_i8(self, p: &[i8; 8]) -> Self::Floats;
    /// Converts nibbles to floats less 8: the low nibbles of 8 bytes if `SHIFT` is 0, the high ones if it
    /// is 4.
    fn floats_from_nibbles<const SHIFT: i32>(self, p: &[u8; 8]) -> Self::Floats;
    /// Rounds to the nearest integers, ties to even; `|a| <= 127` in every lane.
    fn i8_from_floats(self, a: Self::Floats) -> [i8; 8];
    /// Rounds to the nearest integers, ties to even, and stores them as signed bytes, four to a
    /// lane: byte `i` of a lane comes from `a[i]`; `|a| <= 127`.
    fn bytes_from_floats(self, a: [Self::Floats; 4]) -> [u8; 32];
    /// Converts one f16 to f32. (The conversion of the `half` crate detects the CPU at every call.)
    fn f32_from_f16(self, x: Half) -> f32;
    /// Returns one f16, as f32, in every lane.
    #[inline(always)]
    fn splat_f16(self, x: Half) -> Self::Floats {
        self.splat_f32(self.f32_from_f16(x))
    }
    /// Returns the first four lanes of `a` and of `b`, and the last four lanes of `a` and of `b`.
    fn pair_halves(self, a: Self::Floats, b: Self::Floats) -> [Self::Floats; 2];
    /// Returns lanes 0, 2, 4, 6, 1, 3, 5, 7.
    fn evens_then_odds(self, a: Self::Floats) -> Self::Floats;
    /// Returns lane `N <= 3` of each half in every lane of that half.
    fn broadcast_in_halves<const N: i32>(self, a: Self::Floats) -> Self::Floats;
    /// Computes `a + b`.
    fn add(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Computes `a * b`.
    fn mul(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Computes `a / b`.
    fn div(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Computes `a * b + c`, rounded once.
    fn mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// Computes `c - a * b`, rounded once.
    fn neg_mul_add(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// Returns the larger of two lanes; unspecified if one is NaN.
    fn max(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Returns the smaller of two lanes; unspecified if one is NaN.
    fn min(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Computes the magnitude.
    fn abs(self, a: Self::Floats) -> Self::Floats;
    /// Rounds to the nearest integer, ties to even.
    fn round(self, a: Self::Floats) -> Self::Floats;
    /// Computes `2^a` for integers `-126 <= a <= 127`, and 0 for -127.
    fn power_of_two(self, a: Self::Floats) -> Self::Floats;
    /// Transposes 8 x 8 elements of four bytes: element `i` of result `j` is element `j` of
    /// `rows[i]`.
    fn transpose(self, rows: [Self::Bytes; 8]) -> [Self::Bytes; 8];
    /// Transposes 8 x 4 elements of four bytes: element `i` of result `j` is element `j` of `rows[i]`.
    #[inline(always)]
    fn transpose_half(self, rows: [&[u8; 16]; 8]) -> [Self::Bytes; 4] {
        let [a, b, c, d, ..] = self.transpose(map(
            rows,
            #[inline(always)]
            |row| self.join(row, row),
        ));
        [a, b, c, d]
    }
    /// Transposes 8 x 8 floats: element `i` of result `j` is element `j` of `rows[i]`.
    fn transpose_floats(self, rows: [Self::Floats; 8]) -> [Self::Floats; 8];
    /// Returns the sum of all lanes, in one fixed order.
    #[inline(always)]
    fn sum(self, a: Self::Floats) -> f32 {
        let a = self.to_f32s(a);
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }
    /// Returns the largest lane.
    #[inline(always)]
    fn max_lane(self, a: Self::Floats) -> f32 {
        self.to_f32s(a).into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    /// Reads four bytes for each lane.
    fn wide_load(self, p: &[u8; 4 * LANES]) -> Self::WideBytes;
    /// Returns `x` in every lane.
    fn wide_ints(self, x: i32) -> Self::WideInts;
    /// Adds to each lane of `acc` four products of unsigned `w <= 127` and signed `a`.
    fn wide_dot_unsigned(
        self,
        acc: Self::WideInts,
        w: Self::WideBytes,
        a: &[u8; 4],
    ) -> Self::WideInts;
    /// Adds to each lane of `acc` four products of signed `w` and `a`, `|a| <= 127`. `w` must have
    /// been xored with [`Isa::SIGNED_BIAS`]; the result is too large by the bias times the sum of
    /// `a`.
    fn wide_dot_signed(
        self,
        acc: Self::WideInts,
        w: Self::WideBytes,
        a: &[u8; 4],
    ) -> Self::WideInts;
    /// Computes [`Isa::wide_dot_signed`] without the part that [`Isa::signed_terms`] returns for these
    /// cache lines. The caller adds it.
    #[inline(always)]
    fn wide_dot_less_terms(
        self,
        acc: Self::WideInts,
        w: Self::WideBytes,
        a: &[u8; 4],
    ) -> Self::WideInts {
        self.wide_dot_signed(acc, w, a)
    }
    /// Computes `start` plus products for each of `W` panels and `N` tokens: all cache lines of
    /// quants with the bytes of `a`, four to a cache line. The product is [`Isa::wide_dot_signed`]
    /// if `signed`, otherwise [`Isa::wide_dot_unsigned`]. Unsigned quants have at most `bits` bits.
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
    /// Returns the quants of eight rows, for half of the lanes of eight cache lines of a panel.
    /// Cache line `j` holds columns `4 * j .. 4 * j + 4`, or another order that [`Isa::panel_dots`]
    /// reads.
    #[inline(always)]
    fn panel(self, rows: [Self::Bytes; 8]) -> [Self::Bytes; 8] {
        self.transpose(rows)
    }
    /// Returns the first four results of [`Isa::panel`], which hold the first 16 bytes of its rows.
    #[inline(always)]
    fn panel_half(self, rows: [&[u8; 16]; 8]) -> [Self::Bytes; 4] {
        self.transpose_half(rows)
    }
    /// Returns 32 quants of each token in the order that [`Isa::panel_dots`] reads. Used only if
    /// [`Isa::ARRANGES_TOKENS`].
    #[inline(always)]
    fn arrange<const N: usize>(self, tokens: [&[u8; 32]; N]) -> [[u8; 32]; N] {
        map(
            tokens,
            #[inline(always)]
            |token| *token,
        )
    }
    /// Returns the terms to add to products of the signed quants in these cache lines, in each
    /// lane. Used only if [`Isa::SIGNED_TERMS`].
    #[inline(always)]
    fn signed_terms(self, _quants: &[CacheLine]) -> CacheLine {
        CacheLine::zeroed()
    }
    /// Computes [`Isa::wide_dots`] of quants in the order of [`Isa::panel`] and [`Isa::arrange`].
    #[inline(always)]
    fn panel_dots<const W: usize, const N: usize>(
        self,
        signed: bool,
        bits: u32,
        w: [&[CacheLine]; W],
        a: [&[[u8; 4]]; N],
        start: [i32; N],
    ) -> [[Self::WideInts; N]; W] {
        self.wide_dots(signed, bits, w, a, start)
    }
    /// Returns the bytes of `a`, then the bytes of `b`.
    fn wide_join(self, a: Self::Bytes, b: Self::Bytes) -> Self::WideBytes;
    /// Computes sums of products in each lane: of four of each `w` with the same of `a`, `|a| <= 127`.
    /// `w` is signed if `signed`; otherwise `w <= 127` or, if there are two, `w <= 63`.
    fn wide_products<const K: usize>(
        self,
        signed: bool,
        w: [Self::WideBytes; K],
        a: [Self::WideBytes; K],
    ) -> Self::WideInts;
    /// Returns [`Isa::broadcast_in_halves`] of lane `N`, 0 or 2, then of lane `N + 1`.
    fn wide_broadcast_in_halves<const N: i32>(self, a: Self::Floats) -> Self::WideFloats;
    /// Reinterprets the bits of integers as floats.
    fn wide_from_bits(self, a: Self::WideInts) -> Self::WideFloats;
    /// Converts integers to floats.
    fn wide_to_floats(self, a: Self::WideInts) -> Self::WideFloats;
    /// Reads a float for each lane.
    fn wide_load_f32(self, p: &[f32; LANES]) -> Self::WideFloats;
    /// Returns the floats in order.
    fn wide_to_f32s(self, a: Self::WideFloats) -> [f32; LANES];
    /// Returns `x` in every lane.
    fn wide_splat(self, x: f32) -> Self::WideFloats;
    /// Returns one f16, as f32, in every lane.
    #[inline(always)]
    fn wide_splat_f16(self, x: Half) -> Self::WideFloats {
        self.wide_splat(self.f32_from_f16(x))
    }
    /// Computes `a * b`.
    fn wide_mul(self, a: Self::WideFloats, b: Self::WideFloats) -> Self::WideFloats;
    /// Computes `a * b + c`, rounded once.
    fn wide_mul_add(
        self,
        a: Self::WideFloats,
        b: Self::WideFloats,
        c: Self::WideFloats,
    ) -> Self::WideFloats;

    // Operations of attention, and of the element-wise steps.

    /// Returns `a[i] + a[i + 4]` for the four lanes of a half, then the same of `b`.
    fn add_halves(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Returns in each half `a[i] + a[i + 2]` for two lanes of that half, then the same of `b`.
    fn add_quarters(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Returns in each half `a[2 * i] + a[2 * i + 1]` for two pairs of that half, then the same of `b`.
    fn add_pairs(self, a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Returns the [`Isa::sum`] of each vector.
    #[inline(always)]
    fn sums(self, a: &[Self::Floats; 8]) -> Self::Floats {
        // Sums of four lanes of two vectors, then of two lanes of four vectors.
        let halves = from_fn::<_, 4>(
            #[inline(always)]
            |i| self.add_halves(a[i], a[i + 4]),
        );
        let low = self.add_quarters(halves[0], halves[1]);
        let high = self.add_quarters(halves[2], halves[3]);
        self.add_pairs(low, high)
    }
    /// Returns the lower eight lanes and the upper eight lanes.
    fn wide_halves(self, a: Self::WideFloats) -> [Self::Floats; 2];
    /// Converts f16 to f32.
    fn wide_from_f16(self, p: &[Half; LANES]) -> Self::WideFloats;
    /// Converts bf16 to f32.
    fn wide_from_bf16(self, p: &[Half; LANES]) -> Self::WideFloats;
    /// Converts signed bytes to f32.
    fn wide_from_i8(self, p: &[u8; LANES]) -> Self::WideFloats;
    /// Converts one nibble of each byte, minus 8, to f32: the low nibbles if `SHIFT` is 0, the high
    /// ones if it is 4.
    fn wide_from_nibbles<const SHIFT: i32>(self, p: &[u8; LANES]) -> Self::WideFloats;
    /// Reads an integer for each lane.
    fn wide_load_ints(self, p: &[i32; LANES]) -> Self::WideInts;
    /// Adds to each lane of `acc` four products of signed `w` and `a`, `|w| <= 127`. `a` must have
    /// been xored with [`Isa::SIGNED_BIAS`]; the result is too large by the bias times the sum of
    /// `w`.
    fn wide_dot_biased(
        self,
        acc: Self::WideInts,
        w: Self::WideBytes,
        a: &[u8; 4],
    ) -> Self::WideInts;
    /// Adds to each lane of `acc` four products of signed `w` and unsigned `a <= 127`.
    fn wide_dot_by_unsigned(
        self,
        acc: Self::WideInts,
        w: Self::WideBytes,
        a: &[u8; 4],
    ) -> Self::WideInts;
    /// Rounds to the nearest integers, ties to even, and stores them as signed bytes, four to a
    /// lane: byte `i` of a lane comes from `a[i]`; `|a| <= 127`.
    fn wide_bytes(self, a: [Self::WideFloats; 4]) -> [u8; 4 * LANES];
    /// Computes `a + b`.
    fn wide_add(self, a: Self::WideFloats, b: Self::WideFloats) -> Self::WideFloats;
    /// Computes `a / b`.
    fn wide_div(self, a: Self::WideFloats, b: Self::WideFloats) -> Self::WideFloats;
    /// Computes `c - a * b`, rounded once.
    fn wide_neg_mul_add(
        self,
        a: Self::WideFloats,
        b: Self::WideFloats,
        c: Self::WideFloats,
    ) -> Self::WideFloats;
    /// Returns the larger of two lanes; unspecified if one is NaN.
    fn wide_max(self, a: Self::WideFloats, b: Self::WideFloats) -> Self::WideFloats;
    /// Returns the smaller of two lanes; unspecified if one is NaN.
    fn wide_min(self, a: Self::WideFloats, b: Self::WideFloats) -> Self::WideFloats;
    /// Rounds to the nearest integer, ties to even.
    fn wide_round(self, a: Self::WideFloats) -> Self::WideFloats;
    /// Computes `2^a` for integers `-126 <= a <= 127`, and 0 for -127.
    fn wide_power_of_two(self, a: Self::WideFloats) -> Self::WideFloats;
}

/// The number of lanes of a wide vector: rows of weights, queries or values side by side.
pub const LANES: usize = 16;

/// 64 aligned bytes: four bytes, or a float, for each lane.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct CacheLine(pub [u8; 4 * LANES]);

impl CacheLine {
    /// Returns the bytes as a float for each lane.
    #[inline(always)]
    pub fn floats(&self) -> &[f32; LANES] {
        must_cast_ref(self)
    }
    /// Returns the bytes as a mutable float for each lane.
    #[inline(always)]
    pub fn floats_mut(&mut self) -> &mut [f32; LANES] {
        must_cast_mut(self)
    }
}
