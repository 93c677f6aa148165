//! Low-rank adapters (LoRA, arXiv:2106.09685): add a small product `s B (A x)` to a product `W x`
//! of the model.
//!
//! A GGUF file of `general.type` adapter has, for a tensor `NAME` of the model, `NAME.lora_a` (rank
//! rows) and `NAME.lora_b` (rank columns). `s` is the scale that a sequence has for the adapter, times
//! `adapter.lora.alpha` over the rank if the file contains an alpha. Nothing is merged: the weights
//! stay as they are in the file.
//!
//! Embeddings are looked up: their A has a row (of length rank) for each token, and B multiplies
//! that row. If a model's output shares the tensor of the embeddings, the output is not changed.

use std::{collections::BTreeMap, ops::Range, path::Path};

use rope_cpu_kernels::{DType, Matrix};
use thiserror::Error;

use super::EMBEDDINGS;
use crate::{
    gguf::{self, File, Gguf, Metadata, Tensor},
    json::FileText,
};

/// An error while reading an adapter for a model.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Error {
    #[error(transparent)]
    Metadata(#[from] gguf::MetadataError),
    #[error(
        "metadata key {key} is {found}, where {expected} is expected: the file is not a LoRA adapter \
         for a model of this architecture"
    )]
    Key { key: &'static str, found: FileText, expected: String },
    #[error("adapters that are activated by tokens (metadata key {ACTIVATION}) are not supported")]
    Activated,
    #[error(
        "tensor {0} is not supported in an adapter: its name must end in .lora_a, .lora_b or \
         _norm.weight"
    )]
    Unknown(FileText),
    #[error("tensor {0} is one of a pair, .lora_a and .lora_b: the other is missing")]
    Unpaired(FileText),
    #[error("the adapter changes tensor {0}, which the model lacks: it is for another model")]
    NotInModel(FileText),
    #[error("the adapter changes tensor {0}, which is not a matrix: this is not supported")]
    NotMatrix(FileText),
    #[error(
        "the adapter changes tensor {0}, which is read without adapters: merge the adapter into the \
         model"
    )]
    Fixed(FileText),
    #[error(
        "the adapter changes tensor {0} and not the tensors of all experts of the layer with the same \
         rank and alpha: change all of them alike, or none"
    )]
    OneExpert(FileText),
    #[error(
        "tensor {name}.lora_a has shape {a:?} and {name}.lora_b {b:?}, which do not fit the model's \
         {model:?}: the adapter is for another model"
    )]
    Shape { name: FileText, a: Vec<u64>, b: Vec<u64>, model: Vec<u64> },
    #[error(
        "tensor {tensor} is of type {found}, which is not supported; supported: {}",
        DType::ALL.map(DType::name).join(", ")
    )]
    Format { tensor: FileText, found: &'static str },
    #[error(
        "tensor {tensor} has {value} in row {row}: must be finite; the adapter is damaged, download it again"
    )]
    NotFinite { tensor: FileText, row: usize, value: f32 },
    #[error("tensor {tensor}: {reason}")]
    Matrix { tensor: FileText, reason: String },
    #[error("the file is not a LoRA adapter: it has no tensors .lora_a and .lora_b")]
    Empty,
}

/// The metadata key of adapters that only tokens of an invocation activate.
const ACTIVATION: &str = "adapter.alora.invocation_tokens";

/// An adapter that fits a model.
pub struct Adapter<'a> {
    path: &'a Path,
    scale: f32,
    pub(super) tensors: Vec<Tensor<'a>>,
    pub(super) additions: BTreeMap<&'a str, LowRank<'a>>,
    norms: Vec<&'a str>,
}

/// The low-rank term added to a product: `s up (down x)`. For embeddings it is `s up (row of down)`.
#[derive(Clone, Copy)]
pub(super) struct LowRank<'a> {
    pub down: Matrix<'a>, // (rank, columns), or (tokens, rank)
    pub up: Matrix<'a>,   // (rows, rank)
    pub factor: Factor,
}

/// The parts of the factor `s` of a term that the adapter determines.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Factor {
    /// The index of the adapter.
    adapter: usize,
    /// The adapter's alpha; 0 if its file has none.
    alpha: f32,
    rank: f32,
}

impl Factor {
    /// Returns the factor in a sequence with these scales, one for each adapter.
    pub fn at(self, scales: &[f32]) -> f32 {
        let Factor { adapter, alpha, rank } = self;
        let scale = scales[adapter];
        if alpha == 0.0 { scale } else { scale * alpha / rank }
    }
}

