use std::path::{Path, PathBuf};

use rope_cpu_kernels::DType;
use thiserror::Error;

use super::{Architecture, Place, adapter};
use crate::{chat, gguf, kv_cache, platform::memory::Refused, rope, tokenizer};

/// An error while loading a model, or while a session reads tokens.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Error {
    #[error(transparent)]
    File(#[from] gguf::Error),
    #[error("{path}: {source}", path = path.display())]
    In { path: PathBuf, source: Box<Error> },
    #[error(transparent)]
    Adapter(#[from] adapter::Error),
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::Error),
    #[error(transparent)]
    Template(#[from] chat::Error),
    #[error(transparent)]
    Metadata(#[from] gguf::MetadataError),
    #[error(transparent)]
    Rope(#[from] rope::Error),
    #[error("architecture {found} is not supported; supported: {}", Architecture::names())]
    Architecture { found: String },
    #[error("metadata key {key} is {value}: {reason}")]
    Value { key: String, value: String, reason: String },
    #[error(
        "metadata key {name}.expert_count is {count}: experts are not supported in {name} models"
    )]
    Experts { count: usize, name: &'static str },
    #[error("tensor token_embd.weight has {rows} rows: must be at most {max}")]
    Vocabulary { rows: u64, max: u64 },
    #[error("tensor {0} is missing")]
    MissingTensor(String),
    #[error("tensor {tensor} has shape {found:?}, where {expected:?} is expected")]
    Shape { tensor: String, found: Vec<u64>, expected: Vec<u64> },
    #[error(
        "tensor {0} is not supported in a model of this architecture: results without it would be \
         wrong"
    )]
    UnusedTensor(String),
    #[error(
        "tensor {tensor} is of type {found}, which is not supported; supported: {}",
        DType::ALL.map(DType::name).join(", ")
    )]
    Format { tensor: String, found: String },
    #[error("tensor {tensor} is of type {found}, where f32 is expected")]
    NotF32 { tensor: String, found: String },
    #[error(
        "tensor {tensor} has {value} at index {index}: must be finite; the file is damaged, download it \
         again or compare its checksum"
    )]
    TensorNotFinite { tensor: String, index: usize, value: f32 },
    #[error("tensor {tensor}: {reason}")]
    Matrix { tensor: String, reason: String },
    #[error("token {token} is not in the model's vocabulary of {vocabulary}")]
    Token { token: u32, vocabulary: usize },
    #[error("the context of {context} tokens is full: {used} are in use, {more} more do not fit")]
    ContextFull { context: usize, used: usize, more: usize },
    #[error(
        "the context of {context} tokens is too small to shift and keep {tokens} tokens: it must be \
         at least {needed}"
    )]
    Keep { tokens: usize, needed: usize, context: usize },
    #[error("sequence {feed} of the step cannot grow: {full}")]
    PoolFull { feed: usize, full: kv_cache::Full },
    #[error(
        "{place} computed a value that is not finite, for sequence {feed} of the step: its weights are damaged; \
         download the model again or compare its checksum"
    )]
    NotFinite { feed: usize, place: Place },
    #[error(
        "{tokens} answer tokens are given to one pass: the sequence has room for at most {room} that can be \
         removed again"
    )]
    Room { tokens: usize, room: usize },
    #[error("sequence {feed} of the step was created by another engine")]
    ForeignSequence { feed: usize },
    #[error(
        "sequence {feed} of the step has other scales of adapters than the first one: compute it in another \
         step"
    )]
    AdapterScales { feed: usize },
    #[error("{found} scales are given to {adapters} adapters: give one for each, in their order")]
    ScaleCount { found: usize, adapters: usize },
    #[error("the scale of adapter {adapter} is {scale}: must be a finite number")]
    Scale { adapter: usize, scale: f32 },
    #[error(transparent)]
    Memory(#[from] Refused),
    #[error("cannot start the worker threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

impl Error {
    /// Wraps the error with the path of the file that it was found in.
    pub(super) fn of(self, path: &Path) -> Self {
        Error::In { path: path.into(), source: Box::new(self) }
    }
}
