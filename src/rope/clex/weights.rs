//! The two matrices of CLEX, read from a safetensors file.

use std::{fs, path::Path};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::rope::Error;

/// The weight matrices of CLEX's equation, row-major.
#[derive(Debug)]
pub(super) struct Matrices {
    pub up: Vec<f64>,   // (pairs, hidden)
    pub down: Vec<f64>, // (hidden, pairs)
    pub hidden: usize,
}

/// The largest accepted file, in bytes. The matrices of any model are far smaller.
const BYTES_MAX: u64 = 1 << 22;

impl Matrices {
    /// Reads the matrices for `pairs` pairs from the file at `path`. The suffixes of their names
    /// are `ode_up_proj`, (pairs, hidden), and `ode_down_proj`, (hidden, pairs), as in the
    /// published code. Values may be f64, f32, f16 or bf16.
    ///
    /// # Errors
    /// If the file cannot be read, is too large or does not have these tensors.
    pub fn read(path: &Path, pairs: usize) -> Result<Self, Error> {
        let file = path.display().to_string();
        let (up, down) =
            both(path).map_err(|fault| Error::ClexFile { file: file.clone(), fault })?;
        match up.rows == pairs {
            true => Ok(Matrices { up: up.values, down: down.values, hidden: up.columns }),
            false => Err(Error::ClexPairs { file, found: up.rows, expected: pairs }),
        }
    }
}

/// Reads both matrices of the file at `path`. The error says what is wrong with the file.
fn both(path: &Path) -> Result<(Matrix, Matrix), String> {
    let length = fs::metadata(path).map_err(|e| e.to_string())?.len();
    if length > BYTES_MAX {
        return Err(format!(
            "is larger than {BYTES_MAX} bytes: give a file with only the two CLEX matrices"
        ));
    }
    let bytes = fs::read(path).map_err(|e| e.to_string())?;
    let file =
        SafeTensors::deserialize(&bytes).map_err(|e| format!("is not a safetensors file: {e}"))?;
    let up = matrix(&file, "ode_up_proj")?;
    let down = matrix(&file, "ode_down_proj")?;
    let (pairs, hidden) = (up.rows, up.columns);
    if (down.rows, down.columns) != (hidden, pairs) {
        return Err(format!(
            "ode_up_proj is {pairs} x {hidden}, ode_down_proj {} x {}: ode_down_proj must be \
             {hidden} x {pairs}",
            down.rows, down.columns
        ));
    }
    Ok((up, down))
}

/// A matrix of a file, row-major.
struct Matrix {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
}

/// Reads the only tensor with this `suffix` in its name.
fn matrix(file: &SafeTensors, suffix: &str) -> Result<Matrix, String> {
    let mut found = file.iter().filter(|(name, _)| name.ends_with(suffix));
    let (name, tensor) = match (found.next(), found.next()) {
        (Some(one), None) => one,
        (None, _) => return Err(format!("has no tensor {suffix}")),
        (Some((one, _)), Some((other, _))) => {
            return Err(format!("has both {one} and {other}: must have one tensor {suffix}"));
        }
    };
    let wrong = |fault: String| format!("tensor {name} {fault}");
    let &[rows, columns] = tensor.shape() else {
        return Err(wrong(format!("has {} dimensions: must have 2", tensor.shape().len())));
    };
    if rows == 0 || columns == 0 {
        return Err(wrong("is empty".into()));
    }
    let values = values(&tensor).ok_or_else(|| {
        wrong(format!("is of type {:?}: must be f64, f32, f16 or bf16", tensor.dtype()))
    })?;
    match values.iter().position(|value| !value.is_finite()) {
        Some(i) => Err(wrong(format!(
            "has a value that is not finite at row {}, column {}",
            i / columns,
            i % columns
        ))),
        None => Ok(Matrix { rows, columns, values }),
    }
}

/// Returns the values of a tensor; `None` if its type is not supported.
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
