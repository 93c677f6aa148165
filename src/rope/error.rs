//! What can be wrong with the RoPE settings of a command line or a file.

use thiserror::Error;

use super::{Origin, Scaling};
use crate::gguf;

/// Settings that cannot be used, each naming the flag, key or tensor at fault.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message of each variant names its fields")]
pub enum Error {
    #[error("unknown RoPE scaling {name:?}: it is one of none, linear, yarn, longrope")]
    UnknownScaling { name: String },
    #[error("{key}: unknown RoPE scaling {}; choose one with --rope-scaling", gguf::quoted(name))]
    UnknownScalingInFile { key: String, name: String },
    #[error("{value}: must be {expected}")]
    Value { value: String, expected: &'static str },
    #[error(
        "--rope-scale {scale} and --rope-freq-scale {freq_scale} both set the factor: give one"
    )]
    TwoFactors { scale: f64, freq_scale: f64 },
    #[error("{factor} contradicts --rope-scaling none: leave one of them out")]
    NoneWithFactor { factor: Origin },
    #[error("{factor} needs --rope-scaling linear or yarn: the file says none ({key})")]
    NoneInFile { factor: Origin, key: Origin },
    #[error(
        "{flag} has no effect with RoPE scaling {scaling}: add --rope-scaling yarn, or leave it out"
    )]
    NoEffect { flag: &'static str, scaling: Scaling },
    #[error("RoPE scaling longrope needs the tensor {tensor}, which the file lacks")]
    MissingFactors { tensor: &'static str },
    #[error("tensor {tensor} has {found} values: {expected} are needed, one for each rotated pair")]
    FactorCount { tensor: &'static str, found: usize, expected: usize },
    #[error("tensor {tensor} is {found}, where f32 is expected")]
    FactorType { tensor: &'static str, found: &'static str },
    #[error("tensor {tensor}: value {index} is {value}, and cannot divide a frequency")]
    FactorValue { tensor: &'static str, index: usize, value: f32 },
    #[error(
        "RoPE over {n_rot} dimensions: they rotate in pairs, so an even number above 0 is needed"
    )]
    Dimensions { n_rot: usize },
    #[error(transparent)]
    Metadata(#[from] gguf::MetadataError),
}
