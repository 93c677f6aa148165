use rope_cpu_kernels::DType;
use thiserror::Error;

use super::Architecture;
use crate::{gguf, rope};

/// Why a file is not a model that runs here, or a session cannot go on.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Error {
    #[error(transparent)]
    Metadata(#[from] gguf::MetadataError),
    #[error(transparent)]
    Rope(#[from] rope::Error),
    #[error("architecture {found} does not run here; these do: {}", Architecture::names())]
    Architecture { found: String },
    #[error("metadata key {key} is {value}: {reason}")]
    Value { key: String, value: String, reason: &'static str },
    #[error("this is a model with {count} experts, which no {name} model has that runs here")]
    Experts { count: usize, name: &'static str },
    #[error("tensor token_embd.weight has {0} rows: no model knows so many tokens")]
    Vocabulary(u64),
    #[error("tensor {0} is missing")]
    MissingTensor(String),
    #[error("tensor {tensor} has shape {found:?}, where {expected:?} is expected")]
    Shape { tensor: String, found: Vec<u64>, expected: Vec<u64> },
    #[error("tensor {0} is not part of such a model: running without it would give wrong results")]
    UnusedTensor(String),
    #[error(
        "tensor {tensor} is of type {found}, which does not run here; these do: {}",
        DType::ALL.map(DType::name).join(", ")
    )]
    Format { tensor: String, found: String },
    #[error("tensor {tensor} is of type {found}, where f32 is expected")]
    NotF32 { tensor: String, found: String },
    #[error("tensor {tensor}: {reason}")]
    Matrix { tensor: String, reason: String },
    #[error("token {token} is not in the model's vocabulary of {vocabulary}")]
    Token { token: u32, vocabulary: usize },
    #[error("the context of {context} tokens is full: {used} are in use, {more} more do not fit")]
    ContextFull { context: usize, used: usize, more: usize },
    #[error(
        "{tokens} tokens are to be kept where the context shifts: it needs {needed} or more for that, \
         and has {context}"
    )]
    Keep { tokens: usize, needed: usize, context: usize },
    #[error("cannot start the worker threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}
