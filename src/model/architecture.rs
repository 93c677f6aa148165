//! The properties of a family of models that a file's metadata does not contain.

mod families;

use std::cmp::Reverse;

use rope_cpu_kernels::vector::Activation;

use super::Pairing;
use crate::rope::Family;

/// A family of models, by the properties that its members have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Architecture {
    /// The name in `general.architecture`, which is also the prefix of the metadata keys.
    pub name: &'static str,
    /// The elements of a head that rotate together.
    pub pairing: Pairing,
    /// Whether files with sections of M-RoPE pair halves: their converter reorders queries and keys.
    pub sections_pair_halves: bool,
    /// Whether tokens attend to earlier tokens only. Otherwise a model is an encoder, in which each
    /// token attends to the whole text. A file may say that its model is one.
    pub causal: bool,
    /// The norm of activations.
    pub norm: Norm,
    /// Whether files with the epsilon of RMS norm have that norm instead.
    pub rms_by_epsilon: bool,
    /// The norms around attention.
    pub attention: Norms,
    /// Whether the norm after a branch is a norm of the sum of the branch's input and output (BERT).
    pub norms_sums: bool,
    /// The norms around the feed-forward network. `None` if the network has the same input as
    /// attention, and their outputs are added together.
    pub network: Option<Norms>,
    /// The vectors that are added to the embeddings of tokens.
    pub terms: Terms,
    /// Whether embeddings are normalized, without weights.
    pub embedding_norm: bool,
    /// The constant of norms after a branch, if they do not have the file's.
    pub post_epsilon: Option<f32>,
    /// The norm of the output of the last layer.
    pub output_norm: Option<&'static str>,
    /// The norms of queries and keys.
    pub head_norms: HeadNorms,
    /// Whether heads of values are normalized, without weights. A layer without a projection of values
    /// then normalizes the projection of keys.
    pub value_norm: bool,
    /// Whether each query head has a sink: a score that takes a share of the softmax for no value.
    pub sinks: bool,
    /// The gates that the outputs of attention are multiplied by.
    pub attention_gates: AttentionGates,
    /// Whether keys and values are products of a short vector of each token, its latent. The cache holds
    /// the latent in their place (DeepSeek).
    pub latent: bool,
    /// The layers that are recurrent instead of attending.
    pub recurrent: Recurrent,
    /// Whether a last layer of the file may predict the token after the next one.
    pub predictor: bool,
    /// The shape of a feed-forward network.
    pub inner: Inner,
    /// The use of mixtures of experts in place of the feed-forward network.
    pub experts: Experts,
    /// The keys that describe the choice of experts.
    pub routing: RoutingKeys,
    /// The factor of the outputs of experts and of the network beside them, in layers with both.
    pub mixture_scale: f32,
    /// The factors of activations.
    pub scales: Scales,
    /// The soft caps of attention scores and of logits if the file does not set them, 0 for none.
    /// `None` if the family has no such cap.
    pub soft_caps: [Option<f32>; 2],
    /// The layers with a sliding window; `None` if the family has no windows.
    pub windows: Option<Windows>,
    /// The layers without rotation of queries and keys.
    pub unrotated: Unrotated,
    /// The factor of attention scores, if the file does not set it.
    pub scores: Scores,
    /// The use of RoPE.
    pub rope: Family,
}

/// The norm of activations. All divide by the root of the mean square, and multiply by weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// RMS norm.
    Rms,
    /// The norm of a layer, which subtracts the mean first.
    Layer,
}

/// The names of the tensors of the norms of a branch's input and output, if it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Norms {
    /// The norm of the input.
    pub before: Option<&'static str>,
    /// The norm of the output.
    pub after: Option<&'static str>,
}

/// The vectors that are added to the embeddings of tokens. A norm of the sum follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    /// None, and no norm.
    None,
    /// The vector of the type of a token's segment, if the file has any (Nomic BERT).
    Types,
    /// The vector of the type, and the vector of a token's position (BERT).
    TypesAndPositions,
}

/// The norms of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadNorms {
    /// There are none.
    None,
    /// Each head is normalized, before its rotation.
    Heads,
    /// [`HeadNorms::Heads`] in files that have these norms.
    HeadsIfAny,
    /// [`HeadNorms::HeadsIfAny`], with weights of its own for each head (Command R+).
    EachHeadIfAny,
    /// Each head is normalized, after its rotation.
    RotatedHeads,
    /// All query heads are normalized together, and all heads of keys, before their rotation.
    Rows,
}

/// The gates of the outputs of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionGates {
    /// There are none.
    None,
    /// Sigmoids of what the projection of queries computes after each head (Qwen 3.5).
    WithQueries,
    /// The function of a projection of their own.
    Apart(GateFunction),
}

/// The function of the gates of the outputs of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateFunction {
    /// Sigmoids, one for each element (Muse Glimmer).
    Sigmoid,
    /// Softplus, one for each head or each element (Laguna).
    Softplus,
}

/// The recurrent layers of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recurrent {
    /// None.
    Never,
    /// Layers without KV heads have a short convolution (LFM2).
    ShortConvolution,
    /// Layers that the file lists have the gated delta rule; without a list, all but the last layer of
    /// each period (Qwen 3.5).
    Delta,
    /// [`Recurrent::Delta`] with the heads of values of each head of keys side by side (Qwen3-Next).
    DeltaSideBySide,
    /// Layers without KV heads have a scan by the rule of Mamba 2 (Granite 4).
    Mamba2,
    /// All layers have a scan by the rule of Mamba 2 beside attention (Falcon-H1).
    Mamba2Beside,
    /// Each layer has one branch: a feed-forward network, else attention if it has KV heads, else a
    /// scan by the rule of Mamba 2 (Nemotron-H).
    Mamba2Alone,
}

