//! Wide vectors as pairs of narrow vectors, for instruction sets without wider registers.

macro_rules! wide_as_pair {
    () => {
        type WideBytes = [Self::Bytes; 2];
        type WideInts = [Self::Ints; 2];
        type WideFloats = [Self::Floats; 2];

        #[inline(always)]
        fn wide_load(self, p: &[u8; 64]) -> Self::WideBytes {
            let halves = p.as_chunks::<32>().0;
            [self.load(&halves[0]), self.load(&halves[1])]
        }
        #[inline(always)]
        fn wide_ints(self, x: i32) -> Self::WideInts {
            [self.ints(x); 2]
        }
        #[inline(always)]
        fn wide_dot_unsigned(
            self,
            acc: Self::WideInts,
            w: Self::WideBytes,
            a: &[u8; 4],
        ) -> Self::WideInts {
            let a = self.splat4(a);
            [self.dot_add(acc[0], w[0], a), self.dot_add(acc[1], w[1], a)]
        }
        #[inline(always)]
        fn wide_dot_signed(
            self,
            acc: Self::WideInts,
            w: Self::WideBytes,
            a: &[u8; 4],
        ) -> Self::WideInts {
            let a = self.splat4(a);
            [self.dot_add_signed(acc[0], w[0], a), self.dot_add_signed(acc[1], w[1], a)]
        }
        #[inline(always)]
        fn wide_join(self, a: Self::Bytes, b: Self::Bytes) -> Self::WideBytes {
            [a, b]
        }
        #[inline(always)]
        fn wide_products<const K: usize>(
            self,
            signed: bool,
            w: [Self::WideBytes; K],
            a: [Self::WideBytes; K],
        ) -> Self::WideInts {
            const { assert!(K == 1 || K == 2) };
            let second = K - 1;
            crate::array::from_fn(
                #[inline(always)]
                |half| match (signed, K) {
                    (false, 1) => self.dot_unsigned(w[0][half], a[0][half]),
                    (true, 1) => self.dot_signed(w[0][half], a[0][half]),
                    (false, _) => self.dot_both_unsigned(
                        [w[0][half], w[second][half]],
                        [a[0][half], a[second][half]],
                    ),
                    (true, _) => self.dot_both_signed(
                        [w[0][half], w[second][half]],
                        [a[0][half], a[second][half]],
                    ),
                },
            )
        }
        #[inline(always)]
        fn wide_broadcast_in_halves<const N: i32>(self, a: Self::Floats) -> Self::WideFloats {
            match N {
                0 => [self.broadcast_in_halves::<0>(a), self.broadcast_in_halves::<1>(a)],
                _ => [self.broadcast_in_halves::<2>(a), self.broadcast_in_halves::<3>(a)],
            }
        }
        #[inline(always)]
        fn wide_from_bits(self, a: Self::WideInts) -> Self::WideFloats {
            bytemuck::must_cast(a)
        }
        #[inline(always)]
        fn wide_to_floats(self, a: Self::WideInts) -> Self::WideFloats {
            [self.to_floats(a[0]), self.to_floats(a[1])]
        }
        #[inline(always)]
        fn wide_load_f32(self, p: &[f32; 16]) -> Self::WideFloats {
            let halves = p.as_chunks::<8>().0;
            [self.load_f32(&halves[0]), self.load_f32(&halves[1])]
        }
        #[inline(always)]
        fn wide_to_f32s(self, a: Self::WideFloats) -> [f32; 16] {
            bytemuck::must_cast([self.to_f32s(a[0]), self.to_f32s(a[1])])
        }
        #[inline(always)]
        fn wide_splat(self, x: f32) -> Self::WideFloats {
            [self.splat_f32(x); 2]
        }
        #[inline(always)]
        fn wide_splat_f16(self, x: Half) -> Self::WideFloats {
            [self.splat_f16(x); 2]
        }
        #[inline(always)]
        fn wide_mul(self, a: Self::WideFloats, b: Self::WideFloats) -> Self::WideFloats {
            [self.mul(a[0], b[0]), self.mul(a[1], b[1])]
        }
        #[inline(always)]
        fn wide_mul_add(
            self,
            a: Self::WideFloats,
            b: Self::WideFloats,
            c: Self::WideFloats,
        ) -> Self::WideFloats {
            [self.mul_add(a[0], b[0], c[0]), self.mul_add(a[1], b[1], c[1])]
        }

        // Operations of attention, and of the element-wise steps.

        #[inline(always)]
        fn wide_halves(self, a: Self::WideFloats) -> [Self::Floats; 2] {
            a
        }
        #[inline(always)]
        fn wide_from_f16(self, p: &[Half; 16]) -> Self::WideFloats {
            let halves = p.as_chunks::<8>().0;
            [self.floats_from_f16(&halves[0]), self.floats_from_f16(&halves[1])]
        }
        #[inline(always)]
        fn wide_from_bf16(self, p: &[Half; 16]) -> Self::WideFloats {
            let halves = p.as_chunks::<8>().0;
            [self.floats_from_bf16(&halves[0]), self.floats_from_bf16(&halves[1])]
        }
        #[inline(always)]
        fn wide_from_i8(self, p: &[u8; 16]) -> Self::WideFloats {
            let halves: [[i8; 8]; 2] = bytemuck::must_cast(*p);
            [self.floats_from_i8(&halves[0]), self.floats_from_i8(&halves[1])]
        }
        #[inline(always)]
        fn wide_from_nibbles<const SHIFT: i32>(self, p: &[u8; 16]) -> Self::WideFloats {
            let halves: [[u8; 8]; 2] = bytemuck::must_cast(*p);
            [
                self.floats_from_nibbles::<SHIFT>(&halves[0]),
                self.floats_from_nibbles::<SHIFT>(&halves[1]),
            ]
        }
        #[inline(always)]
        fn wide_load_ints(self, p: &[i32; 16]) -> Self::WideInts {
            let halves = p.as_chunks::<8>().0;
            [self.load_ints(&halves[0]), self.load_ints(&halves[1])]
        }
        #[inline(always)]
        fn wide_dot_biased(
            self,
            acc: Self::WideInts,
            w: Self::WideBytes,
            a: &[u8; 4],
        ) -> Self::WideInts {
            let a = self.splat4(a);
            [self.dot_add_signed(acc[0], a, w[0]), self.dot_add_signed(acc[1], a, w[1])]
        }
        #[inline(always)]
        fn wide_dot_by_unsigned(
            self,
            acc: Self::WideInts,
            w: Self::WideBytes,
            a: &[u8; 4],
        ) -> Self::WideInts {
            let a = self.splat4(a);
            [self.dot_add(acc[0], a, w[0]), self.dot_add(acc[1], a, w[1])]
        }
        #[inline(always)]
        fn wide_bytes(self, a: [Self::WideFloats; 4]) -> [u8; 64] {
            let [a, b, c, d] = a;
            bytemuck::must_cast([
                self.bytes_from_floats([a[0], b[0], c[0], d[0]]),
                self.bytes_from_floats([a[1], b[1], c[1], d[1]]),
            ])
        }
        #[inline(always)]
        fn wide_add(self, a: Self::WideFloats, b: Self::WideFloats) -> Self::WideFloats {
            [self.add(a[0], b[0]), self.add(a[1], b[1])]
        }
        #[inline(always)]
        fn wide_div(self, a: Self::WideFloats, b: Self::WideFloats) -> Self::WideFloats {
            [self.div(a[0], b[0]), self.div(a[1], b[1])]
        }
        #[inline(always)]
        fn wide_neg_mul_add(
            self,
            a: Self::WideFloats,
            b: Self::WideFloats,
            c: Self::WideFloats,
        ) -> Self::WideFloats {
            [self.neg_mul_add(a[0], b[0], c[0]), self.neg_mul_add(a[1], b[1], c[1])]
        }
        #[inline(always)]
        fn wide_max(self, a: Self::WideFloats, b: Self::WideFloats) -> Self::WideFloats {
            [self.max(a[0], b[0]), self.max(a[1], b[1])]
        }
        #[inline(always)]
        fn wide_min(self, a: Self::WideFloats, b: Self::WideFloats) -> Self::WideFloats {
            [self.min(a[0], b[0]), self.min(a[1], b[1])]
        }
        #[inline(always)]
        fn wide_round(self, a: Self::WideFloats) -> Self::WideFloats {
            [self.round(a[0]), self.round(a[1])]
        }
        #[inline(always)]
        fn wide_power_of_two(self, a: Self::WideFloats) -> Self::WideFloats {
            [self.power_of_two(a[0]), self.power_of_two(a[1])]
        }
    };
}
pub(super) use wide_as_pair;
