//! What a model is made like, from its metadata.

use rope_cpu_kernels::vector::Activation;

use super::{
    EMBEDDINGS, Error,
    architecture::{Architecture, Experts},
};
use crate::gguf::{Gguf, Metadata};

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
    /// Every so many layers, the last one has no window; `None` if all have one.
    pub window_period: Option<usize>,
    /// Whether layers with a window keep a RoPE of their own.
    pub window_rope: bool,
    /// Limits scores of attention.
    pub attention_soft_cap: Option<f32>,
    /// Limits logits.
    pub logit_soft_cap: Option<f32>,
    /// The experts that take the place of the feed-forward network.
    pub experts: Option<Mixture>,
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixture {
    /// How many there are.
    pub count: usize,
    /// How many a token goes through.
    pub used: usize,
    /// Values inside one of them.
    pub feed_forward: usize,
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
    fn positive_or(&self, key: &str, silent: f32) -> Result<Option<f32>, Error> {
        let name = self.name(key);
        match self.metadata.f32(&name)?.unwrap_or(silent) {
            0.0 => Ok(None),
            x if x < 0.0 => {
                let reason = "it cannot be negative";
                Err(Error::Value { key: name, value: x.to_string(), reason })
            }
            x => Ok(Some(x)),
        }
    }

    fn positive(&self, key: &str) -> Result<Option<f32>, Error> {
        self.positive_or(key, 0.0)
    }
}

/// Larger than in any model, and small enough that products of a few of them cannot overflow.
const DIMENSION_MAX: usize = 1 << 20;
/// Larger than in any model; some buffers of a head are arrays of this length.
pub const HEAD_DIM_MAX: usize = 1 << 10;
/// Query heads that share a head of keys and values, at most.
const GROUP_MAX: usize = 1 << 10;
const VOCABULARY_MAX: u64 = 1 << 23;
const EXPERTS_MAX: usize = 1 << 12;
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
            .find(|a| a.name == name)
            .ok_or_else(|| Error::Architecture { found: name.into() })?;
        let keys = Keys { metadata, architecture: architecture.name };
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
        let Some(tokens) = gguf.tensor(EMBEDDINGS) else {
            return Err(Error::MissingTensor(EMBEDDINGS.into()));
        };
        if tokens.rows() > VOCABULARY_MAX {
            return Err(Error::Vocabulary(tokens.rows()));
        }

        let layers = keys.size("block_count", LAYERS_MAX)?;
        let experts = mixture(&keys, architecture)?;
        // Where all feed-forward networks are experts, the file need not give another size.
        let feed_forward = match experts {
            Some(mixture) => mixture.feed_forward,
            None => keys.size("feed_forward_length", DIMENSION_MAX)?,
        };
        // The largest models of some families divide by the values of the embedding for each head.
        let scored = match architecture.scores_by_embedding == Some(layers) && heads <= embedding {
            true => embedding / heads,
            false => head_dim,
        };
        let scale = keys.positive("attention.scale")?;
        let (window, window_period) = windows(&keys, architecture)?;
        let soft_cap = |index: usize, key| match architecture.soft_caps {
            Some(silent) => keys.positive_or(key, silent[index]),
            None => Ok(None),
        };

        Ok(Config {
            architecture,
            context_train: keys.size("context_length", CONTEXT_MAX)?,
            layers,
            embedding,
            feed_forward,
            heads,
            kv_heads,
            head_dim,
            vocabulary: tokens.rows() as usize,
            n_rot,
            pairing: architecture.pairing,
            epsilon: keys.epsilon()?,
            activation: architecture.activation,
            embedding_scale: match architecture.scales_embeddings {
                true => (embedding as f32).sqrt(),
                false => 1.0,
            },
            attention_scale: scale.unwrap_or(1.0 / (scored as f32).sqrt()),
            window,
            window_period,
            window_rope: architecture.windows.is_some_and(|windows| windows.own_rope),
            attention_soft_cap: soft_cap(0, "attn_logit_softcapping")?,
            logit_soft_cap: soft_cap(1, "final_logit_softcapping")?,
            experts,
        })
    }

    /// The window of a layer.
    pub fn layer_window(&self, layer: usize) -> Option<usize> {
        self.window.filter(|_| self.window_period.is_none_or(|period| layer % period + 1 < period))
    }

    /// Whether a layer has a RoPE of its own, which no method changes.
    pub fn own_rope(&self, layer: usize) -> bool {
        self.window_rope && self.layer_window(layer).is_some()
    }

    /// Heads of queries that share a head of keys and values.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }
}

/// The window that a file gives, and how often a layer has none.
fn windows(
    keys: &Keys<'_, '_>,
    architecture: Architecture,
) -> Result<(Option<usize>, Option<usize>), Error> {
    let Some(windows) = architecture.windows else { return Ok((None, None)) };
    let window = keys.number("attention.sliding_window")?.or(windows.default);
    let period = |default| keys.size_or("attention.sliding_window_pattern", LAYERS_MAX, default);
    Ok((window.filter(|&window| window > 0), windows.period.map(period).transpose()?))
}

/// The experts that a file gives.
fn mixture(keys: &Keys<'_, '_>, architecture: Architecture) -> Result<Option<Mixture>, Error> {
    let count = keys.number("expert_count")?.unwrap_or(0);
    match (architecture.experts, count) {
        (Experts::Always, _) | (Experts::Sometimes, 1..) => {
            let count = keys.size("expert_count", EXPERTS_MAX)?;
            let used = keys.size("expert_used_count", count)?;
            let feed_forward = match keys.number("expert_feed_forward_length")? {
                Some(_) => keys.size("expert_feed_forward_length", DIMENSION_MAX)?,
                None => keys.size("feed_forward_length", DIMENSION_MAX)?,
            };
            let scale = keys.positive("expert_weights_scale")?;
            if let Some(scale) = scale.filter(|scale| *scale != 1.0) {
                let reason = "experts whose weights do not sum to 1 do not run here";
                let key = keys.name("expert_weights_scale");
                return Err(Error::Value { key, value: scale.to_string(), reason });
            }
            Ok(Some(Mixture { count, used, feed_forward }))
        }
        (Experts::Never, 1..) => Err(Error::Experts { count, name: architecture.name }),
        (_, 0) => Ok(None),
    }
}
