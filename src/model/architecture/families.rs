//! The supported families of models.

use rope_cpu_kernels::vector::{Activation, Ungated};

use super::{
    Architecture, AttentionFamily, AttentionGates, BranchNorms, EmbeddingTerms, Experts, Factors,
    GateFunction, Global, HeadNorms, Inner, NetworkFamily, NormFamily, NormKind, PositionFamily,
    Recurrent, RoutingKeys, ScaleFamily, ScoreFactor, Unrotated, Windows,
};
use crate::{
    model::Pairing,
    rope::{Family, LONG, LogMultiplier, ROPE_FREQS, SHORT},
};

/// Norms after attention and after the network, by the names of Gemma.
const AFTER_ATTENTION: Option<&str> = Some("post_attention_norm");
const AFTER_NETWORK: Option<&str> = Some("post_ffw_norm");

/// Norms before the branches. The second one is named as if it followed attention.
const QWEN35_NORMS: NormFamily = NormFamily {
    network: Some(BranchNorms { before: AFTER_ATTENTION, after: None }),
    ..NormFamily::PLAIN
};

/// Norms before and after the branches.
const GEMMA_NORMS: NormFamily = NormFamily {
    attention: BranchNorms { before: Some("attn_norm"), after: AFTER_ATTENTION },
    network: Some(BranchNorms { before: Some("ffn_norm"), after: AFTER_NETWORK }),
    ..NormFamily::PLAIN
};

/// Norms after the branches only.
const OLMO_NORMS: NormFamily = NormFamily {
    attention: BranchNorms { before: None, after: AFTER_ATTENTION },
    network: Some(BranchNorms { before: None, after: AFTER_NETWORK }),
    ..NormFamily::PLAIN
};

/// Norms that subtract the mean.
const LAYER_NORMS: NormFamily = NormFamily { kind: NormKind::Layer, ..NormFamily::PLAIN };

/// A norm that subtracts the mean, for attention and network side by side.
const COHERE_NORMS: NormFamily = NormFamily { network: None, ..LAYER_NORMS };

/// Norms of heads before their rotation.
const NORMED_HEADS: AttentionFamily =
    AttentionFamily { head_norms: HeadNorms::Heads, ..AttentionFamily::PLAIN };

/// Networks without experts.
const DENSE: NetworkFamily = NetworkFamily { experts: Experts::Never, ..NetworkFamily::PLAIN };

/// Experts in all layers.
const EXPERTS: NetworkFamily = NetworkFamily { experts: Experts::Always, ..NetworkFamily::PLAIN };

/// Experts in some layers, chosen by sigmoids.
const SIGMOID_EXPERTS: NetworkFamily = NetworkFamily {
    experts: Experts::SomeLayers,
    routing: RoutingKeys::AllOfSigmoids,
    ..NetworkFamily::PLAIN
};

/// Rotation of halves of a head.
const HALVES: PositionFamily = PositionFamily { pairing: Pairing::Halves, ..PositionFamily::PLAIN };

/// Windows with the base of the other layers, which no RoPE method changes.
const fn own_windows(global: Global) -> Option<Windows> {
    Some(Windows { own_rope: true, ..Windows::without(global) })
}

/// RoPE of layers with windows that have the base of the other layers.
const SHARED_BASE: Family = Family { shares_base: true, ..Family::PLAIN };

/// RoPE with divisors in the file.
const WITH_DIVISORS: Family = Family { divisors: &[ROPE_FREQS], ..Family::PLAIN };

const LLAMA: Architecture = Architecture {
    name: "llama",
    causal: true,
    predictor: false,
    ignored_keys: &[],
    terms: EmbeddingTerms::None,
    norms: NormFamily::PLAIN,
    attention: AttentionFamily::PLAIN,
    latent: false,
    recurrent: Recurrent::Never,
    network: NetworkFamily::PLAIN,
    scales: ScaleFamily::PLAIN,
    positions: PositionFamily::PLAIN,
    rope: WITH_DIVISORS,
};

/// A family without experts that rotates halves of a head.
const QWEN2: Architecture =
    Architecture { name: "qwen2", network: DENSE, positions: HALVES, rope: Family::PLAIN, ..LLAMA };

/// A family with norms that subtract the mean, and a network without a gate.
const STARCODER2: Architecture = Architecture {
    name: "starcoder2",
    norms: LAYER_NORMS,
    network: NetworkFamily { inner: Inner::Alone(Activation::GeluTanh), ..DENSE },
    ..QWEN2
};

const QWEN3: Architecture = Architecture { name: "qwen3", attention: NORMED_HEADS, ..QWEN2 };

const QWEN3_MOE: Architecture = Architecture { name: "qwen3moe", network: EXPERTS, ..QWEN3 };

