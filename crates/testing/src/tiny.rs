//! Tiny random models: their descriptions.

mod families;
pub mod files;
mod keys;
mod tensors;
mod weights;

use rope_cpu::model::{
    Architecture, Pairing,
    architecture::{
        self as model, EmbeddingTerms, Experts, Factors, Global, HeadNorms, Inner, NormKind,
        RoutingKeys, Unrotated,
    },
};
use rope_cpu_kernels::DType;

/// The description of a tiny model, with the properties that the tests vary.
#[derive(Clone)]
pub struct Tiny {
    /// The family. The definition has its properties from here, so that a test can change one of them;
    /// the file has only its name.
    pub architecture: Architecture,
    pub layers: usize,
    pub embedding: usize,
    pub feed_forward: usize,
    /// Each feed-forward network is narrower by this number of elements than in the layer before.
    pub narrower: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// The heads, KV heads and head length of each layer, if they differ.
    pub shapes: &'static [[usize; 3]],
    /// The elements of the input that each layer has in addition to the activations; 0 for none.
    pub layer_input: usize,
    /// Whether layers multiply their output.
    pub output_scales: bool,
    /// Whether values of layers without a window are the projections of keys.
    pub keys_as_values: bool,
    /// The pairs that turn in layers without a window, if not all do.
    pub turning: Option<usize>,
    /// The number of last layers that attend to the keys and values of an earlier one.
    pub shared_kv: usize,
    pub n_rot: usize,
    /// The pairs that rotate by each kind of position of an image, if a file of GLM 4 has them. Its
    /// queries and keys then pair halves.
    pub sections: Option<[usize; 4]>,
    /// The length of a head in layers with a window, and the dimensions that rotate there, if they
    /// differ.
    pub window_head: Option<[usize; 2]>,
    pub vocabulary: usize,
    pub context: usize,
    pub base: f32,
    /// The matrices that have a bias.
    pub biases: &'static [&'static str],
    /// The size of the biases of keys.
    pub key_bias: f32,
    pub tied: bool,
    /// Whether norms have a bias.
    pub norm_biases: bool,
    /// The token after which the second segment of a text begins.
    pub separator: Option<u32>,
    /// Whether queries and keys have the norms of the family.
    pub head_norms: bool,
    /// Whether gates of attention are for each element, in a family that may have them for each head.
    pub element_gates: bool,
    /// The recurrence of all layers but the last of each period of `attends`.
    pub recurrent: Option<Recurrent>,
    pub attends: usize,
    /// The only branch of each layer, if it has only one: `M` for the recurrence, `*` for attention,
    /// `-` for the network.
    pub branches: &'static [u8],
    /// A part of a recurrence that the definition leaves out, to show that it matters.
    pub without: &'static str,
    /// Whether the file has one more layer, which predicts further tokens.
    pub predicts: bool,
    /// Whether that layer has its own embeddings, output norm and output.
    pub predicts_alone: bool,
    /// The elements of the activations of the model that this one is an assistant of; 0 for none.
    pub assists: usize,
    /// Whether queries, keys and values are in one tensor, and gate and up in another.
    pub fused: bool,
    /// The number of experts, and the number of them that compute a token.
    pub experts: Option<(usize, usize)>,
    /// Whether each expert has its own tensors, as in Mixtral's first files.
    pub experts_apart: bool,
    /// The number of first layers without experts, if the file has it.
    pub dense: Option<usize>,
    /// The inner width of the network that runs in parallel with the experts; 0 for none.
    pub shared: usize,
    /// Whether this network has a gate.
    pub shared_gate: bool,
    /// Whether gates and ups of experts are in one tensor.
    pub fused_experts: bool,
    /// Whether the choice of experts has a bias.
    pub selection_bias: bool,
    /// Whether the weights of experts are sigmoids, in a family with a key for it.
    pub sigmoid_gating: bool,
    /// Whether the weights of the experts of a token sum to 1, before this factor.
    pub sums_to_one: bool,
    pub expert_scale: f32,
    /// The number of groups of experts, and of groups that experts are chosen from.
    pub groups: Option<(usize, usize)>,
    /// The dimensions of attention to latents, if the model has it.
    pub latent: Option<Latent>,
    /// The weight of YaRN's factor of scores (`mscale_all_dim`), with a factor of 4.
    pub score_weight: f32,
    /// The factors of embeddings, of the outputs of branches, and of logits, in a family with keys for
    /// them.
    pub factors: [f32; 3],
    pub window: Option<(usize, usize)>,
    pub soft_caps: Option<(f32, f32)>,
    /// The period of layers that do not rotate, the last layer of each, in a family with files that say
    /// it.
    pub unrotated: Option<usize>,
    /// The slope of the temperature of queries, with the original context of YaRN.
    pub temperature: Option<(f32, usize)>,
    pub long_rope: Option<usize>,
    /// The scale of the adapter that is merged into the weights, 0 for none.
    pub merged: f32,
    /// Whether adapters are in F16.
    pub half_adapters: bool,
    /// The format of matrices with rows of whole blocks, if it is not F32.
    pub quantized: Option<DType>,
    /// Whether matrices of layers are multiplied by a power of two in the file. They then have a
    /// tensor with the inverse scale, as in files of NVFP4.
    pub scales: bool,
}

