//! Registers of the integer product that are wide vectors.

macro_rules! rows_are_wide {
    () => {
        type RowInts = Self::WideInts;
        type RowFloats = Self::WideFloats;

        #[inline(always)]
        fn row_dots<const W: usize, const N: usize>(
            self,
            signed: bool,
            _: u32,
            w: [&[Line]; W],
            _: usize,
            a: [&[[u8; 4]]; N],
            start: [i32; N],
        ) -> [[Self::RowInts; N]; W] {
            let mut sums = [crate::array::map(
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
        #[inline(always)]
        fn row_from_bits(self, a: Self::RowInts) -> Self::RowFloats {
            bytemuck::must_cast(a)
        }
        #[inline(always)]
        fn row_load(self, line: &Line, _: usize) -> Self::RowFloats {
            self.wide_load_f32(line.floats())
        }
        #[inline(always)]
        fn row_store(self, a: Self::RowFloats, line: &mut Line, _: usize) {
            *line.floats_mut() = self.wide_to_f32s(a);
        }
        #[inline(always)]
        fn row_splat(self, x: f32) -> Self::RowFloats {
            self.wide_splat(x)
        }
        #[inline(always)]
        fn row_mul(self, a: Self::RowFloats, b: Self::RowFloats) -> Self::RowFloats {
            self.wide_mul(a, b)
        }
        #[inline(always)]
        fn row_mul_add(
            self,
            a: Self::RowFloats,
            b: Self::RowFloats,
            c: Self::RowFloats,
        ) -> Self::RowFloats {
            self.wide_mul_add(a, b, c)
        }
    };
}
pub(super) use rows_are_wide;