const GEMMA3: Architecture = Architecture {
    name: "gemma3",
    norms: GEMMA_NORMS,
    attention: NORMED_HEADS,
    network: NetworkFamily { inner: Inner::Gated(Activation::GeluTanh), ..DENSE },
    scales: ScaleFamily {
        factors: Factors::Embeddings,
        scores: ScoreFactor::ByEmbedding(62),
        soft_caps: [None, Some(0.0)],
    },
    positions: PositionFamily { windows: own_windows(Global::Last(6)), ..HALVES },
    rope: Family { trained_with_factor: true, ..Family::PLAIN },
    ..QWEN2
};

const GEMMA4: Architecture = Architecture {
    name: "gemma4",
    attention: AttentionFamily { value_norm: true, ..NORMED_HEADS },
    network: NetworkFamily { experts: Experts::Beside, ..GEMMA3.network },
    scales: ScaleFamily { scores: ScoreFactor::One, ..GEMMA3.scales },
    positions: PositionFamily { windows: own_windows(Global::Listed), ..HALVES },
    rope: WITH_DIVISORS,
    ..GEMMA3
};

const OLMO2: Architecture = Architecture {
    name: "olmo2",
    norms: OLMO_NORMS,
    attention: AttentionFamily { head_norms: HeadNorms::Rows, ..AttentionFamily::PLAIN },
    positions: PositionFamily { windows: own_windows(Global::Last(4)), ..HALVES },
    rope: SHARED_BASE,
    ..QWEN2
};

const GRANITE: Architecture = Architecture {
    name: "granite",
    scales: ScaleFamily { factors: Factors::Keys, ..ScaleFamily::PLAIN },
    positions: PositionFamily { unrotated: Unrotated::Unless, ..PositionFamily::PLAIN },
    ..LLAMA
};

/// A family with Mamba 2, attention or a feed-forward network in each layer.
const NEMOTRON_H: Architecture = Architecture {
    name: "nemotron_h",
    norms: NormFamily { network: None, ..NormFamily::PLAIN },
    recurrent: Recurrent::Mamba2Alone,
    network: NetworkFamily { inner: Inner::Ungated(Ungated::SquaredRelu), ..DENSE },
    positions: PositionFamily { unrotated: Unrotated::Always, ..HALVES },
    ..QWEN2
};

const HUNYUAN: Architecture = Architecture {
    name: "hunyuan-dense",
    attention: AttentionFamily { head_norms: HeadNorms::RotatedHeads, ..AttentionFamily::PLAIN },
    rope: Family { alpha_in_base: true, keys_are_final: true, ..WITH_DIVISORS },
    ..QWEN2
};

/// A family with the gated delta rule in most layers.
const QWEN35: Architecture = Architecture {
    name: "qwen35",
    predictor: true,
    norms: QWEN35_NORMS,
    attention: AttentionFamily { gates: AttentionGates::WithQueries, ..NORMED_HEADS },
    recurrent: Recurrent::Delta,
    ..QWEN3
};

const COMMAND_R: Architecture = Architecture {
    name: "command-r",
    norms: COHERE_NORMS,
    attention: AttentionFamily { head_norms: HeadNorms::EachHeadIfAny, ..AttentionFamily::PLAIN },
    network: DENSE,
    scales: ScaleFamily { factors: Factors::Logits, ..ScaleFamily::PLAIN },
    ..LLAMA
};

const COHERE2: Architecture = Architecture {
    name: "cohere2",
    attention: AttentionFamily::PLAIN,
    positions: PositionFamily {
        windows: Some(Windows::without(Global::Last(4))),
        unrotated: Unrotated::Global,
        ..PositionFamily::PLAIN
    },
    ..COMMAND_R
};

/// A family with short convolutions in most layers.
const LFM2: Architecture = Architecture {
    name: "lfm2",
    norms: NormFamily { output: Some("token_embd_norm"), ..NormFamily::PLAIN },
    recurrent: Recurrent::ShortConvolution,
    positions: PositionFamily { windows: Some(Windows::without(Global::None)), ..HALVES },
    ..QWEN3
};

const BERT: Architecture = Architecture {
    name: "bert",
    causal: false,
    terms: EmbeddingTerms::TypesAndPositions,
    norms: NormFamily {
        attention: BranchNorms { before: None, after: Some("attn_output_norm") },
        network: Some(BranchNorms { before: None, after: Some("layer_output_norm") }),
        of_sums: true,
        output: None,
        ..LAYER_NORMS
    },
    network: NetworkFamily { inner: Inner::Ungated(Ungated::Gelu), ..DENSE },
    positions: PositionFamily { unrotated: Unrotated::Always, ..HALVES },
    ..QWEN2
};

