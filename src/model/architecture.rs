//! The families of models that run here: what a file's metadata does not say.

use rope_cpu_kernels::vector::Activation;

use super::Pairing;

/// A family of models, by the choices that its members have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Architecture {
    /// Its name in `general.architecture`, with which its metadata keys begin.
    pub name: &'static str,
    /// Which elements of a head rotate together.
    pub pairing: Pairing,
    /// The non-linear step of the feed-forward network.
    pub activation: Activation,
    /// Whether embeddings are multiplied by the root of their length.
    pub scales_embeddings: bool,
    /// Whether each head of queries and keys is normed.
    pub head_norms: bool,
    /// Whether the results of attention and feed-forward are normed as well.
    pub post_norms: bool,
    /// Whether gate and up are one tensor.
    pub gate_with_up: bool,
    /// What limits scores and logits where the file is silent, 0 for nothing; `None` where nothing
    /// ever does.
    pub soft_caps: Option<[f32; 2]>,
    /// Whether the feed-forward network may be, or always is, a mixture of experts.
    pub experts: Experts,
    /// Which layers have a sliding window, if the file gives one.
    pub windows: Option<Windows>,
    /// The number of layers of the one model whose scores are divided by the root of the embedding's
    /// values for each head.
    pub scores_by_embedding: Option<usize>,
}

/// Whether a family has mixtures of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Experts {
    Never,
    Sometimes,
    Always,
}

/// Which layers have a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Every so many layers the last one has none; `None` if all have one.
    pub period: Option<usize>,
    /// The window where the file is silent.
    pub default: Option<usize>,
    /// Whether these layers keep a RoPE of their own.
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
    scores_by_embedding: None,
};

const QWEN2: Architecture =
    Architecture { name: "qwen2", pairing: Pairing::Halves, experts: Experts::Never, ..LLAMA };

const GEMMA3: Architecture = Architecture {
    name: "gemma3",
    activation: Activation::GeluTanh,
    scales_embeddings: true,
    head_norms: true,
    post_norms: true,
    soft_caps: Some([0.0; 2]),
    windows: Some(Windows { period: Some(6), default: None, own_rope: true }),
    scores_by_embedding: Some(62),
    ..QWEN2
};

impl Architecture {
    /// Every family.
    pub const ALL: [Self; 7] = [
        LLAMA,
        QWEN2,
        Self { name: "qwen3", head_norms: true, ..QWEN2 },
        Self { name: "qwen3moe", head_norms: true, experts: Experts::Always, ..QWEN2 },
        Self {
            name: "phi3",
            gate_with_up: true,
            windows: Some(Windows { period: None, default: None, own_rope: false }),
            ..QWEN2
        },
        Self {
            name: "gemma2",
            head_norms: false,
            soft_caps: Some([50.0, 30.0]),
            windows: Some(Windows { period: Some(2), default: Some(4096), own_rope: true }),
            scores_by_embedding: Some(46),
            ..GEMMA3
        },
        GEMMA3,
    ];

    /// The names of all, for messages.
    pub fn names() -> String {
        Self::ALL.map(|architecture| architecture.name).join(", ")
    }
}
