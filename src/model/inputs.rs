//! Sums up the squares of the inputs of matrix products, for importance matrices.
//!
//! A product is computed in parts, by all workers. The part with a matrix's first row adds the
//! inputs, so each is added once. Without this observer, a part costs one more comparison.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use rope_cpu_kernels::{Input, Matrix};

/// The sums of the inputs of all matrices, by the address of the matrix in the file's memory map.
#[derive(Default)]
pub struct InputSums(Mutex<HashMap<usize, Sums>>);

/// The sums of the inputs of a matrix.
#[derive(Clone, Debug)]
pub struct Sums {
    /// The sum of the squares of each column.
    pub squares: Vec<f32>,
    /// The number of inputs.
    pub count: u64,
}

impl InputSums {
    /// Adds the inputs of a product.
    pub fn add(&self, matrix: &Matrix<'_>, input: Input<'_>) {
        let columns = matrix.columns();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let address = matrix.bytes().as_ptr() as usize;
        let new = || Sums { squares: vec![0.0; columns], count: 0 };
        let sums = all.entry(address).or_insert_with(new);
        for row in input.floats[..input.tokens * columns].chunks_exact(columns) {
            sums.squares.iter_mut().zip(row).for_each(|(sum, x)| *sum += x * x);
        }
        sums.count += input.tokens as u64;
    }

    /// Returns the sums.
    pub fn into_sums(self) -> HashMap<usize, Sums> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
