//! What a model is made like, from its metadata.

use rope_cpu_kernels::vector::Activation;

use super::Error;
use crate::gguf::{Gguf, Metadata};

/// The families of models that run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of GGUF")]
pub enum Architecture {
    Llama,
    Gemma3,
}

impl Architecture {
    /// Every family.
    pub const ALL: [Architecture; 2] = [Architecture::Llama, Architecture::Gemma3];

    /// The name as in `general.architecture`.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Llama => "llama",
            Architecture::Gemma3 => "gemma3",
        }
    }
}

/// Which elements of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// `2i` with `2i + 1`.
    Adjacent,
    /// `i` with `i + n/2`.
    Halves,
}

/// A model's dimensions and its choices among what models of this kind may do.
#[derive(Clone, Debug)]
pub struct Config {
    /// The family.
    pub architecture: Architecture,
    /// Tokens it was trained for.
    pub context_train: usize,
    /// Layers.
    pub layers: usize,
    /// Values of a token between layers.
    pub embedding: usize,
    /// Values inside the feed-forward network.
    pub feed_forward: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values, each shared by `heads / kv_heads` of the queries.
    pub kv_heads: usize,
    /// Values of a head.
    pub head_dim: usize,
    /// Tokens that it knows.
    pub vocabulary: usize,
    /// Values of a head that rotate; the rest stay.
    pub n_rot: usize,
    /// Which of them rotate together.
    pub pairing: Pairing,
    /// Added to the mean square in norms.
    pub epsilon: f32,
    /// The non-linear step of the feed-forward network.
    pub activation: Activation,
    /// Multiplies embeddings.
    pub embedding_scale: f32,
    /// Multiplies scores of attention.
    pub attention_scale: f32,
    /// Positions that a token sees in layers with a window, itself included.
    pub window: Option<usize>,
    /// Every so many layers, the last one has no window.
    pub window_period: usize,
    /// Limits scores of attention.
    pub attention_soft_cap: Option<f32>,
    /// Limits logits.
    pub logit_soft_cap: Option<f32>,
}

/// Metadata keys that start with the architecture's name.
struct Keys<'m, 'a> {
    metadata: &'m Metadata<'a>,
    architecture: &'static str,
}

impl Keys<'_, '_> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn number(&self, key: &str) -> Result<Option<usize>, Error> {
        Ok(self.metadata.u32(&self.name(key))?.map(|n| n as usize))
    }

    /// A number that must be there, between 1 and `most`.
    fn size(&self, key: &str, most: usize) -> Result<usize, Error> {
        let name = self.name(key);
        let size = Metadata::require(&name, self.number(key)?)?;
        if size == 0 || size > most {
            let reason = "no model has such a size";
            return Err(Error::Value { key: name, value: size.to_string(), reason });
        }
        Ok(size)
    }

    fn size_or(&self, key: &str, most: usize, default: usize) -> Result<usize, Error> {
        if self.metadata.get(&self.name(key)).is_none() {
            return Ok(default);
        }
        self.size(key, most)
    }

    fn epsilon(&self) -> Result<f32, Error> {
        let key = "attention.layer_norm_rms_epsilon";
        Metadata::require(&self.name(key), self.metadata.f32(&self.name(key))?)?;
        Ok(self.positive(key)?.unwrap_or(0.0))
    }

    /// A number that is not negative, where 0 means that there is none.
    fn positive(&self, key: &str) -> Result<Option<f32>, Error> {
        let name = self.name(key);
        match self.metadata.f32(&name)? {
            Some(x) if x < 0.0 => {
                let reason = "it cannot be negative";
                Err(Error::Value { key: name, value: x.to_string(), reason })
            }
            x => Ok(x.filter(|x| *x != 0.0)),
        }
    }
}

/// Larger than in any model, and small enough that products of a few of them cannot overflow.
const DIMENSION_MAX: usize = 1 << 20;
/// Larger than in any model; some buffers of a head are arrays of this length.
pub const HEAD_DIM_MAX: usize = 1 << 10;
/// Query heads that share a head of keys and values, at most.
const GROUP_MAX: usize = 1 << 10;
const VOCABULARY_MAX: u64 = 1 << 23;
const LAYERS_MAX: usize = 1 << 12;
const CONTEXT_MAX: usize = 1 << 30;

