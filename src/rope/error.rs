//! Errors in the RoPE settings of a user or a file.

use thiserror::Error;

use super::{Origin, Scaling, Sourced};
use crate::{gguf, settings::Setting};

/// An error in RoPE settings. Its message names the setting, key or tensor at fault.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message of each variant names its fields")]
pub enum Error {
    #[error("unknown RoPE scaling {name:?}: must be one of {known}")]
    UnknownScaling { name: String, known: String },
    #[error("RoPE scaling {name:?} is trained into a model, and no setting applies it: {about}")]
    Trained { name: String, about: &'static str },
    #[error(
        "{key} is {}: {about}, so results by this key alone would be wrong",
        gguf::quoted(name)
    )]
    TrainedInFile { key: String, name: String, about: &'static str },
    #[error("{key}: unknown RoPE scaling {}: choose one with `rope_scaling`", gguf::quoted(name))]
    UnknownScalingInFile { key: String, name: String },
    #[error("unknown RoPE setting {name:?}: must be one of {known}")]
    UnknownSetting { name: String, known: String },
    #[error("{value}: must be {expected}")]
    OutOfRange { value: String, expected: String },
    #[error("{one} and {other} both set {setting}: remove one of them")]
    Both { one: String, other: String, setting: &'static str },
    #[error("{0} needs {1}: Hugging Face applies them only together")]
    NeedsBoth(Setting, Setting),
    #[error("{factor} contradicts `rope_scaling` none: remove one of them")]
    NoneWithFactor { factor: Origin },
    #[error(
        "{factor} needs `rope_scaling` linear or yarn: the scaling in the file is none ({key})"
    )]
    NoneInFile { factor: Origin, key: Origin },
    #[error(
        "{setting} has no effect with RoPE scaling {scaling}: add `rope_scaling` {needs}, or remove it"
    )]
    NoEffect { setting: Setting, scaling: &'static Scaling, needs: &'static Scaling },
    #[error(
        "RoPE scaling {scaling} cannot be combined with the {title} divisors in the file: choose \
         {owner}, none, linear or yarn"
    )]
    DivisorsOfOther { scaling: &'static Scaling, title: &'static str, owner: &'static Scaling },
    #[error(
        "RoPE scaling {scaling} needs the tensor {tensor}, which is not in the file: choose another \
         with `rope_scaling`"
    )]
    MissingFactors { scaling: &'static Scaling, tensor: &'static str },
    #[error("tensor {tensor} has {found} values: must have {expected}, one for each rotated pair")]
    FactorCount { tensor: &'static str, found: usize, expected: usize },
    #[error("tensor {tensor} is of type {found}: must be f32")]
    FactorType { tensor: &'static str, found: &'static str },
    #[error("tensor {tensor}: value {index} is {value}: must be a positive normal number")]
    FactorValue { tensor: &'static str, index: usize, value: f32 },
    #[error(
        "{key} (by default the head size) is {n_rot}: must be an even number of at least 2, as dimensions \
         rotate in pairs"
    )]
    Dimensions { key: String, n_rot: usize },
    #[error(
        "{sinks}: a context of {context} cannot hold an attention sink and another token: set `context` to \
         2 or more"
    )]
    NoRoomForSinks { sinks: Origin, context: Sourced<usize> },
    #[error("{setting} needs {other}")]
    Needs { setting: String, other: String },
    #[error(
        "{factor} has no effect with RoPE scaling {scaling}: its factor is the length of the \
         sequence divided by the original context; remove {factor}"
    )]
    FactorByLength { factor: Origin, scaling: &'static Scaling },
    #[error("RoPE scaling {scaling} needs at least 4 rotated dimensions: the model has {n_rot}")]
    TooFewDimensions { scaling: &'static Scaling, n_rot: usize },
    #[error(
        "`llama3_high_freq_factor` {high}: must be above `llama3_low_freq_factor`, which is {low}"
    )]
    BlendBounds { low: f64, high: f64 },
    #[error("{}: must be an even number, as dimensions rotate in pairs", dims.origin)]
    OddDimensions { dims: Sourced<usize> },
    #[error(
        "RoPE scaling dprope: the original context {tokens}, alone and times the factor {factor}, must \
         be from 1 to {most} positions"
    )]
    TooManyPositions { tokens: Sourced<usize>, factor: Sourced<f64>, most: usize },
    #[error("`clex_weights` {file}: {fault}")]
    ClexFile { file: String, fault: String },
    #[error(
        "`clex_weights` {file}: the matrices are for {found} pairs: must be for {expected}, one for \
         each rotated pair"
    )]
    ClexPairs { file: String, found: usize, expected: usize },
    #[error(
        "`clex_weights` {file}: a frequency for {t} times the original context is not a positive \
         number: try a smaller `clex_step`, or check that the file is not damaged"
    )]
    ClexDiverges { file: String, t: usize },
    #[error(
        "{setting} has no effect with `rope_scaling` auto: replace auto by a method, or remove {setting}"
    )]
    ConflictsWithAuto { setting: Setting },
    #[error(
        "RoPE scaling {scaling} depends on the length of the sequence, but a file stores one set of \
         divisors: choose a method with a fixed factor, such as yarn or ntk"
    )]
    BakedByLength { scaling: &'static Scaling },
    #[error(
        "the {title} divisors in the file depend on the length of the sequence, but a baked file \
         stores one set of divisors: a {title} model cannot be baked"
    )]
    BakedDivisors { title: &'static str },
    #[error(
        "{setting} acts on attention, but a file stores only divisors of frequencies: remove it"
    )]
    BakedAttention { setting: String },
    #[error("{}: must be a multiple of the group size, which is {group}", window.origin.with_value(window.value))]
    WindowNotMultiple { group: Sourced<usize>, window: Sourced<usize> },
    #[error(
        "`rope_policy` has no effect with RoPE scaling {scaling}, which does not depend on the length \
         of the sequence: remove it"
    )]
    PolicyNoEffect { scaling: &'static Scaling },
    #[error(
        "{cause} needs keys that rotate when they are used, but {architecture} models {reason}: choose a \
         method that changes frequencies only, such as yarn or ntk"
    )]
    KeysAreFinal { cause: String, architecture: String, reason: &'static str },
    #[error(
        "RoPE scaling {scaling} changes the distances to earlier tokens, but {architecture} models {reason}: \
         choose a method that changes frequencies only, such as yarn or ntk"
    )]
    Distances { scaling: &'static Scaling, architecture: String, reason: &'static str },
    #[error(transparent)]
    Metadata(#[from] gguf::MetadataError),
}
