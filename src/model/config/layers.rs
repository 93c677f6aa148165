//! The configuration of each layer, as data.

use super::{DIMENSION_MAX, EXPERTS_MAX, GROUP_MAX, HEAD_DIM_MAX, LAYERS_MAX, keys::Keys};
use crate::{
    gguf::Value,
    model::{
        Architecture, Error,
        architecture::{Experts, Windows},
    },
};

/// The dimensions and options of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Attention.
    pub attention: Attention,
    /// The feed-forward network.
    pub feed_forward: FeedForward,
}

/// The dimensions and options of a layer's attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// The number of query heads.
    pub heads: usize,
    /// The number of KV heads, each shared by `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// The elements of a head.
    pub head_dim: usize,
    /// The first elements of a head, which rotate; the rest do not.
    pub n_rot: usize,
    /// The positions that a token attends to, itself included; `None` for all.
    pub window: Option<usize>,
    /// The frequencies by which queries and keys rotate.
    pub rotation: Rotation,
}

/// The frequencies by which a layer's queries and keys rotate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Rotation by the frequencies of the model, on which RoPE methods act.
    Global,
    /// Rotation by the frequencies of layers with a sliding window, which no RoPE method changes.
    Window,
    /// None: they do not rotate (NoPE).
    None,
}

/// The feed-forward network of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedForward {
    /// One network, with the elements of its inner activations.
    Dense(usize),
    /// A mixture of experts.
    Experts(Mixture),
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

impl Attention {
    /// Returns the number of query heads that share a KV head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Returns the elements of all query heads.
    pub fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }
}

impl FeedForward {
    /// Returns the elements of the inner activations of a network.
    pub fn width(self) -> usize {
        match self {
            FeedForward::Dense(width) => width,
            FeedForward::Experts(mixture) => mixture.feed_forward,
        }
    }

    /// Returns the dimensions of the mixture of experts, if the layer has one.
    pub fn mixture(self) -> Option<Mixture> {
        match self {
            FeedForward::Dense(_) => None,
            FeedForward::Experts(mixture) => Some(mixture),
        }
    }
}

/// Reads the configuration of all layers.
pub fn read(
    keys: &Keys<'_, '_>,
    architecture: &Architecture,
    embedding: usize,
) -> Result<Vec<Layer>, Error> {
    let count = keys.size("block_count", LAYERS_MAX)?;
    let attention = attention(keys, count, embedding)?;
    let windows = match &architecture.windows {
        Some(windows) => self::windows(keys, windows, count)?,
        None => vec![None; count],
    };
    let own_rope = architecture.windows.is_some_and(|windows| windows.own_rope);
    let unrotated =
        |layer: usize| architecture.unrotated.is_some_and(|period| layer % period + 1 == period);
    let layers = windows.into_iter().zip(feed_forward(keys, architecture, count)?).enumerate();
    let layer = |(index, (window, feed_forward)): (usize, (Option<usize>, _))| {
        let rotation = match window {
            _ if unrotated(index) => Rotation::None,
            Some(_) if own_rope => Rotation::Window,
            _ => Rotation::Global,
        };
        Layer { attention: Attention { window, rotation, ..attention }, feed_forward }
    };
    Ok(layers.map(layer).collect())
}

/// Reads the dimensions of attention, which the KV cache and its kernels require to be the same in
/// all `layers`.
fn attention(keys: &Keys<'_, '_>, layers: usize, embedding: usize) -> Result<Attention, Error> {
    let heads = keys.uniform("attention.head_count", layers, DIMENSION_MAX, None)?;
    let kv_heads = keys.uniform("attention.head_count_kv", layers, heads, Some(heads))?;
    let head_dim = keys.size_or("attention.key_length", HEAD_DIM_MAX, embedding / heads)?;
    let invalid = |key: &str, value: usize, reason: String| {
        Err(Error::Value { key: keys.name(key), value: value.to_string(), reason })
    };
    if !(1..=HEAD_DIM_MAX).contains(&head_dim) || heads * head_dim > DIMENSION_MAX {
        let reason = format!(
            "the length of a head is {head_dim}: it must be from 1 to {HEAD_DIM_MAX}, and all heads \
             together at most {DIMENSION_MAX}"
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
    let rotation = Rotation::Global;
    Ok(Attention { heads, kv_heads, head_dim, n_rot, window: None, rotation })
}

/// Reads the sliding window of each layer. The key of the pattern has a boolean for each layer, or
/// the period of layers without a window.
fn windows(
    keys: &Keys<'_, '_>,
    windows: &Windows,
    layers: usize,
) -> Result<Vec<Option<usize>>, Error> {
    const PATTERN: &str = "attention.sliding_window_pattern";
    let window = keys.number("attention.sliding_window")?.or(windows.default);
    let window = window.filter(|&window| window > 0);
    let name = keys.name(PATTERN);
    let has_window = match (windows.period, keys.metadata.get(&name)) {
        (_, Some(Value::Array(_))) => {
            let pattern = keys.metadata.integers(&name)?.unwrap_or_default();
            keys.check_len(PATTERN, pattern.len(), layers)?;
            pattern.into_iter().map(|has| has != 0).collect()
        }
        (None, _) => vec![true; layers],
        (Some(period), _) => {
            let period = keys.size_or(PATTERN, LAYERS_MAX, period)?;
            (0..layers).map(|layer| layer % period + 1 < period).collect::<Vec<_>>()
        }
    };
    Ok(has_window.into_iter().map(|has| window.filter(|_| has)).collect())
}

/// Reads the dimensions of each layer's feed-forward network.
fn feed_forward(
    keys: &Keys<'_, '_>,
    architecture: &Architecture,
    layers: usize,
) -> Result<Vec<FeedForward>, Error> {
    // If all feed-forward networks are experts, the file need not contain feed_forward_length.
    if let Some(mixture) = mixture(keys, architecture, layers)? {
        return Ok(vec![FeedForward::Experts(mixture); layers]);
    }
    let widths = keys.by_layer("feed_forward_length", layers, DIMENSION_MAX, None)?;
    Ok(widths.into_iter().map(FeedForward::Dense).collect())
}

/// Reads the dimensions of a mixture of experts, if the model has one.
fn mixture(
    keys: &Keys<'_, '_>,
    architecture: &Architecture,
    layers: usize,
) -> Result<Option<Mixture>, Error> {
    let count = keys.number("expert_count")?.unwrap_or(0);
    match (architecture.experts, count) {
        (Experts::Always, _) | (Experts::Sometimes, 1..) => {
            let count = keys.size("expert_count", EXPERTS_MAX)?;
            let used = keys.size("expert_used_count", count)?;
            let feed_forward = match keys.number("expert_feed_forward_length")? {
                Some(_) => keys.size("expert_feed_forward_length", DIMENSION_MAX)?,
                None => keys.uniform("feed_forward_length", layers, DIMENSION_MAX, None)?,
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