/// The recurrence of a layer.
#[derive(Clone, Copy)]
pub enum Recurrent {
    ShortConvolution { taps: usize },
    Delta { key_heads: usize, value_heads: usize, dim: usize, taps: usize },
    Mamba2 { groups: usize, heads: usize, dim: usize, state: usize, taps: usize },
}

/// Attention to latents. The part of keys and queries that rotates has [`Tiny::n_rot`] elements.
#[derive(Clone, Copy)]
pub struct Latent {
    /// The elements of the vector that queries are computed from; 0 for the activations.
    pub query_rank: usize,
    pub rank: usize,
    /// The elements of a query that do not rotate.
    pub unrotated: usize,
    pub value_dim: usize,
    /// Whether both matrices of a head are in one tensor.
    pub joined: bool,
}

/// The rank of the adapters of all models.
pub const RANK: usize = 5;
const ALPHA: f32 = 8.0;

/// The key `scaling.alpha` of Hunyuan.
pub const ALPHA_OF_BASE: f32 = 3.0;

pub const EPSILON: f32 = 1e-5;
pub const LINEARS: [&str; 7] =
    ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];

/// Returns the family with this name.
pub fn family(name: &str) -> Architecture {
    Architecture::named(name).expect(name)
}

impl Tiny {
    /// Returns a model with biases and grouped heads. The length of a head is no multiple of 32,
    /// and heads rotate in part.
    pub fn llama() -> Tiny {
        Tiny {
            architecture: family("llama"),
            layers: 2,
            embedding: 72,
            feed_forward: 104,
            narrower: 0,
            heads: 6,
            kv_heads: 2,
            head_dim: 20,
            shapes: &[],
            layer_input: 0,
            output_scales: false,
            keys_as_values: false,
            turning: None,
            shared_kv: 0,
            n_rot: 12,
            sections: None,
            window_head: None,
            vocabulary: 50,
            context: 64,
            base: 500.0,
            biases: &LINEARS,
            key_bias: 0.3,
            tied: false,
            norm_biases: false,
            separator: None,
            head_norms: true,
            element_gates: false,
            recurrent: None,
            attends: 1,
            branches: b"",
            without: "",
            predicts: false,
            predicts_alone: false,
            assists: 0,
            fused: false,
            experts: None,
            experts_apart: false,
            dense: None,
            shared: 0,
            shared_gate: false,
            fused_experts: false,
            selection_bias: false,
            sigmoid_gating: false,
            sums_to_one: true,
            expert_scale: 1.0,
            groups: None,
            latent: None,
            score_weight: 0.0,
            factors: [6.0, 0.4, 0.25],
            window: None,
            soft_caps: None,
            unrotated: None,
            temperature: None,
            long_rope: None,
            merged: 0.0,
            half_adapters: false,
            quantized: None,
            scales: false,
        }
    }

    /// Returns a model with query and key norms, a window of 40 in two of three layers, a soft cap of
    /// logits, and tied embeddings.
    pub fn gemma3() -> Tiny {
        Tiny {
            architecture: family("gemma3"),
            layers: 3,
            kv_heads: 3,
            head_dim: 32,
            n_rot: 32,
            base: 2000.0,
            biases: &[],
            tied: true,
            window: Some((40, 3)),
            soft_caps: Some((0.0, 3.0)),
            ..Tiny::llama()
        }
    }

    /// Returns a model like [`Tiny::gemma3`] with a soft cap of scores, and without norms of heads.
    pub fn capped() -> Tiny {
        Tiny { architecture: family("gemma2"), soft_caps: Some((1.5, 3.0)), ..Tiny::gemma3() }
    }

