//! The supported families of models.

use rope_cpu_kernels::vector::Activation;

use super::{
    Architecture, AttentionGates, Experts, GateFunction, Global, HeadNorms, Inner, Norm, Norms,
    Recurrent, RoutingKeys, Scales, Scores, Terms, Unrotated, Windows,
};
use crate::{
    model::Pairing,
    rope::{Family, LONG, LogMultiplier, ROPE_FREQS, SHORT},
};

const LLAMA: Architecture = Architecture {
    name: "llama",
    pairing: Pairing::Adjacent,
    sections_pair_halves: false,
    causal: true,
    norm: Norm::Rms,
    rms_by_epsilon: false,
    attention: Norms { before: Some("attn_norm"), after: None },
    norms_sums: false,
    network: Some(Norms { before: Some("ffn_norm"), after: None }),
    terms: Terms::None,
    embedding_norm: false,
    post_epsilon: None,
    output_norm: Some("output_norm"),
    head_norms: HeadNorms::None,
    value_norm: false,
    sinks: false,
    attention_gates: AttentionGates::None,
    latent: false,
    recurrent: Recurrent::Never,
    predictor: false,
    inner: Inner::Gated(Activation::Silu),
    experts: Experts::Sometimes,
    routing: RoutingKeys::None,
    mixture_scale: 1.0,
    scales: Scales::None,
    soft_caps: [None; 2],
    windows: None,
    unrotated: Unrotated::Never,
    scores: Scores::ByHead,
    rope: Family { divisors: &[ROPE_FREQS], ..Family::PLAIN },
};

/// A family without experts that rotates halves of a head.
const QWEN2: Architecture = Architecture {
    name: "qwen2",
    pairing: Pairing::Halves,
    experts: Experts::Never,
    rope: Family::PLAIN,
    ..LLAMA
};

/// A family with norms that subtract the mean, and a network without a gate.
const STARCODER2: Architecture =
    Architecture { name: "starcoder2", norm: Norm::Layer, inner: Inner::GeluTanh, ..QWEN2 };

const QWEN3: Architecture = Architecture { name: "qwen3", head_norms: HeadNorms::Heads, ..QWEN2 };

const QWEN3_MOE: Architecture =
    Architecture { name: "qwen3moe", experts: Experts::Always, ..QWEN3 };

/// Norms after attention and after the network, by the names of Gemma.
const AFTER_ATTENTION: Option<&str> = Some("post_attention_norm");
const AFTER_NETWORK: Option<&str> = Some("post_ffw_norm");

const GEMMA3: Architecture = Architecture {
    name: "gemma3",
    attention: Norms { after: AFTER_ATTENTION, ..LLAMA.attention },
    network: Some(Norms { before: Some("ffn_norm"), after: AFTER_NETWORK }),
    head_norms: HeadNorms::Heads,
    inner: Inner::Gated(Activation::GeluTanh),
    scales: Scales::Embeddings,
    soft_caps: [None, Some(0.0)],
    windows: Some(Windows { global: Global::Last(6), default: None, only: None, own_rope: true }),
    scores: Scores::ByEmbedding(62),
    rope: Family { trained_with_factor: true, ..Family::PLAIN },
    ..QWEN2
};

const GEMMA4: Architecture = Architecture {
    name: "gemma4",
    value_norm: true,
    experts: Experts::Beside,
    windows: Some(Windows { global: Global::Listed, default: None, only: None, own_rope: true }),
    scores: Scores::One,
    rope: Family { divisors: &[ROPE_FREQS], ..Family::PLAIN },
    ..GEMMA3
};

/// A family that normalizes the outputs of its branches, and not their inputs.
const OLMO2: Architecture = Architecture {
    name: "olmo2",
    attention: Norms { before: None, after: AFTER_ATTENTION },
    network: Some(Norms { before: None, after: AFTER_NETWORK }),
    head_norms: HeadNorms::Rows,
    windows: Some(Windows { global: Global::Last(4), default: None, only: None, own_rope: true }),
    rope: Family { shares_base: true, ..Family::PLAIN },
    ..QWEN2
};

const GRANITE: Architecture =
    Architecture { name: "granite", scales: Scales::Keys, unrotated: Unrotated::Unless, ..LLAMA };

/// A family with Mamba 2, attention or a feed-forward network in each layer.
const NEMOTRON_H: Architecture = Architecture {
    name: "nemotron_h",
    network: None,
    recurrent: Recurrent::Mamba2Alone,
    inner: Inner::SquaredRelu,
    unrotated: Unrotated::Always,
    ..QWEN2
};

const HUNYUAN: Architecture = Architecture {
    name: "hunyuan-dense",
    head_norms: HeadNorms::RotatedHeads,
    rope: Family {
        divisors: &[ROPE_FREQS],
        alpha_in_base: true,
        keys_are_final: true,
        ..Family::PLAIN
    },
    ..QWEN2
};

