//! A model's configuration, read from its metadata.

mod assistant;
mod feed_forward;
mod keys;
mod latent;
mod layers;
mod recurrence;
mod routing;
mod unread;

pub(super) use self::assistant::AssistantConfig;
pub(super) use self::feed_forward::softplus;
pub use self::{
    feed_forward::{FeedForward, Function, Mixture},
    latent::Latent,
    layers::{Attention, Layer, Rotation},
    recurrence::{Convolution, Recurrence, Scan},
    routing::{Gating, Routing},
};
use self::{keys::Keys, layers::Layers};
use super::{
    Architecture, EMBEDDINGS, Error, PREDICTOR_INPUT, Pooling,
    architecture::{Norm, Recurrent, Scales},
};
use crate::{
    gguf::{Gguf, Metadata, Value},
    rope::CONTEXT_MAX,
};

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
    /// Whether tokens attend to earlier tokens only. Otherwise the model is an encoder: it computes
    /// embeddings of whole texts, and no logits.
    pub causal: bool,
    /// The trained length: the number of tokens that the model was trained for.
    pub context_train: usize,
    /// The layers, in order; at least one of them attends.
    pub layers: Vec<Layer>,
    /// The layer after these that predicts the token after the next one, from the output of the last
    /// layer and the next token (multi-token prediction); `None` if the file has no such layer, or
    /// several.
    pub predictor: Option<Layer>,
    /// The number of layers in the file, with all that predict further tokens.
    pub layers_in_file: usize,
    /// The elements of a token's activations between layers.
    pub embedding: usize,
    /// The elements of each layer's additional input for a token; 0 if layers have only the
    /// activations as input.
    pub layer_input: usize,
    /// The number of tokens in the vocabulary.
    pub vocabulary: usize,
    /// The constant that norms add to the mean square.
    pub epsilon: f32,
    /// The constant that norms after a branch add.
    pub post_epsilon: f32,
    /// The factor of embeddings.
    pub embedding_scale: f32,
    /// The factor of the outputs of branches.
    pub residual_scale: f32,
    /// The factor of logits, before their soft cap.
    pub logit_scale: f32,
    /// The soft cap of attention scores.
    pub attention_soft_cap: Option<f32>,
    /// The soft cap of logits.
    pub logit_soft_cap: Option<f32>,
    /// How embeddings of tokens become the embedding of a text; the mean if the file does not say it.
    pub pooling: Pooling,
}

/// The largest dimension: larger than in any model, and so small that the product of a few
/// dimensions cannot overflow.
const DIMENSION_MAX: usize = 1 << 20;
/// The largest head: larger than in any model. Some buffers of a head are arrays of this length.
pub const HEAD_DIM_MAX: usize = 1 << 10;
/// The largest number of query heads that share a KV head.
const GROUP_MAX: usize = 1 << 10;
const VOCABULARY_MAX: u64 = 1 << 23;
const EXPERTS_MAX: usize = 1 << 12;
const LAYERS_MAX: usize = 1 << 12;
const LAYER_INPUT: &str = "embedding_length_per_layer_input";
/// The architecture of files with only a vision or audio part.
const MEDIA: &str = "clip";
const EPSILON: &str = "attention.layer_norm_epsilon";
const RMS_EPSILON: &str = "attention.layer_norm_rms_epsilon";

impl Config {
    /// Reads and checks the metadata.
    ///
    /// # Errors
    /// If a key is missing or its value is not supported.
    pub fn from_metadata(gguf: &Gguf<'_>) -> Result<Self, Error> {
        let metadata = gguf.metadata();
        let name = metadata.string("general.architecture")?;
        let name = Metadata::require("general.architecture", name)?;
        if name == Architecture::ASSISTANT.name {
            return Err(Error::Assistant);
        }
        if name == MEDIA {
            return Err(Error::MediaPart);
        }
        let mut architecture =
            Architecture::ALL.into_iter().find(|a| a.name == name).ok_or_else(|| {
                Error::Architecture { found: name.into(), nearest: Architecture::nearest(name) }
            })?;
        let keys = Keys::new(metadata, architecture.name);
        if architecture.rms_by_epsilon && keys.positive(RMS_EPSILON)?.is_some() {
            architecture.norm = Norm::Rms;
        }
        if architecture.sections_pair_halves && layers::has_sections(&keys)? {
            architecture.pairing = Pairing::Halves;
        }
        let embedding = keys.size("embedding_length", DIMENSION_MAX)?;
        let causal = metadata.bool(&keys.name("attention.causal"))?.unwrap_or(true);
        let causal = causal && architecture.causal;
        let layers = layers::read(&keys, &architecture, embedding, causal)?;
        let config = Self::with_layers(gguf, &keys, architecture, causal, layers)?;
        unread::check(&keys, &config)?;
        Ok(config)
    }

