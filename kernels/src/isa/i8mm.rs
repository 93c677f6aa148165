#![cfg(target_arch = "aarch64")]

use std::arch::{aarch64::*, asm};

use bytemuck::{must_cast, must_cast_ref};

use super::{
    CacheLine, Half, Isa, Kernel, Neon,
    neon::{Bytes, Floats, Ints, on_16_bytes, sdot},
    pair::wide_as_pair,
};
use crate::array::{from_fn, map};

/// NEON with the integer matrix extension: Apple M2, Graviton 3, Snapdragon X, and later.
///
/// One instruction multiplies eight columns of two rows with the same columns of two tokens, twice
/// the products of a dot product. Only tiles of many tokens use it: other kernels run as [`Neon`].
#[derive(Clone, Copy)]
pub struct I8mm(Neon);

impl I8mm {
    /// Returns a proof if the running CPU has these instructions.
    pub fn new() -> Option<Self> {
        Neon::new().filter(|_| std::arch::is_aarch64_feature_detected!("i8mm")).map(Self)
    }

    operations! { "neon,dotprod,i8mm":
        fn load_ints(self, p: &[i32; 8]) -> Ints { must_cast(*p) }
        fn ints(self, x: i32) -> Ints { [vdupq_n_s32(x); 2] }
        fn splat4(self, p: &[u8; 4]) -> Bytes { [vreinterpretq_u8_u32(vdupq_n_u32(u32::from_ne_bytes(*p))); 2] }
        fn dot_add(self, acc: Ints, w: Bytes, a: Bytes) -> Ints { [sdot(acc[0], w[0], a[0]), sdot(acc[1], w[1], a[1])] }
        fn two_starts(self, a: i32, b: i32) -> int32x4_t { vcombine_s32(vdup_n_s32(a), vdup_n_s32(b)) }
        fn two_rows(self, rows: &[[u8; 4]; 4]) -> uint8x16_t { must_cast(*rows) }
        fn twice(self, row: &[[u8; 4]; 2]) -> uint8x16_t { vcombine_u8(must_cast(*row), must_cast(*row)) }
        // The first halves of two registers, and the last halves.
        fn zip(self, a: uint8x16_t, b: uint8x16_t) -> [uint8x16_t; 2] {
            let [a, b] = [vreinterpretq_u64_u8(a), vreinterpretq_u64_u8(b)];
            [vreinterpretq_u8_u64(vzip1q_u64(a, b)), vreinterpretq_u8_u64(vzip2q_u64(a, b))]
        }
        fn add_products(self, acc: int32x4_t, a: uint8x16_t, b: uint8x16_t) -> int32x4_t { smmla(acc, a, b) }
    }
    #[inline(always)]
    fn dot_add_signed(self, acc: Ints, w: Bytes, a: Bytes) -> Ints {
        self.dot_add(acc, w, a)
    }

    /// Computes the products of a panel: for each token four registers, of four rows each.
    #[inline(always)]
    fn dots<const N: usize>(
        self,
        panel: &[CacheLine],
        tokens: [&[[u8; 4]]; N],
        start: [i32; N],
    ) -> [[int32x4_t; 4]; N] {
        // Sums of tokens `a` and `a + 1` with two rows each, of half of the rows in the order of their
        // cache lines. A last token without a second is multiplied twice.
        let mut sums = [[[self.two_starts(0, 0); 4]; 2]; N];
        for a in (0..N.div_ceil(2)).map(|pair| 2 * pair) {
            sums[a] = [[self.two_starts(start[a], start[(a + 1).min(N - 1)]); 4]; 2];
        }
        // Unrolled by hand: the compiler would keep a loop.
        let eights = panel.as_chunks::<2>().0;
        self.add_eight::<0, N>(eights, tokens, &mut sums);
        self.add_eight::<1, N>(eights, tokens, &mut sums);
        if eights.len() > 2 {
            self.add_eight::<2, N>(eights, tokens, &mut sums);
            self.add_eight::<3, N>(eights, tokens, &mut sums);
        }
        let mut dots = [[self.two_starts(0, 0); 4]; N];
        for a in (0..N.div_ceil(2)).map(|pair| 2 * pair) {
            for (i, dot) in [(0, 0), (1, 0), (0, 2), (1, 2)].into_iter().enumerate() {
                let sums = [sums[a][dot.0][dot.1], sums[a][dot.0][dot.1 + 1]];
                let [first, second] = self.zip(must_cast(sums[0]), must_cast(sums[1]));
                dots[a][i] = must_cast(first);
                if a + 1 < N {
                    dots[a + 1][i] = must_cast(second);
                }
            }
        }
        dots
    }