impl Config {
    /// Reads and checks the metadata.
    pub fn from_metadata(gguf: &Gguf<'_>) -> Result<Self, Error> {
        let metadata = gguf.metadata();
        let name = metadata.string("general.architecture")?;
        let name = Metadata::require("general.architecture", name)?;
        let architecture = Architecture::ALL
            .into_iter()
            .find(|a| a.name() == name)
            .ok_or_else(|| Error::Architecture { found: name.into() })?;
        let keys = Keys { metadata, architecture: architecture.name() };
        if let Some(experts @ 1..) = metadata.u32(&keys.name("expert_count"))? {
            return Err(Error::Experts(experts));
        }

        let embedding = keys.size("embedding_length", DIMENSION_MAX)?;
        let heads = keys.size("attention.head_count", DIMENSION_MAX)?;
        let kv_heads = keys.size_or("attention.head_count_kv", heads, heads)?;
        let head_dim = keys.size_or("attention.key_length", HEAD_DIM_MAX, embedding / heads)?;
        let invalid = |key: &str, value: usize, reason| {
            Err(Error::Value { key: keys.name(key), value: value.to_string(), reason })
        };
        if !(1..=HEAD_DIM_MAX).contains(&head_dim) || heads * head_dim > DIMENSION_MAX {
            return invalid("attention.head_count", heads, "no model has heads of such a size");
        }
        if !heads.is_multiple_of(kv_heads) {
            return invalid("attention.head_count_kv", kv_heads, "does not divide the heads");
        }
        if heads / kv_heads > GROUP_MAX {
            return invalid("attention.head_count_kv", kv_heads, "too few for so many heads");
        }
        let value_dim = keys.size_or("attention.value_length", DIMENSION_MAX, head_dim)?;
        let n_rot = keys.size_or("rope.dimension_count", head_dim, head_dim)?;
        if value_dim != head_dim {
            return invalid("attention.value_length", value_dim, "values must be as long as keys");
        }
        let Some(tokens) = gguf.tensor("token_embd.weight") else {
            return Err(Error::MissingTensor("token_embd.weight".into()));
        };
        if tokens.rows() > VOCABULARY_MAX {
            return Err(Error::Vocabulary(tokens.rows()));
        }

        let mut config = Config {
            architecture,
            context_train: keys.size("context_length", CONTEXT_MAX)?,
            layers: keys.size("block_count", LAYERS_MAX)?,
            embedding,
            feed_forward: keys.size("feed_forward_length", DIMENSION_MAX)?,
            heads,
            kv_heads,
            head_dim,
            vocabulary: tokens.rows() as usize,
            n_rot,
            pairing: Pairing::Adjacent,
            epsilon: keys.epsilon()?,
            activation: Activation::Silu,
            embedding_scale: 1.0,
            attention_scale: keys
                .positive("attention.scale")?
                .unwrap_or(1.0 / (head_dim as f32).sqrt()),
            window: None,
            window_period: 1,
            attention_soft_cap: None,
            logit_soft_cap: None,
        };
        if architecture == Architecture::Gemma3 {
            config.be_gemma3(&keys)?;
        }
        Ok(config)
    }

    fn be_gemma3(&mut self, keys: &Keys<'_, '_>) -> Result<(), Error> {
        self.pairing = Pairing::Halves;
        self.activation = Activation::GeluTanh;
        self.embedding_scale = (self.embedding as f32).sqrt();
        // The 27B model, known by its layers, divides by the values per head of the embedding.
        if self.layers == 62 && self.heads <= self.embedding {
            self.attention_scale = 1.0 / ((self.embedding / self.heads) as f32).sqrt();
        }
        self.window = keys.number("attention.sliding_window")?.filter(|&window| window > 0);
        self.window_period = keys.size_or("attention.sliding_window_pattern", LAYERS_MAX, 6)?;
        self.attention_soft_cap = keys.positive("attn_logit_softcapping")?;
        self.logit_soft_cap = keys.positive("final_logit_softcapping")?;
        Ok(())
    }

    /// The window of a layer.
    pub fn layer_window(&self, layer: usize) -> Option<usize> {
        self.window.filter(|_| layer % self.window_period + 1 < self.window_period)
    }

    /// Heads of queries that share a head of keys and values.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }
}