impl<'a> LowRank<'a> {
    /// Returns the term for some of the product's rows.
    pub fn rows(&self, rows: Range<usize>) -> Self {
        LowRank { up: self.up.part(rows), ..*self }
    }

    /// Returns the term for one of `count` experts in stacked matrices.
    pub fn expert(&self, expert: usize, count: usize) -> Self {
        let of = |matrix: &Matrix<'_>| {
            let rows = matrix.rows() / count;
            expert * rows..(expert + 1) * rows
        };
        LowRank { down: self.down.part(of(&self.down)), ..self.rows(of(&self.up)) }
    }
}

impl<'a> Adapter<'a> {
    /// Reads the adapter with this index for `model`. `scale` multiplies its products, unless a
    /// sequence has another one.
    ///
    /// # Errors
    /// If the file is not an adapter, or is an adapter for another model.
    pub(super) fn read(
        file: &'a File,
        model: &Gguf<'_>,
        index: usize,
        scale: f32,
    ) -> Result<Self, super::Error> {
        let gguf = file.parse(&[])?;
        Self::check(file.path(), &gguf, model, index, scale)
            .map_err(|e| super::Error::from(e).of(file.path()))
    }

    fn check(
        path: &'a Path,
        gguf: &Gguf<'a>,
        model: &Gguf<'_>,
        index: usize,
        scale: f32,
    ) -> Result<Self, Error> {
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
            path,
            scale,
            tensors: gguf.tensors().to_vec(),
            additions: BTreeMap::new(),
            norms: Vec::new(),
        };
        for tensor in gguf.tensors() {
            let other = |name| gguf.tensor(name).ok_or_else(|| Error::Unpaired(tensor.name.into()));
            if let Some(name) = tensor.name.strip_suffix(".lora_a") {
                let b = other(&format!("{name}.lora_b"))?;
                adapter.additions.insert(name, addition(name, tensor, b, model, index, alpha)?);
            } else if let Some(name) = tensor.name.strip_suffix(".lora_b") {
                other(&format!("{name}.lora_a"))?;
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

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.path
    }

    /// Returns the default scale of the adapter, for sequences without another one: see
    /// [`Sequence::set_adapter_scales`](super::Sequence::set_adapter_scales).
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// Returns the number of the model's tensors that the adapter changes.
    pub fn changed(&self) -> usize {
        self.additions.len()
    }

    /// Returns the names of the adapter's norms, which have no effect, as in llama.cpp.
    pub fn norms(&self) -> &[&'a str] {
        &self.norms
    }

    /// Returns the bytes of the adapter's tensors.
    pub(super) fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.bytes.len() as u64).sum()
    }

    /// Returns the term that the adapter adds to products with a tensor of the model.
    pub(super) fn addition(&self, name: &str) -> Option<LowRank<'a>> {
        self.additions.get(name).copied()
    }
}

/// Checks the pair of tensors for the model's tensor `name`, of shape (columns, rows, experts).
fn addition<'a>(
    name: &str,
    a: &Tensor<'a>,
    b: &Tensor<'a>,
    model: &Gguf<'_>,
    adapter: usize,
    alpha: f32,
) -> Result<LowRank<'a>, Error> {
    let tensor = model.tensor(name).ok_or_else(|| Error::NotInModel(name.into()))?;
    if tensor.dim_count < 2 {
        return Err(Error::NotMatrix(name.into()));
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
    let factor = Factor { adapter, alpha, rank: rank as f32 };
    Ok(LowRank { down: matrix(a)?, up: matrix(b)?, factor })
}

fn matrix<'a>(tensor: &Tensor<'a>) -> Result<Matrix<'a>, Error> {
    let name = tensor.ggml_type.name;
    let dtype = DType::named(name)
        .ok_or_else(|| Error::Format { tensor: tensor.name.into(), found: name })?;
    let matrix =
        Matrix::new(dtype, tensor.rows() as usize, tensor.row_len() as usize, tensor.bytes)
            .map_err(|reason| Error::Matrix { tensor: tensor.name.into(), reason })?;
    let mut values = vec![0.0; matrix.columns()];
    for row in 0..matrix.rows() {
        matrix.decode_row(row, &mut values);
        if let Some(value) = values.iter().find(|x| !x.is_finite()) {
            return Err(Error::NotFinite { tensor: tensor.name.into(), row, value: *value });
        }
    }
    Ok(matrix)
}