/// The inner part of a feed-forward network, between its input and its down-projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inner {
    /// `activation(gate) * up`.
    Gated(Activation),
    /// `activation(gate) * up`, with gate and up in one tensor.
    GatedInOne(Activation),
    /// `gelu(up)`.
    Gelu,
    /// `gelu(up)`, with the tanh approximation.
    GeluTanh,
    /// `max(up, 0)^2`.
    SquaredRelu,
    /// xIELU of `up`, with parameters for each layer in the file.
    Xielu,
}

/// A family's use of mixtures of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experts {
    /// No model of the family has experts.
    Never,
    /// A model has experts if its file sets their number.
    Sometimes,
    /// All models of the family have experts.
    Always,
    /// All models have experts, in the layers that the file sets.
    SomeLayers,
    /// A model has experts if its file sets their number. They compute a token beside the network, and
    /// both have norms of their own.
    Beside,
}

/// The keys of a file that describe the choice of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoutingKeys {
    /// Nothing: weights are the softmax of scores, and sum to 1.
    None,
    /// How scores become weights, which sum to 1.
    Gating,
    /// How scores become weights, whether these sum to 1, their factor, and groups of experts.
    All,
    /// [`RoutingKeys::All`], with sigmoids of scores by default.
    AllOfSigmoids,
}

impl RoutingKeys {
    /// Returns whether keys set the sum of weights, their factor, and groups.
    pub(super) fn sets_all(self) -> bool {
        matches!(self, RoutingKeys::All | RoutingKeys::AllOfSigmoids)
    }
}

/// The factor of attention scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scores {
    /// `1 / sqrt(n)` for the length n of a head.
    ByHead,
    /// [`Scores::ByHead`], with n = `embedding / heads` in the model with this number of layers.
    ByEmbedding(usize),
    /// 1.
    One,
}

/// The factors of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scales {
    /// None.
    None,
    /// Embeddings are multiplied by the square root of their length (Gemma).
    Embeddings,
    /// Embeddings and the outputs of branches are multiplied, and logits divided, by keys of the
    /// file (Granite).
    Keys,
    /// The factors of [`Scales::Keys`], with values for files without these keys (MiniCPM).
    KeysOrDefaults,
    /// Logits are multiplied by a key of the file (Cohere, Muse Glimmer).
    Logits,
}

/// The layers with a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// The layers without a window.
    pub global: Global,
    /// The window in positions if the file does not set one.
    pub default: Option<usize>,
    /// The number of layers of models with windows; `None` for all models.
    pub only: Option<usize>,
    /// Whether layers with a window have their own RoPE, which no RoPE method changes.
    pub own_rope: bool,
}

/// The layers without a sliding window. In any family, a file may list the layers that have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Global {
    /// None.
    None,
    /// The first layer of each period, by default of this length.
    First(usize),
    /// The last layer of each period, by default of this length.
    Last(usize),
    /// The file must list them.
    Listed,
}

/// The layers without rotation of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrotated {
    /// None.
    Never,
    /// All.
    Always,
    /// The last layer of each period.
    Period(usize),
    /// The layers without a window, in models that have windows. First layers without experts rotate,
    /// and so do layers that predict tokens.
    Global,
    /// All layers, in files with `rope.scaling.finetuned` = false.
    Unless,
    /// The layers with `false` in `attention.rope_pattern`.
    Listed,
}

impl Architecture {
    /// Returns the name of the family with the name most like `name`, for messages: the longest
    /// common start decides, then the distance. A single common letter does not count.
    ///
    /// ```
    /// use rope_cpu::model::Architecture;
    ///
    /// assert_eq!(Architecture::nearest("gemma3n"), "gemma3");
    /// assert_eq!(Architecture::nearest("command-a"), "command-r");
    /// ```
    pub fn nearest(name: &str) -> &'static str {
        let stem = |known: &str| {
            let pairs = name.bytes().zip(known.bytes());
            Some(pairs.take_while(|(a, b)| a == b).count()).filter(|len| *len > 1)
        };
        let unlikeness = |known: &&str| (Reverse(stem(known)), strsim::levenshtein(name, known));
        let names = Self::ALL.iter().map(|architecture| architecture.name);
        names.min_by_key(unlikeness).unwrap_or_default()
    }

    /// Returns the names of all families, for messages.
    pub fn names() -> String {
        Self::ALL.map(|architecture| architecture.name).join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::Architecture;

    #[test]
    fn the_nearest_family_has_the_longest_common_start() {
        for (name, nearest) in [
            ("qwen35vl", "qwen35"),
            ("qwen3vlmoe2", "qwen3vlmoe"),
            ("gemma3n", "gemma3"),
            ("command-a", "command-r"),
            ("deepseek4", "deepseek2"),
            ("glm5-next", "glm4moe"),
            ("llama4", "llama"),
            ("phimoe", "phi3"),
            // One common letter tells nothing.
            ("cwen2", "qwen2"),
        ] {
            assert_eq!(Architecture::nearest(name), nearest, "{name}");
        }
    }
}
