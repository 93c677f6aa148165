use std::array::from_fn;

use bytemuck::must_cast;
use half::{bf16, f16};

use super::{Half, Isa, Kernel, pair::wide_as_pair};

/// Plain Rust, the reference that every other instruction set is tested against.
#[derive(Clone, Copy)]
pub struct Scalar;

type Bytes = [u8; 32];
type Ints = [i32; 8];
type Floats = [f32; 8];

/// Computes sums of four products; `weight` converts the bytes of `w` to integers.
fn dot(w: Bytes, a: Bytes, weight: fn(u8) -> i32) -> Ints {
    from_fn(|l| (4 * l..4 * l + 4).map(|i| weight(w[i]) * i32::from(a[i] as i8)).sum())
}

/// Returns the little-endian 32-bit elements of `a`.
fn words(a: Bytes) -> [u32; 8] {
    let words: [[u8; 4]; 8] = must_cast(a);
    words.map(u32::from_le_bytes)
}

/// Returns the bytes of little-endian 32-bit elements.
fn bytes_of_words(words: [u32; 8]) -> Bytes {
    must_cast(words.map(u32::to_le_bytes))
}

/// Returns the little-endian 16-bit elements of `a`.
fn pairs(a: Bytes) -> [u16; 16] {
    let pairs: [[u8; 2]; 16] = must_cast(a);
    pairs.map(u16::from_le_bytes)
}

/// Returns the bytes of little-endian 16-bit elements.
fn bytes_of_pairs(pairs: [u16; 16]) -> Bytes {
    must_cast(pairs.map(u16::to_le_bytes))
}

/// Computes `a * b + c` with one rounding, as instructions do. MinGW's own function rounds several
/// times.
#[inline(always)]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    cfg_select! {
        all(windows, target_env = "gnu") => { libm::fmaf(a, b, c) }
        _ => { a.mul_add(b, c) }
    }
}

impl Scalar {
    fn load_ints(self, p: &Ints) -> Ints {
        *p
    }
    fn ints(self, x: i32) -> Ints {
        [x; 8]
    }
    fn splat4(self, p: &[u8; 4]) -> Bytes {
        from_fn(|i| p[i % 4])
    }
    fn dot_add(self, acc: Ints, w: Bytes, a: Bytes) -> Ints {
        let dot = self.dot_unsigned(w, a);
        from_fn(|i| acc[i] + dot[i])
    }
    fn dot_add_signed(self, acc: Ints, w: Bytes, a: Bytes) -> Ints {
        let dot = self.dot_signed(w, a);
        from_fn(|i| acc[i] + dot[i])
    }
}

impl Isa for Scalar {
    // Speed does not matter for this instruction set, and code takes time to compile.
    const SMALL_CODE: bool = true;
    const INT_TILE: usize = 1;
    const FLOAT_TILE: usize = 1;
    const ATTENTION_TILE: usize = 1;
    const FEW_TILE: usize = 1;
    const FEW_SCORE_SUMS: usize = 1;
    type Bytes = Bytes;
    type Ints = Ints;
    type Floats = Floats;
    wide_as_pair!();