    /// Returns a model that attends to latents, without experts.
    pub fn latent() -> Tiny {
        Tiny {
            experts: None,
            shared: 0,
            dense: None,
            layers: 2,
            predicts: false,
            ..Tiny::named("deepseek2")
        }
    }

    /// Returns [`Tiny::gemma3`] with other heads in each layer.
    pub fn mixed() -> Tiny {
        Tiny { shapes: &[[6, 2, 20], [4, 4, 40], [8, 1, 12]], n_rot: 12, ..Tiny::gemma3() }
    }

    /// Returns an assistant of a Gemma 4 model, with a window in two of three layers.
    pub fn assistant(&self) -> Tiny {
        Tiny {
            architecture: Architecture::ASSISTANT,
            layers: 3,
            embedding: 48,
            feed_forward: 56,
            narrower: 0,
            heads: 4,
            layer_input: 0,
            keys_as_values: false,
            shared_kv: 0,
            experts: None,
            soft_caps: None,
            assists: self.embedding,
            ..self.clone()
        }
    }

    /// Returns the model in Q8_0, with rows of whole blocks.
    pub fn in_blocks(self) -> Tiny {
        let head_dim = 16 + 16 * usize::from(self.n_rot > 16);
        // Shared networks are as wide as some experts where the file has only this number.
        let one = if self.counts_shared() { 96 } else { 64 };
        let shared = if self.shared > 0 { one } else { 0 };
        let quantized = Some(DType::Q8_0);
        Tiny { embedding: 64, feed_forward: 96, shared, head_dim, quantized, ..self }
    }

    /// Returns whether the file has the number of shared networks in place of their width.
    fn counts_shared(&self) -> bool {
        let counted = self.shared.is_multiple_of(self.feed_forward);
        self.shared > 0 && counted && self.architecture.network.routing.sets_all()
    }

    /// Returns whether norms subtract the mean.
    pub fn centered(&self) -> bool {
        self.architecture.norms.kind == NormKind::Layer
    }

