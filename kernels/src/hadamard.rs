//! Multiplication by Hadamard matrices. It spreads a few large values of a row over all values, so
//! that one scale suits them all.
//!
//! ```text
//! H_1 = 1,   H_2n = [ H_n  H_n ]       (H_n)^2 = n:   H_n / sqrt(n) is orthogonal
//!                   [ H_n -H_n ]                      and its own inverse
//! ```
//! A row is cut into runs of equal length: the largest power of two that divides the row's length.
//! Each run is multiplied by a matrix of its size. Products of two rows do not change if both rows
//! are multiplied. (Ashkboos and others 2024, "QuaRot", section 3.)

use crate::{
    array::map,
    isa::{Cpu, Isa, Kernel, LANES},
};

/// The number of values in a vector.
const VECTOR: usize = 8;

/// Multiplies rows of `dim` values by an orthogonal Hadamard matrix. `dim` must be a multiple of
/// 32. The matrix is its own inverse, so a second call restores the rows.
///
/// ```
/// use rope_cpu_kernels::{Cpu, hadamard::mix_rows};
///
/// let mut row = [0.0; 32];
/// row[5] = 8.0;
/// mix_rows(Cpu::best(), &mut row, 32);
/// assert!(row.iter().all(|x| (x.abs() - 2f32.sqrt()).abs() < 1e-5)); // 8 / sqrt(32)
/// mix_rows(Cpu::best(), &mut row, 32);
/// assert!((row[5] - 8.0).abs() < 1e-5);
/// ```
pub fn mix_rows(cpu: Cpu, rows: &mut [f32], dim: usize) {
    assert!(dim.is_multiple_of(2 * LANES) && rows.len().is_multiple_of(dim));
    cpu.call(Rows { rows, dim });
}

struct Rows<'a> {
    rows: &'a mut [f32],
    dim: usize,
}

impl Kernel for Rows<'_> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        for row in self.rows.chunks_exact_mut(self.dim) {
            mix_row(isa, row.as_chunks_mut().0);
        }
    }
}

/// Multiplies one row by an orthogonal Hadamard matrix.
#[inline(always)]
pub(crate) fn mix_row<I: Isa>(isa: I, row: &mut [[f32; LANES]]) {
    let run = mix(isa, row) * LANES;
    let scale = isa.splat_f32(1.0 / (run as f32).sqrt());
    let (blocks, rest) = row.as_flattened_mut().as_chunks_mut().0.as_chunks_mut();
    for block in blocks {
        mix_block(isa, block, scale);
    }
    if !rest.is_empty() {
        let mut block = [[0.0; VECTOR]; VECTOR];
        block[..rest.len()].copy_from_slice(rest);
        mix_block(isa, &mut block, scale);
        rest.copy_from_slice(&block[..rest.len()]);
    }
}

/// Multiplies each run of elements, as long as the largest power of two that divides their number,
/// by a Hadamard matrix. Returns its size.
#[inline(always)]
pub(crate) fn mix<I: Isa>(isa: I, elements: &mut [[f32; LANES]]) -> usize {
    let run = 1 << elements.len().trailing_zeros();
    let mut part = 1;
    // Do two steps at a time while possible, to read and write the elements less often.
    while 4 * part <= run {
        for four in elements.chunks_exact_mut(4 * part) {
            let (ab, cd) = four.split_at_mut(2 * part);
            let ((a, b), (c, d)) = (ab.split_at_mut(part), cd.split_at_mut(part));
            for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
                let [w, x] = butterfly(isa, isa.wide_load_f32(a), isa.wide_load_f32(b));
                let [y, z] = butterfly(isa, isa.wide_load_f32(c), isa.wide_load_f32(d));
                let ([p, r], [q, s]) = (butterfly(isa, w, y), butterfly(isa, x, z));
                (*a, *b) = (isa.wide_to_f32s(p), isa.wide_to_f32s(q));
                (*c, *d) = (isa.wide_to_f32s(r), isa.wide_to_f32s(s));
            }
        }
        part *= 4;
    }
    if 2 * part <= run {
        for pair in elements.chunks_exact_mut(2 * part) {
            let (a, b) = pair.split_at_mut(part);
            for (a, b) in a.iter_mut().zip(b) {
                let [x, y] = butterfly(isa, isa.wide_load_f32(a), isa.wide_load_f32(b));
                (*a, *b) = (isa.wide_to_f32s(x), isa.wide_to_f32s(y));
            }
        }
    }
    run
}

/// Multiplies the values in each two of 8 vectors by a Hadamard matrix of size 16, and by `scale`.
#[inline(always)]
fn mix_block<I: Isa>(isa: I, block: &mut [[f32; VECTOR]; VECTOR], scale: I::Floats) {
    let mut x = map(
        *block,
        #[inline(always)]
        |vector| isa.load_f32(&vector),
    );
    // Combine values that are 8 apart, then, as columns, values that are 4, 2 and 1 apart.
    butterflies::<I, 1>(isa, &mut x);
    x = isa.transpose_floats(x);
    butterflies::<I, 4>(isa, &mut x);
    butterflies::<I, 2>(isa, &mut x);
    butterflies::<I, 1>(isa, &mut x);
    *block = map(
        isa.transpose_floats(x),
        #[inline(always)]
        |x| isa.to_f32s(isa.mul(x, scale)),
    );
}

/// Replaces each two vectors that are `D` apart by their sum and their difference.
#[inline(always)]
fn butterflies<I: Isa, const D: usize>(isa: I, x: &mut [I::Floats; VECTOR]) {
    let one = isa.splat_f32(1.0);
    for i in 0..VECTOR {
        if i & D == 0 {
            let (a, b) = (x[i], x[i + D]);
            (x[i], x[i + D]) = (isa.add(a, b), isa.neg_mul_add(b, one, a));
        }
    }
}

/// Returns `a + b` and `a - b`.
#[inline(always)]
fn butterfly<I: Isa>(isa: I, a: I::WideFloats, b: I::WideFloats) -> [I::WideFloats; 2] {
    [isa.wide_add(a, b), isa.wide_neg_mul_add(b, isa.wide_splat(1.0), a)]
}
