//! The two matrices of CLEX, from a file of safetensors.

use std::{fs, path::Path, sync::Arc};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::rope::Error;

/// The matrices of the equation. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct ClexWeights(Arc<Matrices>);

#[derive(Debug, PartialEq)]
pub(super) struct Matrices {
    name: String,
    pub up: Vec<f64>,   // (pairs, hidden)
    pub down: Vec<f64>, // (hidden, pairs)
    pub hidden: usize,
    pairs: usize,
}

/// The largest file: the matrices of any model take a small part of it.
const BYTES_MAX: u64 = 1 << 28;

impl ClexWeights {
    /// Reads the file at `path`: its one tensor whose name ends with `ode_up_proj`, (pairs,
    /// hidden), and the one that ends with `ode_down_proj`, (hidden, pairs), as the published code
    /// names them. Numbers may be f64, f32, f16 or bf16.
    ///
    /// # Errors
    /// A file that cannot be read or is something else, without the path.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let broken = |e: &dyn std::fmt::Display| Error::ClexFile(e.to_string());
        let length = fs::metadata(path).map_err(|e| broken(&e))?.len();
        if length > BYTES_MAX {
            return Err(broken(&"is too large: give a file with the two matrices of CLEX alone"));
        }
        let bytes = fs::read(path).map_err(|e| broken(&e))?;
        let file = SafeTensors::deserialize(&bytes)
            .map_err(|e| broken(&format_args!("is no file of safetensors: {e}")))?;
        let up = matrix(&file, "ode_up_proj")?;
        let down = matrix(&file, "ode_down_proj")?;
        let (pairs, hidden) = (up.rows, up.columns);
        if (down.rows, down.columns) != (hidden, pairs) {
            return Err(broken(&format_args!(
                "ode_up_proj is {pairs} x {hidden}, ode_down_proj {} x {}: one must be as wide as \
                 the other is high",
                down.rows, down.columns
            )));
        }
        let name = path.display().to_string();
        Ok(ClexWeights(Arc::new(Matrices {
            name,
            up: up.values,
            down: down.values,
            hidden,
            pairs,
        })))
    }

    pub(super) fn matrices(&self) -> &Matrices {
        &self.0
    }

    /// The path of the file.
    pub(super) fn name(&self) -> &str {
        &self.0.name
    }

    /// An error if the matrices are for another number of pairs.
    pub(super) fn check(&self, pairs: usize) -> Result<(), Error> {
        if self.0.pairs == pairs {
            return Ok(());
        }
        Err(Error::ClexPairs { file: self.0.name.clone(), found: self.0.pairs, expected: pairs })
    }
}

struct Matrix {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
}

fn matrix(file: &SafeTensors, suffix: &str) -> Result<Matrix, Error> {
    let mut found = file.iter().filter(|(name, _)| name.ends_with(suffix));
    let (name, tensor) = match (found.next(), found.next()) {
        (Some(one), None) => one,
        (None, _) => return Err(Error::ClexFile(format!("has no tensor {suffix}"))),
        (Some((one, _)), Some((other, _))) => {
            return Err(Error::ClexFile(format!("has both {one} and {other}: one is needed")));
        }
    };
    let wrong = |what: String| Error::ClexFile(format!("tensor {name} {what}"));
    let &[rows, columns] = tensor.shape() else {
        return Err(wrong(format!("has {} dimensions instead of 2", tensor.shape().len())));
    };
    if rows == 0 || columns == 0 {
        return Err(wrong("is empty".into()));
    }
    let values = values(&tensor).ok_or_else(|| {
        wrong(format!("is {:?}, where f64, f32, f16 or bf16 is expected", tensor.dtype()))
    })?;
    match values.iter().position(|value| !value.is_finite()) {
        Some(i) => Err(wrong(format!("is not finite at {}, {}", i / columns, i % columns))),
        None => Ok(Matrix { rows, columns, values }),
    }
}

fn values(tensor: &TensorView) -> Option<Vec<f64>> {
    fn each<const N: usize>(bytes: &[u8], value: impl Fn([u8; N]) -> f64) -> Option<Vec<f64>> {
        Some(bytes.as_chunks::<N>().0.iter().map(|bytes| value(*bytes)).collect())
    }
    let bytes = tensor.data();
    match tensor.dtype() {
        Dtype::F64 => each(bytes, f64::from_le_bytes),
        Dtype::F32 => each(bytes, |b| f32::from_le_bytes(b).into()),
        Dtype::F16 => each(bytes, |b| half::f16::from_le_bytes(b).into()),
        Dtype::BF16 => each(bytes, |b| half::bf16::from_le_bytes(b).into()),
        _ => None,
    }
}