    /// Returns the name of the norm before the output matrix.
    pub fn output_norm(&self) -> &'static str {
        self.architecture.norms.output.unwrap()
    }

    /// Removes the norms of the outputs of branches.
    pub fn drop_post_norms(&mut self) {
        let norms = &mut self.architecture.norms;
        norms.attention.after = None;
        norms.network.as_mut().unwrap().after = None;
    }

    /// Returns whether elements of a head that are next to each other rotate together.
    pub fn pairs_adjacent(&self) -> bool {
        let positions = self.architecture.positions;
        let halves = positions.sections_pair_halves && self.sections.is_some();
        positions.pairing == Pairing::Adjacent && !halves
    }

    /// Returns the norms of queries and keys.
    pub fn head_norms(&self) -> HeadNorms {
        if self.head_norms { self.architecture.attention.head_norms } else { HeadNorms::None }
    }

    /// Returns whether vectors of types, and of positions, are added to embeddings, before a norm.
    pub fn terms(&self) -> [bool; 2] {
        let terms = self.architecture.terms;
        [terms != EmbeddingTerms::None, terms == EmbeddingTerms::TypesAndPositions]
    }

    /// Returns the factors of embeddings, of the outputs of branches, and of logits.
    pub fn factors(&self) -> [f32; 3] {
        match self.architecture.scales.factors {
            Factors::None => [1.0; 3],
            Factors::Embeddings => [(self.embedding as f32).sqrt(), 1.0, 1.0],
            Factors::Keys | Factors::KeysOrDefaults => self.factors,
            Factors::Logits => [1.0, 1.0, self.factors[2]],
        }
    }

    /// Returns whether experts and the network compute a token in parallel, each with its own norms.
    pub fn beside(&self) -> bool {
        self.experts.is_some() && self.architecture.network.experts == Experts::Beside
    }

    /// Returns whether the weights of experts are sigmoids.
    pub fn sigmoid_gating(&self) -> bool {
        self.sigmoid_gating || self.architecture.network.routing == RoutingKeys::AllOfSigmoids
    }

    /// Returns whether all layers have attention in parallel with the recurrence.
    fn recurs_beside(&self) -> bool {
        self.architecture.recurrent == model::Recurrent::Mamba2Beside
    }

    /// Returns whether a layer does not rotate queries and keys.
    pub fn is_unrotated(&self, layer: usize) -> bool {
        let last_of = |period| layer % period + 1 == period;
        match self.architecture.positions.unrotated {
            Unrotated::Never => false,
            Unrotated::Always => true,
            Unrotated::Period(period) => last_of(period),
            Unrotated::Unless | Unrotated::Listed => self.unrotated.is_some_and(last_of),
            Unrotated::Global => {
                let has_window = |layer| self.layer_window(layer).is_some();
                (0..self.layers).any(has_window)
                    && !has_window(layer)
                    && (self.dense.unwrap_or(0)..self.layers).contains(&layer)
            }
        }
    }

    /// Returns the number of experts of a layer, and the number of them that compute a token.
    pub fn layer_experts(&self, layer: usize) -> Option<(usize, usize)> {
        self.experts.filter(|_| layer >= self.dense.unwrap_or(0) && self.has_network(layer))
    }

    /// Returns the recurrence of a layer, if it has one.
    pub fn layer_recurrence(&self, layer: usize) -> Option<Recurrent> {
        let recurrent = match self.branches.get(layer) {
            Some(branch) => *branch == b'M',
            None => {
                let attends = !self.recurs_beside() && (layer + 1).is_multiple_of(self.attends);
                layer < self.layers && !attends
            }
        };
        self.recurrent.filter(|_| recurrent)
    }

    /// Returns whether a layer attends.
    pub fn layer_attends(&self, layer: usize) -> bool {
        let alone = self.branches.get(layer).is_none_or(|branch| *branch == b'*');
        alone && (self.recurs_beside() || self.layer_recurrence(layer).is_none())
    }

    /// Returns whether a layer has a feed-forward network.
    pub fn has_network(&self, layer: usize) -> bool {
        self.branches.get(layer).is_none_or(|branch| *branch == b'-')
    }

    /// Returns whether the network of a layer has a gate.
    fn is_gated(&self) -> bool {
        matches!(self.architecture.network.inner, Inner::Gated(_) | Inner::GatedInOne(_))
    }

    /// Returns xIELU's `alpha_n`, `alpha_p`, `beta` and `eps` of a layer.
    pub fn xielu(&self, layer: usize) -> [f32; 4] {
        let layer = layer as f32;
        [0.2 + 0.1 * layer, 0.6 - 0.1 * layer, 0.5, -1e-6]
    }

    /// Returns the window of a layer, if it has one.
    pub fn layer_window(&self, layer: usize) -> Option<usize> {
        let global = self.architecture.positions.windows.map(|windows| windows.global);
        let first = matches!(global, Some(Global::First(_)));
        let windowed = |period| {
            if first { !layer.is_multiple_of(period) } else { layer % period + 1 < period }
        };
        let window = self.window.filter(|(_, period)| layer < self.layers && windowed(*period));
        window.map(|(window, _)| window)
    }

    /// Returns the heads, KV heads and head length of a layer.
    pub fn layer_shape(&self, layer: usize) -> [usize; 3] {
        let same = [self.heads, self.kv_heads, self.head_dim];
        let [heads, kv_heads, head_dim] = self.shapes.get(layer).copied().unwrap_or(same);
        let head_dim = match self.window_head {
            Some([of_windows, _]) if self.layer_window(layer).is_some() => of_windows,
            Some(_) => self.head_dim,
            None => head_dim,
        };
        [heads, kv_heads, head_dim]
    }

    /// Returns the layer with the keys and values that a layer attends to.
    pub fn source(&self, layer: usize) -> usize {
        let own = self.layers - self.shared_kv;
        let [_, kv_heads, head_dim] = self.layer_shape(layer);
        let alike = |other: &usize| {
            self.layer_shape(*other)[1..] == [kv_heads, head_dim]
                && self.layer_window(*other) == self.layer_window(layer)
        };
        if layer < own || layer >= self.layers { layer } else { (0..own).rfind(alike).unwrap() }
    }

    /// Returns whether a layer uses the keys of another one.
    fn lacks_keys(&self, layer: usize) -> bool {
        self.assists > 0 || self.source(layer) != layer
    }

    /// Returns whether a layer has no projection of values.
    pub fn lacks_values(&self, layer: usize) -> bool {
        self.keys_as_values && self.layer_window(layer).is_none()
    }

    fn layer_feed_forward(&self, layer: usize) -> usize {
        self.feed_forward - layer * self.narrower
    }

    /// Returns the divisors of LongRoPE, short and long.
    pub fn divisors(&self) -> [Vec<f32>; 2] {
        [1.1, 3.0].map(|d| (0..self.n_rot / 2).map(|i| d + i as f32 / 4.0).collect())
    }
}
