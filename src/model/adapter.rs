//! Low-rank adapters (LoRA, arXiv:2106.09685): beside a product `W x` of the model there is a small
//! `s B (A x)`.
//!
//! A GGUF file of `general.type` adapter has, for a tensor `NAME` of the model, `NAME.lora_a` (rank
//! rows) and `NAME.lora_b` (rank columns). `s` is the user's scale, times `adapter.lora.alpha` over
//! the rank where the file gives one. Nothing is merged: the weights stay as they are in the file.
//!
//! Embeddings are looked up: there, A has a row of the rank for each token, and B is applied to it. What
//! is multiplied with the same tensor where a model has no other for its output is not changed.

use std::{collections::BTreeMap, ops::Range};

use rope_cpu_kernels::{DType, Matrix};
use thiserror::Error;

use super::EMBEDDINGS;
use crate::gguf::{self, Gguf, Metadata, Tensor};

/// Why a file is not an adapter for a model.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Error {
    #[error(transparent)]
    Metadata(#[from] gguf::MetadataError),
    #[error(
        "{key} is {found}, where {expected} is expected: this is no LoRA adapter for such a model"
    )]
    Key { key: &'static str, found: String, expected: String },
    #[error("adapters that wait for words to activate them ({ACTIVATION}) do not run here")]
    Activated,
    #[error("tensor {0} is neither .lora_a nor .lora_b of another: no adapter has such")]
    Unknown(String),
    #[error("tensor {0} lacks its other half, .lora_a or .lora_b")]
    Half(String),
    #[error("tensor {0} is changed, which the model lacks: the adapter is for another one")]
    Foreign(String),
    #[error("tensor {0} is changed, which is no matrix: that does not run here")]
    NoMatrix(String),
    #[error(
        "tensor {name}.lora_a has shape {a:?} and {name}.lora_b {b:?}, which do not go with the \
         model's {model:?}: the adapter is for another one"
    )]
    Shape { name: String, a: Vec<u64>, b: Vec<u64>, model: Vec<u64> },
    #[error(
        "tensor {tensor} is of type {found}, which does not run here; these do: {}",
        DType::ALL.map(DType::name).join(", ")
    )]
    Format { tensor: String, found: &'static str },
    #[error("tensor {tensor}: {reason}")]
    Matrix { tensor: String, reason: String },
    #[error("the file changes nothing: it has no .lora_a and .lora_b")]
    Empty,
}

const ACTIVATION: &str = "adapter.alora.invocation_tokens";

/// An adapter that fits a model.
pub struct Adapter<'a> {
    pub(super) tensors: Vec<Tensor<'a>>,
    pub(super) additions: BTreeMap<&'a str, LowRank<'a>>,
    norms: Vec<&'a str>,
}

/// What comes beside a product: `scale up (down x)`. Beside embeddings it is a row of `down` that
/// `up` multiplies.
#[derive(Clone, Copy)]
pub(super) struct LowRank<'a> {
    pub down: Matrix<'a>, // (rank, columns), or (tokens, rank)
    pub up: Matrix<'a>,   // (rows, rank)
    pub scale: f32,
}

impl<'a> LowRank<'a> {
    /// Beside some of the rows.
    pub fn rows(&self, rows: Range<usize>) -> Self {
        LowRank { up: self.up.part(rows), ..*self }
    }

    /// Beside one of so many matrices.
    pub fn expert(&self, expert: usize, count: usize) -> Self {
        let of = |matrix: &Matrix<'_>| {
            let rows = matrix.rows() / count;
            expert * rows..(expert + 1) * rows
        };
        LowRank { down: self.down.part(of(&self.down)), ..self.rows(of(&self.up)) }
    }
}

