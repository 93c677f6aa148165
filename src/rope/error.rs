//! What can be wrong with the RoPE settings of a command line or a file.

use thiserror::Error;

use super::{Origin, Scaling, Sourced};
use crate::gguf;

/// Settings that cannot be used, each naming the flag, key or tensor at fault.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message of each variant names its fields")]
pub enum Error {
    #[error("unknown {what} {name:?}: it is one of {known}")]
    Unknown { what: &'static str, name: String, known: String },
    #[error("{key}: unknown RoPE scaling {}; choose one with --rope-scaling", gguf::quoted(name))]
    UnknownScalingInFile { key: String, name: String },
    #[error("{value}: must be {expected}")]
    OutOfRange { value: String, expected: String },
    #[error("{one} and {other} both set {what}: give one")]
    Both { one: String, other: String, what: &'static str },
    #[error("{0} needs {1} beside it: Hugging Face uses neither alone")]
    NeedsBoth(&'static str, &'static str),
    #[error("{factor} contradicts --rope-scaling none: leave one of them out")]
    NoneWithFactor { factor: Origin },
    #[error("{factor} needs --rope-scaling linear or yarn: the file says none ({key})")]
    NoneInFile { factor: Origin, key: Origin },
    #[error(
        "{flag} has no effect with RoPE scaling {scaling}: add --rope-scaling {needs}, or leave it out"
    )]
    NoEffect { flag: &'static str, scaling: Scaling, needs: Scaling },
    #[error(
        "RoPE scaling {scaling} does not go with the LongRoPE divisors of the file: choose longrope, \
         none, linear or yarn"
    )]
    LongRopeDivisors { scaling: Scaling },
    #[error(
        "RoPE scaling longrope needs the tensor {tensor}, which the file lacks: choose another with \
         --rope-scaling"
    )]
    MissingFactors { tensor: &'static str },
    #[error("tensor {tensor} has {found} values: {expected} are needed, one for each rotated pair")]
    FactorCount { tensor: &'static str, found: usize, expected: usize },
    #[error("tensor {tensor} is {found}, where f32 is expected")]
    FactorType { tensor: &'static str, found: &'static str },
    #[error("tensor {tensor}: value {index} is {value}, and cannot divide a frequency")]
    FactorValue { tensor: &'static str, index: usize, value: f32 },
    #[error(
        "{key} (by default the size of a head) is {n_rot}: dimensions rotate in pairs, so an even \
         number from 2 on is needed"
    )]
    Dimensions { key: String, n_rot: usize },
    #[error(
        "{sinks}: a context of {context} has no room for a sink and a token behind it: choose at \
         least --ctx 2"
    )]
    NoRoomForSinks { sinks: Origin, context: Sourced<usize> },
    #[error("{0} needs {1} beside it")]
    Needs(&'static str, &'static str),
    #[error(
        "{factor} has no effect with RoPE scaling {scaling}, whose factor is the length of the \
         sequence over the original context: leave it out"
    )]
    FactorByLength { factor: Origin, scaling: Scaling },
    #[error("RoPE scaling {scaling} over {n_rot} dimensions: at least 4 are needed")]
    TooFewDimensions { scaling: Scaling, n_rot: usize },
    #[error(
        "--llama3-high-freq-factor {high}: must be above --llama3-low-freq-factor, which is {low}"
    )]
    BlendBounds { low: f64, high: f64 },
    #[error("{}: must be an even number, as dimensions rotate in pairs", dims.origin)]
    OddDimensions { dims: Sourced<usize> },
    #[error(
        "DPRoPE counts the angles of 1 to {most} positions: an original context of {tokens} times \
         the factor {factor} is out of that range"
    )]
    TooManyPositions { tokens: Sourced<usize>, factor: Sourced<f64>, most: usize },
    #[error("{0}")]
    ClexFile(String),
    #[error(
        "--clex-weights {file}: its matrices are for {found} pairs: {expected} are needed, one for \
         each rotated pair"
    )]
    ClexPairs { file: String, found: usize, expected: usize },
    #[error(
        "--clex-weights {file}: for {t} times the original context they give a frequency that is no \
         positive number; a smaller --clex-step may help, if they are not damaged"
    )]
    ClexDiverges { file: String, t: usize },
    #[error("{flag} has no effect with --rope-scaling auto: name a method, or leave it out")]
    ConflictsWithAuto { flag: &'static str },
    #[error(
        "RoPE scaling {scaling} follows the length of the sequence, and a file holds one set of \
         divisors: choose a method with a fixed factor, such as yarn or ntk"
    )]
    BakedByLength { scaling: Scaling },
    #[error(
        "the LongRoPE divisors of the file follow the length of the sequence, and a baked file holds one \
         set for all lengths: nothing can be baked on top of them"
    )]
    BakedLongRope,
    #[error(
        "{what} acts on attention, and a file holds divisors of frequencies alone: leave it out"
    )]
    BakedAttention { what: String },
    #[error("{}: must be a multiple of the groups' size, which is {group}", window.origin.with_value(window.value))]
    WindowNotMultiple { group: Sourced<usize>, window: Sourced<usize> },
    #[error(
        "--rope-policy has no effect with RoPE scaling {scaling}, which does not follow the length \
         of the sequence: leave it out"
    )]
    PolicyNoEffect { scaling: Scaling },
    #[error(transparent)]
    Metadata(#[from] gguf::MetadataError),
}

/// The value that is called `name`.
pub(super) fn one_of<T: Copy>(
    what: &'static str,
    name: &str,
    all: &[T],
    name_of: fn(T) -> &'static str,
) -> Result<T, Error> {
    all.iter().copied().find(|value| name_of(*value) == name).ok_or_else(|| {
        let known: Vec<_> = all.iter().map(|value| name_of(*value)).collect();
        Error::Unknown { what, name: name.into(), known: known.join(", ") }
    })
}
