use std::path::{Path, PathBuf};

use rope_cpu_kernels::DType;
use thiserror::Error;

use super::{Architecture, Place, adapter};
use crate::{
    chat, gguf, json::FileText, kv_cache, platform::memory::Refused, rope, settings::Setting,
    tokenizer,
};

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
    #[error(
        "architecture {found} is not supported; the nearest supported one is {nearest}; all: {}",
        Architecture::names()
    )]
    Architecture { found: FileText, nearest: &'static str },
    #[error("metadata key {key} is {value}: {reason}")]
    Value { key: String, value: String, reason: String },
    #[error(
        "metadata key {name}.expert_count is {count}: experts are not supported in {name} models"
    )]
    Experts { count: usize, name: &'static str },
    #[error("tensor token_embd.weight has {rows} rows: must be at most {max}")]
    Vocabulary { rows: u64, max: u64 },
    #[error("tensor {0} is missing")]
    MissingTensor(FileText),
    #[error("tensor {tensor} has shape {found:?}, where {expected:?} is expected")]
    Shape { tensor: FileText, found: Vec<u64>, expected: Vec<u64> },
    #[error(
        "tensor {0} is not supported in a model of this architecture: results without it would be \
         wrong"
    )]
    UnusedTensor(FileText),
    #[error(
        "tensor {tensor} is of type {found}, which is not supported; supported: {}",
        DType::ALL.map(DType::name).join(", ")
    )]
    Format { tensor: FileText, found: String },
    #[error("tensor {tensor} is of type {found}, where f32 is expected")]
    NotF32 { tensor: FileText, found: String },
    #[error(
        "tensor {tensor} has {value} at index {index}: must be finite; the file is damaged, download it \
         again or compare its checksum"
    )]
    TensorNotFinite { tensor: FileText, index: usize, value: f32 },
    #[error("tensor {tensor}: {reason}")]
    Matrix { tensor: FileText, reason: String },
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
    #[error(
        "{architecture} models are encoders, which compute embeddings and generate no text: choose another \
         model for answers"
    )]
    Encoder { architecture: &'static str },
    #[error(
        "gemma4-assistant files draft tokens for a gemma4 model, and generate nothing alone: open that \
         model, and give it this file as an assistant"
    )]
    Assistant,
    #[error(
        "the file is only the vision or audio part of a model (mmproj): open the model's own file"
    )]
    MediaPart,
    #[error(
        "{assistant} cannot draft for {model}: {reason}; use the assistant that is made for this model",
        assistant = assistant.display(), model = model.display()
    )]
    OtherAssistant { assistant: PathBuf, model: PathBuf, reason: String },
    #[error(
        "the context of {context} tokens is longer than the {max} positions that the model has learned: choose \
         at most {max}, as no RoPE method extends them"
    )]
    LearnedPositions { context: usize, max: usize },
    #[error(
        "a text of {tokens} tokens is longer than the micro-batch of {micro_batch}: an encoder reads a \
         text in one pass; enlarge the micro-batch, or divide the text"
    )]
    TextTooLong { tokens: usize, micro_batch: usize },
    #[error(
        "sequence {feed} of the step has a text already: an encoder reads a text in one pass; use an \
         empty sequence"
    )]
    TextContinued { feed: usize },
    #[error(
        "the model is no reranker: it has neither the tensor cls.output.weight nor the tokens yes and no; \
         choose another model or pooling"
    )]
    NoClassifier,
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
    #[error("{setting} is {mass}: must be above 0.5 and below 1")]
    SparseMass { setting: Setting, mass: f32 },
    #[error("{setting} with at most a share of {share} of the keys: must be above 0, up to 1")]
    SparseShare { setting: Setting, share: f32 },
    #[error(
        "{setting} needs all keys, in their places and with fixed frequencies; this RoPE method hides \
         keys, moves them, or follows the length: choose another method, or omit {setting}"
    )]
    SparseMethod { setting: Setting },
    #[error(
        "{setting} has no effect on this {architecture} model: none of its layers from the third on \
         has keys and values of the whole context; omit it"
    )]
    SparseLayers { setting: Setting, architecture: &'static str },
    #[error(
        "parts of a text can move only where the cache has keys before their rotation, with frequencies \
         that do not depend on the length of all tokens: set {}, or choose another RoPE method",
        Setting::CONTEXT_SHIFT
    )]
    PlacedMethod,
    #[error(
        "parts of a text cannot move in a {architecture} model: some of its layers do not attend to the \
         whole context"
    )]
    PlacedLayers { architecture: &'static str },
    #[error(
        "no token can be left out of a text in a {architecture} model: its layers keep a state of all tokens, \
         or it is an encoder"
    )]
    OmittedLayers { architecture: &'static str },
    #[error("no token can be left out of a text: {reason}")]
    Omitted { reason: &'static str },
    #[error(
        "tokens {start} to {end} cannot be left out: a range must have tokens, start at {from} or later, and \
         end within the context of {context}"
    )]
    OmittedRange { start: usize, end: usize, from: usize, context: usize },
    #[error(transparent)]
    Memory(#[from] Refused),
    #[error("cannot start the worker threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

impl Error {
    /// Returns whether the system lacks memory or threads. Other errors are in the file, or in the
    /// settings.
    pub fn is_failure(&self) -> bool {
        match self {
            Error::In { source, .. } => source.is_failure(),
            Error::Memory(_) | Error::Threads(_) => true,
            _ => false,
        }
    }

    /// Wraps the error with the path of the file that it was found in.
    pub(super) fn of(self, path: &Path) -> Self {
        Error::In { path: path.into(), source: Box::new(self) }
    }
}