    /// Adds the products of columns `8 * EIGHT .. 8 * EIGHT + 8` of a panel.
    #[inline(always)]
    fn add_eight<const EIGHT: usize, const N: usize>(
        self,
        eights: &[[CacheLine; 2]],
        tokens: [&[[u8; 4]]; N],
        sums: &mut [[[int32x4_t; 4]; 2]; N],
    ) {
        let mut columns = [self.two_rows(&[[0; 4]; 4]); N];
        for a in (0..N.div_ceil(2)).map(|pair| 2 * pair) {
            columns[a] = if a + 1 < N {
                self.two_rows(&tokens[a + EIGHT % 2].as_chunks().0[EIGHT / 2])
            } else {
                self.twice(&tokens[a].as_chunks().0[EIGHT])
            };
        }
        for line in 0..2 {
            let rows: &[[[u8; 4]; 4]; 4] = must_cast_ref(&eights[EIGHT][line]);
            for i in 0..4 {
                let rows = self.two_rows(&rows[i]);
                for a in (0..N.div_ceil(2)).map(|pair| 2 * pair) {
                    let sum = &mut sums[a][line][i];
                    *sum = self.add_products(*sum, columns[a], rows);
                }
            }
        }
    }
}

/// Adds the products of two rows of eight bytes in `a` with two rows in `b` to the 2 x 2 matrix
/// `acc`. The intrinsic, `vmmlaq_s32`, is not stable in Rust 1.95.
#[target_feature(enable = "neon,i8mm")]
#[inline]
#[allow(unsafe_code, reason = "no stable intrinsic for this instruction")]
fn smmla(mut acc: int32x4_t, a: uint8x16_t, b: uint8x16_t) -> int32x4_t {
    // SAFETY: the instruction accesses only the registers named, and the function enables its
    // feature.
    unsafe {
        asm!(
            "smmla {c:v}.4s, {a:v}.16b, {b:v}.16b",
            c = inout(vreg) acc, a = in(vreg) a, b = in(vreg) b,
            // Not `pure`: their order is the order that needs the fewest registers.
            options(nomem, nostack, preserves_flags)
        );
    }
    acc
}

impl Isa for I8mm {
    const ARRANGES_TOKENS: bool = true;
    const INT_TILE: usize = 6;
    const FLOAT_TILE: usize = 6;
    call_with!("neon,dotprod,i8mm", !K::PANELS => 0);
    on_16_bytes!("neon,dotprod,i8mm");

    // Cache line 2 j + i holds columns 8 j .. 8 j + 8 of rows 4 i .. 4 i + 4 of each half.
    #[inline(always)]
    fn panel(self, rows: [Bytes; 8]) -> [Bytes; 8] {
        from_fn(
            #[inline(always)]
            |line| {
                let (rows, eight) = (&rows[line % 2 * 4..], line / 2);
                from_fn(
                    #[inline(always)]
                    |i| self.zip(rows[2 * i][eight / 2], rows[2 * i + 1][eight / 2])[eight % 2],
                )
            },
        )
    }

    #[inline(always)]
    fn panel_half(self, rows: [&[u8; 16]; 8]) -> [Bytes; 4] {
        let [a, b, c, d, ..] = self.panel(map(
            rows,
            #[inline(always)]
            |row| self.join(row, row),
        ));
        [a, b, c, d]
    }

    // Two tokens a and b share both their places: a's has columns 0 .. 8 of a, then of b, and columns
    // 16 .. 24; b's has the others.
    #[inline(always)]
    fn arrange<const N: usize>(self, tokens: [&[u8; 32]; N]) -> [[u8; 32]; N] {
        let mut arranged = [[0; 32]; N];
        for t in 0..N {
            arranged[t] = *tokens[t];
            let (a, b) = (t / 2 * 2, t / 2 * 2 + 1);
            if b < N {
                let (a, b) = (self.load(tokens[a]), self.load(tokens[b]));
                let (first, last) = (self.zip(a[0], b[0])[t % 2], self.zip(a[1], b[1])[t % 2]);
                arranged[t] = must_cast([first, last]);
            }
        }
        arranged
    }

    #[inline(always)]
    fn panel_dots<const W: usize, const N: usize>(
        self,
        _signed: bool,
        _bits: u32,
        w: [&[CacheLine]; W],
        a: [&[[u8; 4]]; N],
        start: [i32; N],
    ) -> [[[Ints; 2]; N]; W] {
        from_fn(
            #[inline(always)]
            |i| must_cast(self.dots(w[i], a, start)),
        )
    }
}