impl Architecture {
    /// All supported families.
    pub const ALL: &[Self] = &[
        LLAMA,
        Self {
            name: "smollm3",
            network: DENSE,
            positions: PositionFamily { unrotated: Unrotated::Period(4), ..PositionFamily::PLAIN },
            rope: Family::PLAIN,
            ..LLAMA
        },
        QWEN2,
        Self { name: "qwen2vl", ..QWEN2 },
        // Qwen 2.5 VL in files of ollama.
        Self { name: "qwen25vl", ..QWEN2 },
        QWEN3,
        Self { name: "qwen3vl", ..QWEN3 },
        QWEN3_MOE,
        Self { name: "qwen3vlmoe", ..QWEN3_MOE },
        Self {
            name: "phi3",
            network: NetworkFamily { inner: Inner::GatedInOne(Activation::Silu), ..DENSE },
            positions: PositionFamily { windows: Some(Windows::without(Global::None)), ..HALVES },
            rope: Family { divisors: &[LONG, SHORT], ..Family::PLAIN },
            ..QWEN2
        },
        Self { name: "phi2", norms: COHERE_NORMS, ..STARCODER2 },
        STARCODER2,
        Self { name: "mellum", positions: OLMO2.positions, rope: SHARED_BASE, ..QWEN3_MOE },
        Self {
            name: "laguna",
            attention: AttentionFamily {
                gates: AttentionGates::Apart(GateFunction::Softplus),
                ..NORMED_HEADS
            },
            network: SIGMOID_EXPERTS,
            positions: PositionFamily { windows: own_windows(Global::First(4)), ..HALVES },
            rope: SHARED_BASE,
            ..QWEN3
        },
        Self {
            name: "gemma2",
            attention: AttentionFamily::PLAIN,
            scales: ScaleFamily {
                scores: ScoreFactor::ByEmbedding(46),
                soft_caps: [Some(50.0), Some(30.0)],
                ..GEMMA3.scales
            },
            positions: PositionFamily {
                windows: Some(Windows {
                    default: Some(4096),
                    own_rope: true,
                    ..Windows::without(Global::Last(2))
                }),
                ..HALVES
            },
            rope: SHARED_BASE,
            ..GEMMA3
        },
        GEMMA3,
        GEMMA4,
        Self {
            name: "gemma-embedding",
            causal: false,
            // An encoder has no logits.
            ignored_keys: &["final_logit_softcapping"],
            scales: ScaleFamily { factors: Factors::Embeddings, ..ScaleFamily::PLAIN },
            rope: Family::PLAIN,
            ..GEMMA3
        },
        Self {
            name: "gpt-oss",
            norms: QWEN35_NORMS,
            attention: AttentionFamily { sinks: true, ..AttentionFamily::PLAIN },
            network: NetworkFamily { inner: Inner::Gated(Activation::ClampedSilu), ..EXPERTS },
            positions: PositionFamily {
                windows: Some(Windows { one_base: true, ..Windows::without(Global::Last(2)) }),
                ..HALVES
            },
            rope: Family { exact_ramp: true, ..Family::PLAIN },
            ..QWEN2
        },
        Self {
            name: "mistral3",
            rope: Family {
                yarn_betas: true,
                temperature: true,
                log_multiplier: LogMultiplier::Denominator,
                ..WITH_DIVISORS
            },
            ..LLAMA
        },
        OLMO2,
        GRANITE,
        Self { name: "granitemoe", network: EXPERTS, positions: PositionFamily::PLAIN, ..GRANITE },
        Self { name: "granitehybrid", recurrent: Recurrent::Mamba2, ..GRANITE },
        Self {
            name: "granite_swa",
            attention: AttentionFamily { sinks: true, ..AttentionFamily::PLAIN },
            network: DENSE,
            positions: PositionFamily {
                windows: Some(Windows::without(Global::Listed)),
                unrotated: Unrotated::Listed,
                ..PositionFamily::PLAIN
            },
            ..GRANITE
        },
        Self {
            name: "minicpm",
            scales: ScaleFamily { factors: Factors::KeysOrDefaults, ..ScaleFamily::PLAIN },
            rope: Family { divisors: &[ROPE_FREQS, LONG, SHORT], ..Family::PLAIN },
            ..LLAMA
        },
        Self {
            name: "exaone4",
            // Only the model with 64 layers has windows.
            ignored_keys: &["attention.sliding_window"],
            attention: NORMED_HEADS,
            positions: PositionFamily {
                windows: Some(Windows {
                    default: Some(4096),
                    only: Some(64),
                    ..Windows::without(Global::Last(4))
                }),
                unrotated: Unrotated::Global,
                ..HALVES
            },
            rope: WITH_DIVISORS,
            ..OLMO2
        },
        Self {
            name: "glm4",
            norms: GEMMA_NORMS,
            network: NetworkFamily { inner: Inner::GatedInOne(Activation::Silu), ..DENSE },
            positions: PositionFamily { sections_pair_halves: true, ..PositionFamily::PLAIN },
            rope: Family::PLAIN,
            ..LLAMA
        },
        Self {
            name: "glm4moe",
            predictor: true,
            norms: QWEN35_NORMS,
            attention: AttentionFamily {
                head_norms: HeadNorms::HeadsIfAny,
                ..AttentionFamily::PLAIN
            },
            network: SIGMOID_EXPERTS,
            ..QWEN2
        },
        Self { name: "ernie4_5", network: DENSE, rope: Family::PLAIN, ..LLAMA },
        Self {
            name: "ernie4_5-moe",
            network: NetworkFamily { experts: Experts::SomeLayers, ..NetworkFamily::PLAIN },
            rope: Family::PLAIN,
            ..LLAMA
        },
        Self { name: "seed_oss", norms: QWEN35_NORMS, ..QWEN2 },
        Self { name: "arcee", network: NEMOTRON_H.network, ..LLAMA },
        Self {
            name: "apertus",
            attention: NORMED_HEADS,
            network: NetworkFamily { inner: Inner::Xielu, ..DENSE },
            rope: Family { divisors: &[ROPE_FREQS, LONG, SHORT], ..Family::PLAIN },
            ..QWEN2
        },
        HUNYUAN,
        Self {
            name: "hunyuan-moe",
            network: EXPERTS,
            rope: Family { alpha_in_base: false, ..HUNYUAN.rope },
            ..HUNYUAN
        },
        COMMAND_R,
        COHERE2,
        Self {
            name: "cohere2moe",
            predictor: true,
            norms: NormFamily { rms_by_epsilon: true, ..COHERE_NORMS },
            network: NetworkFamily { mixture_scale: 0.5, ..SIGMOID_EXPERTS },
            positions: PositionFamily {
                windows: Some(Windows::without(Global::First(4))),
                ..COHERE2.positions
            },
            rope: Family::PLAIN,
            ..COHERE2
        },
        Self {
            name: "muse-glimmer",
            norms: NormFamily { of_embeddings: true, post_epsilon: Some(1e-8), ..GEMMA_NORMS },
            attention: AttentionFamily {
                gates: AttentionGates::Apart(GateFunction::Sigmoid),
                ..NORMED_HEADS
            },
            network: DENSE,
            scales: ScaleFamily { soft_caps: GEMMA3.scales.soft_caps, ..COMMAND_R.scales },
            positions: PositionFamily {
                windows: own_windows(Global::Last(4)),
                unrotated: Unrotated::Global,
                ..PositionFamily::PLAIN
            },
            rope: SHARED_BASE,
            ..LLAMA
        },
        LFM2,
        Self {
            name: "lfm2moe",
            network: NetworkFamily {
                experts: Experts::SomeLayers,
                routing: RoutingKeys::Gating,
                ..NetworkFamily::PLAIN
            },
            positions: HALVES,
            ..LFM2
        },
        Self { name: "falcon-h1", recurrent: Recurrent::Mamba2Beside, ..QWEN2 },
        NEMOTRON_H,
        Self {
            name: "nemotron_h_moe",
            network: NetworkFamily {
                experts: Experts::Always,
                routing: RoutingKeys::AllOfSigmoids,
                ..NEMOTRON_H.network
            },
            ..NEMOTRON_H
        },
        Self {
            name: "deepseek2",
            predictor: true,
            // Of the first files of DeepSeek-OCR.
            ignored_keys: &["attention.sliding_window"],
            latent: true,
            network: NetworkFamily {
                experts: Experts::SomeLayers,
                routing: RoutingKeys::All,
                ..NetworkFamily::PLAIN
            },
            rope: Family {
                log_multiplier: LogMultiplier::Both,
                temperature: true,
                temperature_length: true,
                ..Family::PLAIN
            },
            ..LLAMA
        },
        QWEN35,
        Self { name: "qwen35moe", network: EXPERTS, ..QWEN35 },
        Self {
            name: "qwen3next",
            network: EXPERTS,
            recurrent: Recurrent::DeltaSideBySide,
            ..QWEN35
        },
        BERT,
        Self {
            name: "nomic-bert",
            terms: EmbeddingTerms::Types,
            network: DENSE,
            positions: HALVES,
            ..BERT
        },
    ];

    /// Assistants of Gemma 4 models, which draft tokens for them and compute nothing alone.
    pub const ASSISTANT: Self = Self {
        name: "gemma4-assistant",
        network: GEMMA3.network,
        scales: ScaleFamily { scores: ScoreFactor::One, ..ScaleFamily::PLAIN },
        ..GEMMA4
    };
}
