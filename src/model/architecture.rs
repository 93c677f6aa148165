//! The supported architectures: the properties that a file's metadata does not contain.

use rope_cpu_kernels::vector::Activation;

use super::Pairing;
use crate::rope::{Family, LONG, ROPE_FREQS, SHORT};

/// A family of models, by the properties that its members have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Architecture {
    /// The name in `general.architecture`, which is also the prefix of the metadata keys.
    pub name: &'static str,
    /// The elements of a head that rotate together.
    pub pairing: Pairing,
    /// The non-linear step of the feed-forward network.
    pub activation: Activation,
    /// Whether embeddings are multiplied by the square root of their length.
    pub scales_embeddings: bool,
    /// Whether each query head and each KV head's keys are normalized.
    pub head_norms: bool,
    /// Whether the results of attention and of the feed-forward network are normalized, too.
    pub post_norms: bool,
    /// Whether gate and up are one tensor.
    pub gate_with_up: bool,
    /// The soft caps of attention scores and of logits if the file does not set them, 0 for none;
    /// `None` if the family has no soft caps.
    pub soft_caps: Option<[f32; 2]>,
    /// The use of mixtures of experts in place of the feed-forward network.
    pub experts: Experts,
    /// The layers with a sliding window; `None` if the family has no windows.
    pub windows: Option<Windows>,
    /// The period of layers whose queries and keys do not rotate: the last layer of each period.
    pub unrotated: Option<usize>,
    /// The number of layers of the family's one model whose attention scores are divided by the
    /// square root of `embedding / heads` instead of that of the head's length.
    pub scores_by_embedding: Option<usize>,
    /// The use of RoPE.
    pub rope: Family,
}

/// A family's use of mixtures of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experts {
    /// No model of the family has experts.
    Never,
    /// Models whose file sets a number of experts have them.
    Sometimes,
    /// All models of the family have experts.
    Always,
}

/// The layers with a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// The period of layers without a window: the last layer of each `period` has none. `None` if
    /// all layers have a window.
    pub period: Option<usize>,
    /// The window in positions if the file does not set one.
    pub default: Option<usize>,
    /// Whether layers with a window have a RoPE of their own, which no RoPE method changes.
    pub own_rope: bool,
}

const LLAMA: Architecture = Architecture {
    name: "llama",
    pairing: Pairing::Adjacent,
    activation: Activation::Silu,
    scales_embeddings: false,
    head_norms: false,
    post_norms: false,
    gate_with_up: false,
    soft_caps: None,
    experts: Experts::Sometimes,
    windows: None,
    unrotated: None,
    scores_by_embedding: None,
    rope: Family { divisors: &[ROPE_FREQS], ..Family::PLAIN },
};

const QWEN2: Architecture = Architecture {
    name: "qwen2",
    pairing: Pairing::Halves,
    experts: Experts::Never,
    rope: Family::PLAIN,
    ..LLAMA
};

const GEMMA3: Architecture = Architecture {
    name: "gemma3",
    activation: Activation::GeluTanh,
    scales_embeddings: true,
    head_norms: true,
    post_norms: true,
    soft_caps: Some([0.0; 2]),
    windows: Some(Windows { period: Some(6), default: None, own_rope: true }),
    scores_by_embedding: Some(62),
    rope: Family { trained_with_factor: true, ..Family::PLAIN },
    ..QWEN2
};

impl Architecture {
    /// All supported families.
    pub const ALL: [Self; 8] = [
        LLAMA,
        Self {
            name: "smollm3",
            experts: Experts::Never,
            unrotated: Some(4),
            rope: Family::PLAIN,
            ..LLAMA
        },
        QWEN2,
        Self { name: "qwen3", head_norms: true, ..QWEN2 },
        Self { name: "qwen3moe", head_norms: true, experts: Experts::Always, ..QWEN2 },
        Self {
            name: "phi3",
            gate_with_up: true,
            windows: Some(Windows { period: None, default: None, own_rope: false }),
            rope: Family { divisors: &[LONG, SHORT], ..Family::PLAIN },
            ..QWEN2
        },
        Self {
            name: "gemma2",
            head_norms: false,
            soft_caps: Some([50.0, 30.0]),
            windows: Some(Windows { period: Some(2), default: Some(4096), own_rope: true }),
            scores_by_embedding: Some(46),
            rope: Family { shares_base: true, ..Family::PLAIN },
            ..GEMMA3
        },
        GEMMA3,
    ];

    /// Returns the names of all families, for messages.
    pub fn names() -> String {
        Self::ALL.map(|architecture| architecture.name).join(", ")
    }
}