/// A family with the gated delta rule in most layers.
const QWEN35: Architecture = Architecture {
    name: "qwen35",
    network: Some(Norms { before: AFTER_ATTENTION, after: None }),
    attention_gates: AttentionGates::WithQueries,
    recurrent: Recurrent::Delta,
    predictor: true,
    ..QWEN3
};

/// A family with attention and network side by side.
const COMMAND_R: Architecture = Architecture {
    name: "command-r",
    norm: Norm::Layer,
    network: None,
    head_norms: HeadNorms::EachHeadIfAny,
    experts: Experts::Never,
    scales: Scales::Logits,
    ..LLAMA
};

/// A family with short convolutions in most layers.
const LFM2: Architecture = Architecture {
    name: "lfm2",
    recurrent: Recurrent::ShortConvolution,
    output_norm: Some("token_embd_norm"),
    windows: Some(Windows { global: Global::None, default: None, only: None, own_rope: false }),
    ..QWEN3
};

const BERT: Architecture = Architecture {
    name: "bert",
    causal: false,
    norm: Norm::Layer,
    attention: Norms { before: None, after: Some("attn_output_norm") },
    norms_sums: true,
    network: Some(Norms { before: None, after: Some("layer_output_norm") }),
    terms: Terms::TypesAndPositions,
    output_norm: None,
    inner: Inner::Gelu,
    unrotated: Unrotated::Always,
    ..QWEN2
};