    #[inline(never)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }
    fn load(self, p: &Bytes) -> Bytes {
        *p
    }
    fn to_bytes(self, a: Bytes) -> Bytes {
        a
    }
    fn nibbles(self, p: &[u8; 16]) -> Bytes {
        from_fn(|i| if i < 16 { p[i] & 15 } else { p[i - 16] >> 4 })
    }
    fn join(self, a: &[u8; 16], b: &[u8; 16]) -> Bytes {
        must_cast([*a, *b])
    }
    fn evens_then_odds(self, a: Floats) -> Floats {
        [0, 2, 4, 6, 1, 3, 5, 7].map(|i| a[i])
    }
    fn widen(self, p: &Bytes) -> [Bytes; 2] {
        must_cast(p.map(|byte| [byte, 0]))
    }
    fn narrow(self, a: [Bytes; 2]) -> Bytes {
        let elements: [[u8; 2]; 32] = must_cast(a);
        elements.map(|[low, _]| low)
    }
    fn repeat_halves(self, a: Bytes) -> [Bytes; 2] {
        [from_fn(|i| a[i % 16]), from_fn(|i| a[16 + i % 16])]
    }
    #[inline(never)]
    fn bit_mask_of(self, bits: Bytes, word: usize) -> Bytes {
        let words = words(bits);
        let bits = words[word] & 0xffff | words[4 + word] & 0xffff0000;
        from_fn(|i| if bits >> i & 1 == 1 { 255 } else { 0 })
    }
    fn splat(self, x: u8) -> Bytes {
        [x; 32]
    }
    fn and(self, a: Bytes, b: Bytes) -> Bytes {
        from_fn(|i| a[i] & b[i])
    }
    fn or(self, a: Bytes, b: Bytes) -> Bytes {
        from_fn(|i| a[i] | b[i])
    }
    fn xor(self, a: Bytes, b: Bytes) -> Bytes {
        from_fn(|i| a[i] ^ b[i])
    }
    fn shr<const N: i32>(self, a: Bytes) -> Bytes {
        a.map(|x| x >> N)
    }
    fn shl<const N: i32>(self, a: Bytes) -> Bytes {
        a.map(|x| x << N)
    }
    fn shr16<const N: i32>(self, a: Bytes) -> Bytes {
        bytes_of_pairs(pairs(a).map(|x| x >> N))
    }
    fn shr32<const N: i32>(self, a: Bytes) -> Bytes {
        bytes_of_words(words(a).map(|x| x >> N))
    }
    fn shl32<const N: i32>(self, a: Bytes) -> Bytes {
        bytes_of_words(words(a).map(|x| x << N))
    }
    fn sub(self, a: Bytes, b: Bytes) -> Bytes {
        from_fn(|i| a[i].wrapping_sub(b[i]))
    }
    fn mul16(self, a: Bytes, b: Bytes) -> Bytes {
        let (a, b) = (pairs(a), pairs(b));
        bytes_of_pairs(from_fn(|i| a[i].wrapping_mul(b[i])))
    }
    fn mul_bytes(self, a: Bytes, b: Bytes) -> Bytes {
        from_fn(|i| a[i].wrapping_mul(b[i]))
    }
    fn at_least(self, a: Bytes, b: Bytes) -> Bytes {
        from_fn(|i| if a[i] >= b[i] { 255 } else { 0 })
    }
    #[inline(never)]
    fn lookup(self, table: &[u8; 16], indices: Bytes) -> Bytes {
        indices.map(|i| table[usize::from(i & 15)])
    }
    fn dot_unsigned(self, w: Bytes, a: Bytes) -> Ints {
        dot(w, a, i32::from)
    }
    fn dot_both_unsigned(self, w: [Bytes; 2], a: [Bytes; 2]) -> Ints {
        let [x, y] = from_fn(|i| self.dot_unsigned(w[i], a[i]));
        from_fn(|i| x[i] + y[i])
    }
    fn dot_signed(self, w: Bytes, a: Bytes) -> Ints {
        dot(w, a, |w| i32::from(w as i8))
    }
    fn dot_both_signed(self, w: [Bytes; 2], a: [Bytes; 2]) -> Ints {
        let [x, y] = from_fn(|i| self.dot_signed(w[i], a[i]));
        from_fn(|i| x[i] + y[i])
    }
    fn as_ints(self, a: Bytes) -> Ints {
        words(a).map(u32::cast_signed)
    }
    fn to_floats(self, a: Ints) -> Floats {
        a.map(|x| x as f32)
    }
    fn load_f32(self, p: &Floats) -> Floats {
        *p
    }
    fn to_f32s(self, a: Floats) -> Floats {
        a
    }
    fn splat_f32(self, x: f32) -> Floats {
        [x; 8]
    }
    fn first_lanes(self, a: Floats, n: usize) -> Floats {
        from_fn(|i| if i < n { a[i] } else { 0.0 })
    }
    #[inline(never)]
    fn transpose(self, rows: [Bytes; 8]) -> [Bytes; 8] {
        from_fn(|j| from_fn(|i| rows[i / 4][4 * j + i % 4]))
    }
    #[inline(never)]
    fn transpose_floats(self, rows: [Floats; 8]) -> [Floats; 8] {
        from_fn(|j| from_fn(|i| rows[i][j]))
    }
    #[inline(never)]
    fn floats_from_f16(self, p: &[Half; 8]) -> Floats {
        p.map(|x| self.f32_from_f16(x))
    }
    #[inline(never)]
    fn f16_from_floats(self, a: Floats) -> [Half; 8] {
        a.map(|x| f16::from_f32(x).to_le_bytes())
    }
    fn floats_from_bf16(self, p: &[Half; 8]) -> Floats {
        p.map(|x| bf16::from_le_bytes(x).to_f32())
    }
    fn floats_from_i8(self, p: &[i8; 8]) -> Floats {
        p.map(f32::from)
    }
    fn floats_from_nibbles<const SHIFT: i32>(self, p: &[u8; 8]) -> Floats {
        p.map(|x| f32::from(x >> SHIFT & 15) - 8.0)
    }
    fn i8_from_floats(self, a: Floats) -> [i8; 8] {
        a.map(|x| x.round_ties_even() as i8)
    }
    fn bytes_from_floats(self, a: [Floats; 4]) -> [u8; 32] {
        from_fn(|i| a[i % 4][i / 4].round_ties_even() as i8 as u8)
    }
    #[inline(never)]
    fn f32_from_f16(self, x: Half) -> f32 {
        f16::from_le_bytes(x).to_f32()
    }
    fn pair_halves(self, a: Floats, b: Floats) -> [Floats; 2] {
        [0, 4].map(|from| from_fn(|i| if i < 4 { a[from + i] } else { b[from + i - 4] }))
    }
    fn broadcast_in_halves<const N: i32>(self, a: Floats) -> Floats {
        from_fn(|i| a[i / 4 * 4 + N as usize])
    }
    fn add(self, a: Floats, b: Floats) -> Floats {
        from_fn(|i| a[i] + b[i])
    }
    fn mul(self, a: Floats, b: Floats) -> Floats {
        from_fn(|i| a[i] * b[i])
    }
    fn div(self, a: Floats, b: Floats) -> Floats {
        from_fn(|i| a[i] / b[i])
    }
    #[inline(never)]
    fn mul_add(self, a: Floats, b: Floats, c: Floats) -> Floats {
        from_fn(|i| fused(a[i], b[i], c[i]))
    }
    #[inline(never)]
    fn neg_mul_add(self, a: Floats, b: Floats, c: Floats) -> Floats {
        from_fn(|i| fused(-a[i], b[i], c[i]))
    }
    fn add_halves(self, a: Floats, b: Floats) -> Floats {
        from_fn(|i| if i < 4 { a[i] + a[i + 4] } else { b[i - 4] + b[i] })
    }
    fn add_quarters(self, a: Floats, b: Floats) -> Floats {
        from_fn(|i| {
            let (from, at) = (if i % 4 < 2 { a } else { b }, i / 4 * 4 + i % 2);
            from[at] + from[at + 2]
        })
    }
    fn add_pairs(self, a: Floats, b: Floats) -> Floats {
        from_fn(|i| {
            let (from, at) = (if i % 4 < 2 { a } else { b }, i / 4 * 4 + i % 2 * 2);
            from[at] + from[at + 1]
        })
    }
    fn max(self, a: Floats, b: Floats) -> Floats {
        from_fn(|i| a[i].max(b[i]))
    }
    fn min(self, a: Floats, b: Floats) -> Floats {
        from_fn(|i| a[i].min(b[i]))
    }
    fn abs(self, a: Floats) -> Floats {
        a.map(f32::abs)
    }
    fn round(self, a: Floats) -> Floats {
        a.map(f32::round_ties_even)
    }
    fn power_of_two(self, a: Floats) -> Floats {
        a.map(|x| f32::from_bits(((x as i32 + 127) as u32) << 23))
    }
}