impl<'a> Adapter<'a> {
    /// Reads an adapter for `model`, whose additions are multiplied by `scale`.
    ///
    /// # Errors
    /// If the file is none, or for another model.
    pub fn read(gguf: &Gguf<'a>, model: &Gguf<'_>, scale: f32) -> Result<Self, Error> {
        let metadata = gguf.metadata();
        let architecture = model.metadata().string("general.architecture")?.unwrap_or_default();
        for (key, expected) in [
            ("general.type", "adapter"),
            ("adapter.type", "lora"),
            ("general.architecture", architecture),
        ] {
            let found = Metadata::require(key, metadata.string(key)?)?;
            if found != expected {
                return Err(Error::Key { key, found: found.into(), expected: expected.into() });
            }
        }
        if metadata.get(ACTIVATION).is_some() {
            return Err(Error::Activated);
        }
        let alpha = metadata.f32("adapter.lora.alpha")?.unwrap_or(0.0);
        let mut adapter = Adapter {
            tensors: gguf.tensors().to_vec(),
            additions: BTreeMap::new(),
            norms: Vec::new(),
        };
        for tensor in gguf.tensors() {
            let half = |name| gguf.tensor(name).ok_or_else(|| Error::Half(tensor.name.into()));
            if let Some(name) = tensor.name.strip_suffix(".lora_a") {
                let b = half(&format!("{name}.lora_b"))?;
                adapter.additions.insert(name, addition(name, tensor, b, model, scale, alpha)?);
            } else if let Some(name) = tensor.name.strip_suffix(".lora_b") {
                half(&format!("{name}.lora_a"))?;
            } else if tensor.name.ends_with("_norm.weight") {
                adapter.norms.push(tensor.name);
            } else {
                return Err(Error::Unknown(tensor.name.into()));
            }
        }
        if adapter.additions.is_empty() {
            return Err(Error::Empty);
        }
        Ok(adapter)
    }

    /// How many of the model's tensors it changes.
    pub fn changed(&self) -> usize {
        self.additions.len()
    }

    /// Norms that it has and that have no effect, as in llama.cpp.
    pub fn norms(&self) -> &[&'a str] {
        &self.norms
    }

    pub(super) fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.bytes.len() as u64).sum()
    }

    /// What it adds to products with a tensor.
    pub(super) fn addition(&self, name: &str) -> Option<LowRank<'a>> {
        self.additions.get(name).copied()
    }
}

/// Checks a pair against the model's tensor: (columns, rows, experts).
fn addition<'a>(
    name: &str,
    a: &Tensor<'a>,
    b: &Tensor<'a>,
    model: &Gguf<'_>,
    scale: f32,
    alpha: f32,
) -> Result<LowRank<'a>, Error> {
    let tensor = model.tensor(name).ok_or_else(|| Error::Foreign(name.into()))?;
    if tensor.dim_count < 2 {
        return Err(Error::NoMatrix(name.into()));
    }
    let [columns, rows, experts, last] = tensor.dims;
    let rank = b.dims[0];
    let (down, up) = match name == EMBEDDINGS {
        true => ([rank, rows], [rank, columns]),
        false => ([columns, rank], [rank, rows]),
    };
    let fits =
        |half: &Tensor<'_>, [columns, rows]: [u64; 2]| half.dims == [columns, rows, experts, last];
    if !fits(a, down) || !fits(b, up) {
        return Err(Error::Shape {
            name: name.into(),
            a: a.shape().to_vec(),
            b: b.shape().to_vec(),
            model: tensor.shape().to_vec(),
        });
    }
    let scale = if alpha == 0.0 { scale } else { scale * alpha / rank as f32 };
    Ok(LowRank { down: matrix(a)?, up: matrix(b)?, scale })
}

fn matrix<'a>(tensor: &Tensor<'a>) -> Result<Matrix<'a>, Error> {
    let name = tensor.ggml_type.name;
    let dtype = DType::named(name)
        .ok_or_else(|| Error::Format { tensor: tensor.name.into(), found: name })?;
    Matrix::new(dtype, tensor.rows() as usize, tensor.row_len() as usize, tensor.bytes)
        .map_err(|reason| Error::Matrix { tensor: tensor.name.into(), reason })
}