impl Architecture {
    /// All supported families.
    pub const ALL: [Self; 51] = [
        LLAMA,
        Self {
            name: "smollm3",
            experts: Experts::Never,
            unrotated: Unrotated::Period(4),
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
            inner: Inner::GatedInOne(Activation::Silu),
            windows: Some(Windows {
                global: Global::None,
                default: None,
                only: None,
                own_rope: false,
            }),
            rope: Family { divisors: &[LONG, SHORT], ..Family::PLAIN },
            ..QWEN2
        },
        Self { name: "phi2", network: None, ..STARCODER2 },
        STARCODER2,
        Self { name: "mellum", windows: OLMO2.windows, rope: OLMO2.rope, ..QWEN3_MOE },
        Self {
            name: "laguna",
            attention_gates: AttentionGates::Apart(GateFunction::Softplus),
            experts: Experts::SomeLayers,
            routing: RoutingKeys::AllOfSigmoids,
            windows: Some(Windows {
                global: Global::First(4),
                default: None,
                only: None,
                own_rope: true,
            }),
            rope: OLMO2.rope,
            ..QWEN3
        },
        Self {
            name: "gemma2",
            head_norms: HeadNorms::None,
            soft_caps: [Some(50.0), Some(30.0)],
            windows: Some(Windows {
                global: Global::Last(2),
                default: Some(4096),
                only: None,
                own_rope: true,
            }),
            scores: Scores::ByEmbedding(46),
            rope: Family { shares_base: true, ..Family::PLAIN },
            ..GEMMA3
        },
        GEMMA3,
        GEMMA4,
        Self {
            name: "gemma-embedding",
            causal: false,
            soft_caps: [None; 2],
            scores: Scores::ByHead,
            rope: Family::PLAIN,
            ..GEMMA3
        },
        Self {
            name: "gpt-oss",
            network: Some(Norms { before: AFTER_ATTENTION, after: None }),
            sinks: true,
            inner: Inner::Gated(Activation::ClampedSilu),
            experts: Experts::Always,
            windows: Some(Windows {
                global: Global::Last(2),
                default: None,
                only: None,
                own_rope: false,
            }),
            rope: Family { exact_ramp: true, ..Family::PLAIN },
            ..QWEN2
        },
        Self {
            name: "mistral3",
            rope: Family {
                divisors: &[ROPE_FREQS],
                yarn_betas: true,
                temperature: true,
                log_multiplier: LogMultiplier::Denominator,
                ..Family::PLAIN
            },
            ..LLAMA
        },
        OLMO2,
        GRANITE,
        Self {
            name: "granitemoe",
            experts: Experts::Always,
            unrotated: Unrotated::Never,
            ..GRANITE
        },
        Self { name: "granitehybrid", recurrent: Recurrent::Mamba2, ..GRANITE },
        Self {
            name: "granite_swa",
            sinks: true,
            experts: Experts::Never,
            windows: Some(Windows {
                global: Global::Listed,
                default: None,
                only: None,
                own_rope: false,
            }),
            unrotated: Unrotated::Listed,
            ..GRANITE
        },
        Self {
            name: "minicpm",
            scales: Scales::KeysOrDefaults,
            rope: Family { divisors: &[ROPE_FREQS, LONG, SHORT], ..Family::PLAIN },
            ..LLAMA
        },
        Self {
            name: "exaone4",
            head_norms: HeadNorms::Heads,
            windows: Some(Windows {
                global: Global::Last(4),
                default: Some(4096),
                only: Some(64),
                own_rope: false,
            }),
            unrotated: Unrotated::Global,
            rope: Family { divisors: &[ROPE_FREQS], ..Family::PLAIN },
            ..OLMO2
        },
        Self {
            name: "glm4",
            sections_pair_halves: true,
            attention: GEMMA3.attention,
            network: GEMMA3.network,
            inner: Inner::GatedInOne(Activation::Silu),
            experts: Experts::Never,
            rope: Family::PLAIN,
            ..LLAMA
        },
        Self {
            name: "glm4moe",
            network: Some(Norms { before: AFTER_ATTENTION, after: None }),
            head_norms: HeadNorms::HeadsIfAny,
            experts: Experts::SomeLayers,
            routing: RoutingKeys::AllOfSigmoids,
            predictor: true,
            ..QWEN2
        },
        Self { name: "ernie4_5", experts: Experts::Never, rope: Family::PLAIN, ..LLAMA },
        Self { name: "ernie4_5-moe", experts: Experts::SomeLayers, rope: Family::PLAIN, ..LLAMA },
        Self {
            name: "seed_oss",
            network: Some(Norms { before: AFTER_ATTENTION, after: None }),
            ..QWEN2
        },
        Self { name: "arcee", inner: Inner::SquaredRelu, experts: Experts::Never, ..LLAMA },
        Self {
            name: "apertus",
            head_norms: HeadNorms::Heads,
            inner: Inner::Xielu,
            rope: Family { divisors: &[ROPE_FREQS, LONG, SHORT], ..Family::PLAIN },
            ..QWEN2
        },
        HUNYUAN,
        Self {
            name: "hunyuan-moe",
            experts: Experts::Always,
            rope: Family { alpha_in_base: false, ..HUNYUAN.rope },
            ..HUNYUAN
        },
        COMMAND_R,
        Self {
            name: "cohere2",
            head_norms: HeadNorms::None,
            windows: Some(Windows {
                global: Global::Last(4),
                default: None,
                only: None,
                own_rope: false,
            }),
            unrotated: Unrotated::Global,
            ..COMMAND_R
        },
        Self {
            name: "cohere2moe",
            rms_by_epsilon: true,
            head_norms: HeadNorms::None,
            predictor: true,
            experts: Experts::SomeLayers,
            routing: RoutingKeys::AllOfSigmoids,
            mixture_scale: 0.5,
            windows: Some(Windows {
                global: Global::First(4),
                default: None,
                only: None,
                own_rope: false,
            }),
            unrotated: Unrotated::Global,
            rope: Family::PLAIN,
            ..COMMAND_R
        },
        Self {
            name: "muse-glimmer",
            attention: GEMMA3.attention,
            network: GEMMA3.network,
            embedding_norm: true,
            post_epsilon: Some(1e-8),
            head_norms: HeadNorms::Heads,
            attention_gates: AttentionGates::Apart(GateFunction::Sigmoid),
            experts: Experts::Never,
            scales: Scales::Logits,
            soft_caps: GEMMA3.soft_caps,
            windows: OLMO2.windows,
            unrotated: Unrotated::Global,
            rope: OLMO2.rope,
            ..LLAMA
        },
        LFM2,
        Self {
            name: "lfm2moe",
            experts: Experts::SomeLayers,
            routing: RoutingKeys::Gating,
            windows: None,
            ..LFM2
        },
        Self { name: "falcon-h1", recurrent: Recurrent::Mamba2Beside, ..QWEN2 },
        NEMOTRON_H,
        Self {
            name: "nemotron_h_moe",
            experts: Experts::Always,
            routing: RoutingKeys::AllOfSigmoids,
            ..NEMOTRON_H
        },
        Self {
            name: "deepseek2",
            latent: true,
            predictor: true,
            experts: Experts::SomeLayers,
            routing: RoutingKeys::All,
            rope: Family {
                log_multiplier: LogMultiplier::Both,
                temperature: true,
                temperature_length: true,
                ..Family::PLAIN
            },
            ..LLAMA
        },
        QWEN35,
        Self { name: "qwen35moe", experts: Experts::Always, ..QWEN35 },
        Self {
            name: "qwen3next",
            experts: Experts::Always,
            recurrent: Recurrent::DeltaSideBySide,
            ..QWEN35
        },
        BERT,
        Self {
            name: "nomic-bert",
            terms: Terms::Types,
            inner: Inner::Gated(Activation::Silu),
            unrotated: Unrotated::Never,
            ..BERT
        },
    ];

    /// Assistants of [`GEMMA4`] models, which draft tokens for them and compute nothing alone.
    pub(in crate::model) const ASSISTANT: Self = Self {
        name: "gemma4-assistant",
        experts: Experts::Never,
        scales: Scales::None,
        soft_caps: [None; 2],
        ..GEMMA4
    };
}
