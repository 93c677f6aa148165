//! Hadamard matrices, compared with their definition.

use rope_cpu_kernels::{Cpu, hadamard::mix_rows};

use crate::common::{Random, on_every_isa, scalar};

const DIMS: [usize; 6] = [32, 64, 96, 128, 160, 256];

/// Returns the product of a row with a matrix, run by run. Element (i, j) is the product of a -1
/// for each bit that `i` and `j` share.
fn expected(row: &[f32]) -> Vec<f64> {
    let run = 1 << row.len().trailing_zeros();
    let product = |row: &[f32], i: usize| -> f64 {
        let sign = |j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
        row.iter().enumerate().map(|(j, &x)| sign(j) * f64::from(x)).sum()
    };
    let runs = row.chunks_exact(run);
    let factor = 1.0 / (run as f64).sqrt();
    runs.flat_map(|row| (0..run).map(move |i| factor * product(row, i))).collect()
}

#[test]
fn a_row_is_multiplied_by_its_definition() {
    for dim in DIMS {
        let x = Random(dim as u64).floats(dim);
        let mut found = x.clone();
        mix_rows(scalar(), &mut found, dim);
        for (found, expected) in found.iter().zip(expected(&x)) {
            // At most eight sums of values below 1 in turn, and the factor.
            assert!((f64::from(*found) - expected).abs() < 1e-5, "{dim}: {found} {expected}");
        }
    }
}

#[test]
fn two_multiplications_give_the_row_back() {
    for dim in DIMS {
        let x = Random(dim as u64).floats(3 * dim);
        let mut found = x.clone();
        mix_rows(scalar(), &mut found, dim);
        assert!(found.iter().zip(&x).any(|(a, b)| (a - b).abs() > 0.5), "{dim}");
        mix_rows(scalar(), &mut found, dim);
        for (found, x) in found.iter().zip(&x) {
            assert!((found - x).abs() < 1e-5, "{dim}: {found} {x}");
        }
    }
}

fn multiplies_as_the_scalar_one(cpu: Cpu) {
    for dim in DIMS {
        let mut found = Random(7).floats(3 * dim);
        let mut expected = found.clone();
        mix_rows(cpu, &mut found, dim);
        mix_rows(scalar(), &mut expected, dim);
        assert_eq!(found, expected, "{dim}");
    }
}
on_every_isa!(multiplies_as_the_scalar_one);
