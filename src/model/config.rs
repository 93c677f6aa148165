//! A model's configuration, read from its metadata.

mod keys;
mod layers;

use self::keys::Keys;
pub use self::layers::{Attention, FeedForward, Layer, Mixture, Rotation};
use super::{Architecture, EMBEDDINGS, Error};
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
    /// The layers, in order; at least one.
    pub layers: Vec<Layer>,
    /// The elements of a token's activations between layers.
    pub embedding: usize,
    /// The number of tokens in the vocabulary.
    pub vocabulary: usize,
    /// The constant that norms add to the mean square.
    pub epsilon: f32,
    /// The factor of embeddings.
    pub embedding_scale: f32,
    /// The factor of attention scores.
    pub attention_scale: f32,
    /// The soft cap of attention scores.
    pub attention_soft_cap: Option<f32>,
    /// The soft cap of logits.
    pub logit_soft_cap: Option<f32>,
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
        let layers = layers::read(&keys, &architecture, embedding)?;
        let Some(tokens) = gguf.tensor(EMBEDDINGS) else {
            return Err(Error::MissingTensor(EMBEDDINGS.into()));
        };
        if tokens.rows() > VOCABULARY_MAX {
            return Err(Error::Vocabulary { rows: tokens.rows(), max: VOCABULARY_MAX });
        }

        let Attention { heads, head_dim, .. } = layers[0].attention;
        // See `Architecture::scores_by_embedding`.
        let by_embedding =
            architecture.scores_by_embedding == Some(layers.len()) && heads <= embedding;
        let score_len = if by_embedding { embedding / heads } else { head_dim };
        let scale = keys.positive("attention.scale")?;
        let soft_cap = |index: usize, key| match architecture.soft_caps {
            Some(defaults) => keys.positive_or(key, defaults[index]),
            None => Ok(None),
        };

        Ok(Config {
            architecture,
            context_train: keys.size("context_length", CONTEXT_MAX)?,
            layers,
            embedding,
            vocabulary: tokens.rows() as usize,
            epsilon: keys.epsilon()?,
            embedding_scale: match architecture.scales_embeddings {
                true => (embedding as f32).sqrt(),
                false => 1.0,
            },
            attention_scale: scale.unwrap_or(1.0 / (score_len as f32).sqrt()),
            attention_soft_cap: soft_cap(0, "attn_logit_softcapping")?,
            logit_soft_cap: soft_cap(1, "final_logit_softcapping")?,
        })
    }

    /// Returns the attention of the first layer, whose heads have the shape of those of all layers.
    pub fn attention(&self) -> &Attention {
        &self.layers[0].attention
    }

    /// Returns the largest elements of the inner activations of a feed-forward network.
    pub fn feed_forward(&self) -> usize {
        self.layers.iter().map(|layer| layer.feed_forward.width()).max().unwrap_or(0)
    }

    /// Returns the dimensions of mixtures of experts, if layers have them.
    pub fn mixture(&self) -> Option<Mixture> {
        self.layers.iter().find_map(|layer| layer.feed_forward.mixture())
    }

    /// Returns the largest sliding window of the layers that rotate by `rotation`, if one has a
    /// window.
    pub fn window(&self, rotation: Rotation) -> Option<usize> {
        let layers = self.layers.iter().map(|layer| layer.attention);
        layers.filter(|layer| layer.rotation == rotation).filter_map(|layer| layer.window).max()
    }

    /// Returns whether a layer rotates by `rotation`.
    pub fn has_rotation(&self, rotation: Rotation) -> bool {
        self.layers.iter().any(|layer| layer.attention.rotation == rotation)
    }
}