    /// Reads and checks the metadata that do not describe layers.
    fn with_layers(
        gguf: &Gguf<'_>,
        keys: &Keys<'_, '_>,
        architecture: Architecture,
        causal: bool,
        Layers { used: layers, predictor, in_file: layers_in_file }: Layers,
    ) -> Result<Self, Error> {
        let embedding = keys.size("embedding_length", DIMENSION_MAX)?;
        let input = format!("blk.{}.{PREDICTOR_INPUT}.weight", layers.len());
        let predictor = predictor.filter(|_| causal && gguf.tensor(&input).is_some());
        let Some(tokens) = gguf.tensor(EMBEDDINGS) else {
            return Err(Error::MissingTensor(EMBEDDINGS.into()));
        };
        if tokens.rows() > VOCABULARY_MAX {
            return Err(Error::Vocabulary { rows: tokens.rows(), max: VOCABULARY_MAX });
        }

        let layer_input = match keys.number(LAYER_INPUT)? {
            None | Some(0) => 0,
            Some(_) => keys.size(LAYER_INPUT, DIMENSION_MAX / layers.len())?,
        };
        let alone = architecture.recurrent == Recurrent::Mamba2Alone;
        let scales = scales(keys, &architecture, embedding, layers.len())?;
        let soft_cap = |index: usize, key| match architecture.soft_caps[index] {
            Some(default) => keys.positive_or(key, default),
            None => Ok(None),
        };
        let epsilon = keys.epsilon(match architecture.norm {
            Norm::Layer => EPSILON,
            // Files of Nemotron-H may have the other key.
            Norm::Rms if alone && keys.metadata.get(&keys.name(RMS_EPSILON)).is_none() => EPSILON,
            Norm::Rms => RMS_EPSILON,
        })?;

        Ok(Config {
            architecture,
            causal,
            context_train: keys.size("context_length", CONTEXT_MAX)?,
            layers,
            predictor,
            layers_in_file,
            embedding,
            layer_input,
            vocabulary: tokens.rows() as usize,
            epsilon,
            post_epsilon: architecture.post_epsilon.unwrap_or(epsilon),
            embedding_scale: scales.embedding,
            residual_scale: scales.residual,
            logit_scale: scales.logits,
            attention_soft_cap: soft_cap(0, "attn_logit_softcapping")?,
            logit_soft_cap: soft_cap(1, "final_logit_softcapping")?,
            pooling: pooling(keys)?,
        })
    }

    /// Checks that the model computes logits.
    ///
    /// # Errors
    /// If it is an encoder.
    pub fn require_logits(&self) -> Result<(), Error> {
        match self.causal {
            true => Ok(()),
            false => Err(Error::Encoder { architecture: self.architecture.name }),
        }
    }

    /// Returns the attention of all layers that attend.
    pub fn attention(&self) -> impl Iterator<Item = &Attention> {
        self.layers.iter().filter_map(|layer| layer.attention.as_ref())
    }

    /// Returns all layers, the predictor included.
    pub(crate) fn with_predictor(&self) -> impl Iterator<Item = &Layer> {
        self.layers.iter().chain(&self.predictor)
    }

    /// Returns the maximum of a dimension of attention over all layers, the predictor included.
    pub fn attention_max(&self, dimension: impl Fn(&Attention) -> usize) -> usize {
        let attention = self.with_predictor().filter_map(|layer| layer.attention.as_ref());
        attention.map(dimension).max().unwrap_or(0)
    }

    /// Returns the bytes of the states of all recurrent layers, at one length of a sequence.
    pub(crate) fn state_bytes(&self) -> usize {
        let floats = self.recurrences().flat_map(Recurrence::state_floats);
        floats.sum::<usize>() * size_of::<f32>()
    }

