//! A model's configuration, read from its metadata.

use rope_cpu_kernels::vector::Activation;

use super::{
    EMBEDDINGS, Error,
    architecture::{Architecture, Experts},
};
use crate::gguf::{Gguf, Metadata};

/// The elements of a head that rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// Element `2i` rotates with `2i + 1`.
    Adjacent,
    /// Element `i` rotates with `i + n/2`.
    Halves,
}

/// A model's dimensions and options.
#[derive(Clone, Debug)]
pub struct Config {
    /// The family of models.
    pub architecture: Architecture,
    /// The trained length: the number of tokens that the model was trained for.
    pub context_train: usize,
    /// The number of layers.
    pub layers: usize,
    /// The elements of a token's activations between layers.
    pub embedding: usize,
    /// The elements of the inner activations of the feed-forward network.
    pub feed_forward: usize,
    /// The number of query heads.
    pub heads: usize,
    /// The number of KV heads, each shared by `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// The elements of a head.
    pub head_dim: usize,
    /// The number of tokens in the vocabulary.
    pub vocabulary: usize,
    /// The first elements of a head, which rotate; the rest do not.
    pub n_rot: usize,
    /// The elements that rotate together.
    pub pairing: Pairing,
    /// The constant that norms add to the mean square.
    pub epsilon: f32,
    /// The non-linear step of the feed-forward network.
    pub activation: Activation,
    /// The factor of embeddings.
    pub embedding_scale: f32,
    /// The factor of attention scores.
    pub attention_scale: f32,
    /// The positions that a token attends to in layers with a window, itself included.
    pub window: Option<usize>,
    /// The period of layers without a window: the last layer of each period has none. `None` if all
    /// layers have a window.
    pub window_period: Option<usize>,
    /// Whether layers with a window have a RoPE of their own.
    pub window_rope: bool,
    /// The soft cap of attention scores.
    pub attention_soft_cap: Option<f32>,
    /// The soft cap of logits.
    pub logit_soft_cap: Option<f32>,
    /// The mixture of experts in place of the feed-forward network.
    pub experts: Option<Mixture>,
}

/// The dimensions of a mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mixture {
    /// The number of experts.
    pub count: usize,
    /// The number of experts that compute a token.
    pub used: usize,
    /// The elements of the inner activations of an expert.
    pub feed_forward: usize,
}

/// The metadata keys that start with the architecture's name.
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

    /// Reads a number that must be present, from 1 to `max`.
    fn size(&self, key: &str, max: usize) -> Result<usize, Error> {
        let name = self.name(key);
        let size = Metadata::require(&name, self.number(key)?)?;
        if size == 0 || size > max {
            let reason = format!("must be from 1 to {max}");
            return Err(Error::Value { key: name, value: size.to_string(), reason });
        }
        Ok(size)
    }

    fn size_or(&self, key: &str, max: usize, default: usize) -> Result<usize, Error> {
        if self.metadata.get(&self.name(key)).is_none() {
            return Ok(default);
        }
        self.size(key, max)
    }

    fn epsilon(&self) -> Result<f32, Error> {
        let key = "attention.layer_norm_rms_epsilon";
        Metadata::require(&self.name(key), self.metadata.f32(&self.name(key))?)?;
        Ok(self.positive(key)?.unwrap_or(0.0))
    }

    /// Reads a number that is not negative. Returns `None` for 0.
    fn positive_or(&self, key: &str, default: f32) -> Result<Option<f32>, Error> {
        let name = self.name(key);
        match self.metadata.f32(&name)?.unwrap_or(default) {
            0.0 => Ok(None),
            x if x < 0.0 => {
                let reason = "must not be negative".into();
                Err(Error::Value { key: name, value: x.to_string(), reason })
            }
            x => Ok(Some(x)),
        }
    }

    fn positive(&self, key: &str) -> Result<Option<f32>, Error> {
        self.positive_or(key, 0.0)
    }
}

/// The largest dimension: larger than in any model, and small enough that the product of a few
/// dimensions cannot overflow.
const DIMENSION_MAX: usize = 1 << 20;
/// The largest head: larger than in any model. Some buffers of a head are arrays of this length.
pub const HEAD_DIM_MAX: usize = 1 << 10;
/// The largest number of query heads that share a KV head.
const GROUP_MAX: usize = 1 << 10;
const VOCABULARY_MAX: u64 = 1 << 23;
const EXPERTS_MAX: usize = 1 << 12;
const LAYERS_MAX: usize = 1 << 12;
const CONTEXT_MAX: usize = 1 << 30;

