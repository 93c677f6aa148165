//! A model's configuration, read from its metadata.

mod assistant;
mod attention;
mod feed_forward;
mod keys;
mod latent;
mod layers;
mod positions;
mod recurrence;
mod routing;
mod scales;
mod unread;

pub(super) use self::assistant::AssistantConfig;
pub(super) use self::feed_forward::softplus;
pub use self::{
    attention::{Attention, Rotation},
    feed_forward::{Experts, FeedForward, Function, Inner, Mixture, NetworkFamily},
    latent::Latent,
    layers::Layer,
    positions::{Global, Pairing, PositionFamily, Unrotated, Windows},
    recurrence::{Convolution, Recurrence, Recurrent, Scan},
    routing::{Gating, Routing, RoutingKeys},
    scales::{Factors, ScaleFamily, Scales, ScoreFactor},
};
use self::{keys::Keys, layers::Layers};
use super::{Architecture, EMBEDDINGS, Error, PREDICTOR_INPUT, Pooling, weights::NormKind};
use crate::{
    gguf::{Gguf, Metadata, Value},
    rope::CONTEXT_MAX,
};

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
    /// The factors and limits of activations, scores and logits.
    pub scales: Scales,
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
        let mut architecture = Architecture::named(name).ok_or_else(|| Error::Architecture {
            found: name.into(),
            nearest: Architecture::nearest(name),
        })?;
        let keys = Keys::new(metadata, architecture.name);
        let Architecture { norms, positions, .. } = &mut architecture;
        if norms.rms_by_epsilon && keys.positive(RMS_EPSILON)?.is_some() {
            norms.kind = NormKind::Rms;
        }
        if positions.sections_pair_halves && positions::has_sections(&keys)? {
            positions.pairing = Pairing::Halves;
        }
        let embedding = keys.size("embedding_length", DIMENSION_MAX)?;
        let causal = metadata.bool(&keys.name("attention.causal"))?.unwrap_or(true);
        let causal = causal && architecture.causal;
        let layers = layers::read(&keys, &architecture, embedding, causal)?;
        let config = Self::with_layers(gguf, &keys, architecture, causal, layers)?;
        unread::check(&keys, &config)?;
        positions::check_base(&keys, &config.architecture)?;
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
        let scales = scales::read(keys, &architecture, embedding, layers.len())?;
        let epsilon = keys.epsilon(match architecture.norms.kind {
            NormKind::Layer => EPSILON,
            // Files of Nemotron-H may have the other key.
            NormKind::Rms if alone && keys.metadata.get(&keys.name(RMS_EPSILON)).is_none() => {
                EPSILON
            }
            NormKind::Rms => RMS_EPSILON,
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
            scales,
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