    /// Returns whether a tensor belongs to a layer that predicts further tokens.
    pub(crate) fn skips(&self, tensor: &str) -> bool {
        let layer = tensor.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let layer = layer.and_then(|(layer, _)| layer.parse::<usize>().ok());
        layer.is_some_and(|layer| (self.layers.len()..self.layers_in_file).contains(&layer))
    }

    /// Returns the recurrence of all recurrent layers.
    pub fn recurrences(&self) -> impl Iterator<Item = Recurrence> {
        self.layers.iter().filter_map(|layer| layer.recurrence)
    }

    /// Returns the maximum elements of the inner activations of a feed-forward network.
    pub fn feed_forward(&self) -> usize {
        self.with_predictor().map(|layer| layer.feed_forward.width()).max().unwrap_or(0)
    }

    /// Returns the dimensions of mixtures of experts, if layers have them.
    pub fn mixture(&self) -> Option<Mixture> {
        self.with_predictor().find_map(|layer| layer.feed_forward.mixture())
    }

    /// Returns the largest sliding window of the layers that rotate by `rotation`, if one has a
    /// window.
    pub fn window(&self, rotation: Rotation) -> Option<usize> {
        self.attention()
            .filter(|layer| layer.rotation == rotation)
            .filter_map(|layer| layer.window)
            .max()
    }

    /// Returns the dimensions of a head that rotate in the layers that rotate by `rotation`; `None` if
    /// there are none.
    pub fn n_rot(&self, rotation: Rotation) -> Option<usize> {
        let layers = self.attention().filter(|layer| layer.rotation == rotation);
        layers.map(|layer| layer.n_rot).max()
    }
}

/// `LLAMA_POOLING_TYPE_UNSPECIFIED`, as llama.cpp saves it.
const UNSPECIFIED: i128 = u32::MAX as i128;

/// Reads how embeddings of tokens become the embedding of a text.
fn pooling(keys: &Keys<'_, '_>) -> Result<Pooling, Error> {
    let key = keys.name("pooling_type");
    // -1, as a signed or an unsigned number: files that llama.cpp saved do not say it either.
    let given = |value: &Value<'_>| !matches!(value.integer(), Some(-1 | UNSPECIFIED));
    let Some(value) = keys.metadata.get(&key).filter(given) else { return Ok(Pooling::Mean) };
    value.integer().and_then(Pooling::numbered).ok_or_else(|| Error::Value {
        key,
        value: value.to_string(),
        reason: "must be 0 (none), 1 (mean), 2 (cls), 3 (last) or 4 (rank)".into(),
    })
}

/// The factors of embeddings, of the outputs of branches and of logits.
struct Factors {
    embedding: f32,
    residual: f32,
    logits: f32,
}

/// Reads the factors of a model with `layers` layers.
fn scales(
    keys: &Keys<'_, '_>,
    architecture: &Architecture,
    embedding: usize,
    layers: usize,
) -> Result<Factors, Error> {
    let none = Factors { embedding: 1.0, residual: 1.0, logits: 1.0 };
    let length = embedding as f32;
    let by_keys = |defaults: [f32; 3]| {
        let names = ["embedding_scale", "residual_scale", "logit_scale"];
        let [embedding, residual, divisor] = [0, 1, 2].map(|i| {
            // 0 means none.
            Ok::<f32, Error>(keys.positive_or(names[i], defaults[i])?.unwrap_or(1.0))
        });
        Ok(Factors { embedding: embedding?, residual: residual?, logits: 1.0 / divisor? })
    };
    match architecture.scales {
        Scales::None => Ok(none),
        Scales::Embeddings => Ok(Factors { embedding: length.sqrt(), ..none }),
        Scales::Keys => {
            keys.required("logit_scale")?;
            by_keys([1.0; 3])
        }
        // As llama.cpp sets them for the first files of MiniCPM, which have no keys.
        Scales::KeysOrDefaults => by_keys([12.0, 1.4 / (layers as f32).sqrt(), 256.0 / length]),
        Scales::Logits => Ok(Factors { logits: keys.required("logit_scale")?, ..none }),
    }
}