impl Config {
    /// Reads and checks the metadata.
    ///
    /// # Errors
    /// If a key is missing or its value is not supported.
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
        let invalid = |key: &str, value: usize, reason: String| {
            Err(Error::Value { key: keys.name(key), value: value.to_string(), reason })
        };
        if !(1..=HEAD_DIM_MAX).contains(&head_dim) || heads * head_dim > DIMENSION_MAX {
            let reason = format!(
                "the length of a head is {head_dim}: it must be from 1 to {HEAD_DIM_MAX}, and all \
                 heads together at most {DIMENSION_MAX}"
            );
            return invalid("attention.head_count", heads, reason);
        }
        if !heads.is_multiple_of(kv_heads) {
            let reason = format!("must divide attention.head_count, which is {heads}");
            return invalid("attention.head_count_kv", kv_heads, reason);
        }
        if heads / kv_heads > GROUP_MAX {
            let least = heads.div_ceil(GROUP_MAX);
            let reason = format!("must be at least {least} for {heads} heads");
            return invalid("attention.head_count_kv", kv_heads, reason);
        }
        let value_dim = keys.size_or("attention.value_length", DIMENSION_MAX, head_dim)?;
        let n_rot = keys.size_or("rope.dimension_count", head_dim, head_dim)?;
        if value_dim != head_dim {
            let reason = format!("must equal the length of keys, which is {head_dim}");
            return invalid("attention.value_length", value_dim, reason);
        }
        let Some(tokens) = gguf.tensor(EMBEDDINGS) else {
            return Err(Error::MissingTensor(EMBEDDINGS.into()));
        };
        if tokens.rows() > VOCABULARY_MAX {
            return Err(Error::Vocabulary { rows: tokens.rows(), max: VOCABULARY_MAX });
        }

        let layers = keys.size("block_count", LAYERS_MAX)?;
        let experts = mixture(&keys, architecture)?;
        // If all feed-forward networks are experts, the file need not contain feed_forward_length.
        let feed_forward = match experts {
            Some(mixture) => mixture.feed_forward,
            None => keys.size("feed_forward_length", DIMENSION_MAX)?,
        };
        // See `Architecture::scores_by_embedding`.
        let by_embedding = architecture.scores_by_embedding == Some(layers) && heads <= embedding;
        let score_len = if by_embedding { embedding / heads } else { head_dim };
        let scale = keys.positive("attention.scale")?;
        let (window, window_period) = windows(&keys, architecture)?;
        let soft_cap = |index: usize, key| match architecture.soft_caps {
            Some(defaults) => keys.positive_or(key, defaults[index]),
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
            attention_scale: scale.unwrap_or(1.0 / (score_len as f32).sqrt()),
            window,
            window_period,
            window_rope: architecture.windows.is_some_and(|windows| windows.own_rope),
            attention_soft_cap: soft_cap(0, "attn_logit_softcapping")?,
            logit_soft_cap: soft_cap(1, "final_logit_softcapping")?,
            experts,
        })
    }

    /// Returns the sliding window of a layer, if it has one.
    pub fn layer_window(&self, layer: usize) -> Option<usize> {
        self.window.filter(|_| self.window_period.is_none_or(|period| layer % period + 1 < period))
    }

    /// Returns whether a layer has a RoPE of its own, which no RoPE method changes.
    pub fn own_rope(&self, layer: usize) -> bool {
        self.window_rope && self.layer_window(layer).is_some()
    }

    /// Returns the number of query heads that share a KV head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }
}

/// Reads the sliding window, and the period of layers without one.
fn windows(
    keys: &Keys<'_, '_>,
    architecture: Architecture,
) -> Result<(Option<usize>, Option<usize>), Error> {
    let Some(windows) = architecture.windows else { return Ok((None, None)) };
    let window = keys.number("attention.sliding_window")?.or(windows.default);
    let period = |default| keys.size_or("attention.sliding_window_pattern", LAYERS_MAX, default);
    Ok((window.filter(|&window| window > 0), windows.period.map(period).transpose()?))
}

/// Reads the dimensions of a mixture of experts, if the model has one.
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
                let reason = "only 1 is supported: experts whose weights sum to 1".into();
                let key = keys.name("expert_weights_scale");
                return Err(Error::Value { key, value: scale.to_string(), reason });
            }
            Ok(Some(Mixture { count, used, feed_forward }))
        }
        (Experts::Never, 1..) => Err(Error::Experts { count, name: architecture.name }),
        (_, 0) => Ok(None),
    }
}
