//! The configuration of each layer, as data.

use super::{
    DIMENSION_MAX, FeedForward, Function, GROUP_MAX, HEAD_DIM_MAX, LAYERS_MAX, Latent, Recurrence,
    feed_forward::{self, DENSE, NETWORK},
    keys::Keys,
    latent, recurrence,
};
use crate::{
    gguf::Metadata,
    model::{
        Architecture, Error,
        architecture::{Global, Recurrent, Scores, Unrotated, Windows},
    },
};

/// The dimensions and options of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layer {
    /// Attention, if the layer attends.
    pub attention: Option<Attention>,
    /// The recurrence, if the layer is recurrent.
    pub recurrence: Option<Recurrence>,
    /// The feed-forward network.
    pub feed_forward: FeedForward,
    /// The function of the network's inner activations.
    pub function: Function,
}

/// The dimensions and options of a layer's attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// The number of query heads.
    pub heads: usize,
    /// The number of KV heads, each shared by `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// The elements of a head in the KV cache.
    pub head_dim: usize,
    /// The first elements of a head, which rotate; the rest do not.
    pub n_rot: usize,
    /// The positions up to a token that it attends to, itself included; `None` for all.
    pub window: Option<usize>,
    /// The positions after a token that it attends to: 0 in a causal model, and `usize::MAX` for all.
    pub ahead: usize,
    /// The frequencies of the rotation of queries and keys.
    pub rotation: Rotation,
    /// The factor of attention scores.
    pub scale: f32,
    /// The earlier layer with the keys and values to attend to; `None` if the layer has its own.
    pub shared_with: Option<usize>,
    /// The dimensions of heads, if their keys and values are products of a latent. The cache then has
    /// one KV head. Its key is the part that rotates, followed by the latent; its value is the latent.
    pub latent: Option<Latent>,
}

/// The frequencies of the rotation of a layer's queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Rotation by the frequencies of the model, on which RoPE methods act.
    Global,
    /// Rotation by the frequencies of layers with a sliding window, which no RoPE method changes.
    Window,
    /// None: they do not rotate (NoPE).
    None,
}

impl Attention {
    /// Returns this attention to tokens on both sides. A window has its token in the middle.
    fn of_encoder(self) -> Self {
        match self.window {
            Some(window) => Attention { window: Some(window / 2 + 1), ahead: window / 2, ..self },
            None => Attention { ahead: usize::MAX, ..self },
        }
    }

    /// Returns the number of query heads that share a KV head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// Returns the elements of all query heads.
    pub fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Returns the elements of a row that holds values.
    pub(crate) fn value_dim(&self) -> usize {
        if self.latent.is_some() { self.head_dim - self.n_rot } else { self.head_dim }
    }

    /// Returns the elements of the outputs of all heads.
    pub(crate) fn output_width(&self) -> usize {
        self.heads * self.latent.map_or(self.head_dim, |latent| latent.value_dim)
    }
}

pub(super) const HEADS: &str = "attention.head_count";
pub(super) const KV_HEADS: &str = "attention.head_count_kv";
const KEY_LENGTH: &str = "attention.key_length";
const VALUE_LENGTH: &str = "attention.value_length";
const SHARED: &str = "attention.shared_kv_layers";
const PREDICTING: &str = "nextn_predict_layers";
pub(super) const ROTATED: &str = "rope.dimension_count";
/// Whether each layer rotates queries and keys.
const ROTATES: &str = "attention.rope_pattern";

/// The layers of a file.
pub struct Layers {
    /// The layers that logits are computed with.
    pub used: Vec<Layer>,
    /// The layer that predicts the token after the next one.
    pub predictor: Option<Layer>,
    /// The number of layers in the file. The last ones may predict further tokens.
    pub in_file: usize,
}

/// Reads the configuration of all layers.
pub fn read(
    keys: &Keys<'_, '_>,
    architecture: &Architecture,
    embedding: usize,
    causal: bool,
) -> Result<Layers, Error> {
    let count = count(keys)?;
    let predicting = keys.number(PREDICTING)?.unwrap_or(0);
    if predicting >= count {
        let reason = format!("must be less than the {count} layers");
        let (key, value) = (keys.name(PREDICTING), predicting.to_string());
        return Err(Error::Value { key, value, reason });
    }
    let all = all(keys, architecture, embedding, causal, predicting)?;
    let (used, last) = all.split_at(count - predicting);
    let mut used = used.to_vec();
    if used.iter().all(|layer| layer.attention.is_none()) {
        let reason = "at least one layer must have attention".into();
        return Err(Error::Value { key: keys.name(KV_HEADS), value: "0 in all".into(), reason });
    }
    share(keys, &mut used)?;
    let predictor = match last {
        [layer] if architecture.predictor => Some(*layer),
        _ => None,
    };
    Ok(Layers { used, predictor, in_file: count })
}

/// Reads the configuration of all layers of an assistant. They have no keys and values.
pub fn of_assistant(keys: &Keys<'_, '_>, embedding: usize) -> Result<Layers, Error> {
    let used = all(keys, &Architecture::ASSISTANT, embedding, true, 0)?;
    Ok(Layers { in_file: used.len(), used, predictor: None })
}

/// Reads the number of layers in the file.
fn count(keys: &Keys<'_, '_>) -> Result<usize, Error> {
    keys.size("block_count", LAYERS_MAX)
}

/// Reads the layers in the file. The last ones predict further tokens.
fn all(
    keys: &Keys<'_, '_>,
    architecture: &Architecture,
    embedding: usize,
    causal: bool,
    predicting: usize,
) -> Result<Vec<Layer>, Error> {
    let count = count(keys)?;
    let mut recurrences = recurrence::read(keys, architecture, count, embedding)?;
    if architecture.predictor {
        recurrences[count - predicting..].fill(None);
    }
    let windows = match &architecture.windows {
        Some(windows) if windows.only.is_none_or(|only| only == count) => {
            self::windows(keys, windows, count, predicting)?
        }
        _ => vec![None; count],
    };
    let attention = match architecture.latent {
        true => latent::read(keys, count)?,
        false => {
            let unrotated = unrotated(keys, architecture, &windows, predicting)?;
            attention(keys, architecture, &recurrences, &windows, &unrotated, embedding)?
        }
    };
    let functions = feed_forward::functions(keys, architecture, count)?;
    let feed_forward = feed_forward::read(keys, architecture, count)?;
    let layer = |index: usize| Layer {
        attention: attention[index]
            .map(|attention| if causal { attention } else { attention.of_encoder() }),
        recurrence: recurrences[index],
        feed_forward: feed_forward[index],
        function: functions[index],
    };
    Ok((0..count).map(layer).collect())
}

/// Lets the last layers, if the model has any such, attend to the keys and values of an earlier
/// layer: the last one before them with the same heads, window and rotation.
fn share(keys: &Keys<'_, '_>, layers: &mut [Layer]) -> Result<(), Error> {
    let (shared, count) = (keys.number(SHARED)?.unwrap_or(0), layers.len());
    let invalid = |reason: String| {
        Err(Error::Value { key: keys.name(SHARED), value: shared.to_string(), reason })
    };
    if shared >= count {
        return invalid(format!("must be less than the {count} layers"));
    }
    let (own, shared) = layers.split_at_mut(count - shared);
    let like = |Attention { kv_heads, head_dim, window, rotation, .. }: Attention| {
        (kv_heads, head_dim, window, rotation)
    };
    for (index, Layer { attention, .. }) in shared.iter_mut().enumerate() {
        let Some(attention) = attention else { continue };
        let alike = |layer: &Layer| layer.attention.map(like) == Some(like(*attention));
        let Some(source) = own.iter().rposition(alike) else {
            let (index, own) = (own.len() + index, own.len());
            return invalid(format!(
                "layer {index} has other heads or another window than the first {own} layers"
            ));
        };
        attention.shared_with = Some(source);
    }
    Ok(())
}

/// Returns whether each layer has no rotation of queries and keys.
fn unrotated(
    keys: &Keys<'_, '_>,
    architecture: &Architecture,
    windows: &[Option<usize>],
    predicting: usize,
) -> Result<Vec<bool>, Error> {
    let layers = windows.len();
    Ok(match architecture.unrotated {
        Unrotated::Never => vec![false; layers],
        Unrotated::Always => vec![true; layers],
        Unrotated::Period(period) => {
            (0..layers).map(|layer| layer % period + 1 == period).collect()
        }
        Unrotated::Global => {
            let any = windows.iter().any(Option::is_some);
            let rest = keys.number(DENSE)?.unwrap_or(0)..layers - predicting;
            (0..layers)
                .map(|layer| any && windows[layer].is_none() && rest.contains(&layer))
                .collect()
        }
        Unrotated::Unless => {
            let rotates = keys.metadata.bool(&keys.name("rope.scaling.finetuned"))?;
            vec![rotates == Some(false); layers]
        }
        Unrotated::Listed => {
            let rotates = keys.flags(ROTATES, layers)?;
            // One value stands for all layers.
            let one = keys.flag(ROTATES);
            let all = rotates.unwrap_or_else(|| vec![one.unwrap_or(true); layers]);
            all.into_iter().map(|rotates| !rotates).collect()
        }
    })
}

/// Reads the dimensions of each layer's attention.
fn attention(
    keys: &Keys<'_, '_>,
    architecture: &Architecture,
    recurrences: &[Option<Recurrence>],
    windows: &[Option<usize>],
    unrotated: &[bool],
    embedding: usize,
) -> Result<Vec<Option<Attention>>, Error> {
    let layers = recurrences.len();
    let attends = attends(keys, architecture, recurrences)?;
    let [heads, kv_heads] = heads(keys, &attends)?;
    let default = heads.iter().find(|heads| **heads > 0).map(|heads| embedding / heads);
    let head_dims = keys.by_layer(KEY_LENGTH, layers, HEAD_DIM_MAX, default)?;
    let value_dims = keys.by_layer_or(VALUE_LENGTH, DIMENSION_MAX, &head_dims)?;
    check_sections(keys)?;
    let scale = keys.positive("attention.scale")?;
    let n_rot = keys.size_or(ROTATED, HEAD_DIM_MAX, head_dims[0])?;
    let window_n_rot = of_windows(keys, ROTATED, HEAD_DIM_MAX)?.unwrap_or(n_rot);
    check_pairs(keys, [("", n_rot), ("_swa", window_n_rot)])?;
    let window_dims = [
        of_windows(keys, KEY_LENGTH, HEAD_DIM_MAX)?,
        of_windows(keys, VALUE_LENGTH, DIMENSION_MAX)?,
    ];
    let own_rope = architecture.windows.is_some_and(|windows| windows.own_rope);
    let layer = |layer: usize| {
        if !attends[layer] {
            return Ok(None);
        }
        let (heads, kv_heads, window) = (heads[layer], kv_heads[layer], windows[layer]);
        let own_dims = window_dims.map(|dim| dim.filter(|_| window.is_some()));
        let head_dim = own_dims[0].unwrap_or(head_dims[layer]);
        let value_dim = own_dims[1].unwrap_or(value_dims[layer]);
        let (rotation, n_rot) = match window {
            _ if unrotated[layer] => (Rotation::None, n_rot),
            Some(_) if own_rope => (Rotation::Window, window_n_rot),
            _ => (Rotation::Global, n_rot),
        };
        check_heads(keys, layer, [heads, kv_heads, head_dim, value_dim, n_rot])?;
        let score_len = match architecture.scores {
            Scores::ByEmbedding(count) if count == layers && heads <= embedding => {
                embedding / heads
            }
            Scores::ByHead | Scores::ByEmbedding(_) => head_dim,
            Scores::One => 1,
        };
        Ok(Some(Attention {
            heads,
            kv_heads,
            head_dim,
            n_rot,
            window,
            ahead: 0,
            rotation,
            scale: scale.unwrap_or(1.0 / (score_len as f32).sqrt()),
            shared_with: None,
            latent: None,
        }))
    };
    (0..layers).map(layer).collect()
}

/// Returns whether each layer attends.
fn attends(
    keys: &Keys<'_, '_>,
    architecture: &Architecture,
    recurrences: &[Option<Recurrence>],
) -> Result<Vec<bool>, Error> {
    let layers = recurrences.len();
    let mut attends: Vec<bool> = match architecture.recurrent {
        Recurrent::Mamba2Beside => vec![true; layers],
        _ => recurrences.iter().map(Option::is_none).collect(),
    };
    if architecture.recurrent == Recurrent::Mamba2Alone
        && let Some(widths) = keys.array(NETWORK, layers)?
    {
        attends.iter_mut().zip(widths).for_each(|(attends, width)| *attends &= width == 0);
    }
    Ok(attends)
}

/// Reads the numbers of query heads and of KV heads of each layer. They may be 0 if the layer does not
/// attend.
fn heads(keys: &Keys<'_, '_>, attends: &[bool]) -> Result<[Vec<usize>; 2], Error> {
    let layers = attends.len();
    let least = |layer: usize| usize::from(attends[layer]);
    let heads = keys.by_layer_from(&least, HEADS, layers, DIMENSION_MAX, None)?;
    let kv_heads = match keys.metadata.get(&keys.name(KV_HEADS)) {
        Some(_) => keys.by_layer_from(&least, KV_HEADS, layers, DIMENSION_MAX, None)?,
        None => heads.clone(),
    };
    Ok([heads, kv_heads])
}

/// Reads a number of the layers with a sliding window from the key `key_swa`, if they have their own.
fn of_windows(keys: &Keys<'_, '_>, key: &str, max: usize) -> Result<Option<usize>, Error> {
    let key = format!("{key}_swa");
    let has = keys.metadata.get(&keys.name(&key)).is_some();
    has.then(|| keys.size(&key, max)).transpose()
}

/// Checks that the elements of a head that rotate are pairs. Heads of layers that do not rotate have the
/// same order in the file.
fn check_pairs(keys: &Keys<'_, '_>, n_rot: [(&str, usize); 2]) -> Result<(), Error> {
    match n_rot.into_iter().find(|(_, n_rot)| !n_rot.is_multiple_of(2)) {
        None => Ok(()),
        Some((suffix, n_rot)) => Err(Error::Value {
            key: keys.name(&format!("{ROTATED}{suffix}")),
            value: n_rot.to_string(),
            reason: "must be even, as pairs rotate; by default it is the head size".into(),
        }),
    }
}

/// Checks the numbers of query and KV heads of a layer, and the lengths of keys and values and of
/// the part that rotates.
fn check_heads(
    keys: &Keys<'_, '_>,
    layer: usize,
    [heads, kv_heads, head_dim, value_dim, n_rot]: [usize; 5],
) -> Result<(), Error> {
    let invalid = |key: &str, value: usize, reason: String| {
        Err(Error::Value { key: keys.name_in(key, layer), value: value.to_string(), reason })
    };
    if !(1..=HEAD_DIM_MAX).contains(&head_dim) || heads * head_dim > DIMENSION_MAX {
        let reason = format!(
            "the length of a head is {head_dim}: it must be from 1 to {HEAD_DIM_MAX}, and all heads \
             together at most {DIMENSION_MAX}"
        );
        return invalid(HEADS, heads, reason);
    }
    if !heads.is_multiple_of(kv_heads) {
        let reason = format!("must divide {HEADS}, which is {heads}");
        return invalid(KV_HEADS, kv_heads, reason);
    }
    if heads / kv_heads > GROUP_MAX {
        let least = heads.div_ceil(GROUP_MAX);
        let reason = format!("must be at least {least} for {heads} heads");
        return invalid(KV_HEADS, kv_heads, reason);
    }
    if value_dim != head_dim {
        let reason = format!("must equal the length of keys, which is {head_dim}");
        return invalid(VALUE_LENGTH, value_dim, reason);
    }
    if n_rot > head_dim {
        let reason = format!("must be at most the length of a head, which is {head_dim}");
        return invalid(ROTATED, n_rot, reason);
    }
    Ok(())
}

const SECTIONS: &str = "rope.dimension_sections";

/// Returns whether pairs rotate by several kinds of positions of an image (M-RoPE). llama.cpp needs
/// pairs of the first two kinds.
pub(super) fn has_sections(keys: &Keys<'_, '_>) -> Result<bool, Error> {
    let sections = keys.metadata.integers(&keys.name(SECTIONS))?.unwrap_or_default();
    Ok(sections.len() > 1 && sections[..2].iter().all(|pairs| *pairs > 0))
}

/// Checks the numbers of pairs that rotate by each kind of position of an image (M-RoPE). Tokens of
/// text have the same position of the first three kinds, and 0 of the fourth, so that pairs of the
/// first three rotate as in any other model.
fn check_sections(keys: &Keys<'_, '_>) -> Result<(), Error> {
    let key = keys.name(SECTIONS);
    match keys.metadata.integers(&key)?.unwrap_or_default().get(3) {
        None | Some(0) => Ok(()),
        Some(pairs) => {
            let reason = "the fourth section must be 0: only text is supported".into();
            Err(Error::Value { key, value: format!("an array with {pairs} at index 3"), reason })
        }
    }
}

/// Reads the sliding window of each layer. The key of the pattern has a boolean for each layer, or
/// the period of layers without a window. The `predicting` last layers have none unless an array says
/// so, which may leave them out.
fn windows(
    keys: &Keys<'_, '_>,
    windows: &Windows,
    layers: usize,
    predicting: usize,
) -> Result<Vec<Option<usize>>, Error> {
    const PATTERN: &str = "attention.sliding_window_pattern";
    let window = keys.number("attention.sliding_window")?.or(windows.default);
    let window = window.filter(|&window| window > 0);
    let used = layers - predicting;
    let short = predicting > 0 && keys.array_len(PATTERN) == Some(used);
    let listed = keys.flags(PATTERN, if short { used } else { layers })?;
    let mut has_window = match (listed, windows.global) {
        (Some(listed), _) => listed,
        (None, Global::None) => vec![true; used],
        (None, Global::First(period)) => {
            let period = keys.size_or(PATTERN, LAYERS_MAX, period)?;
            (0..used).map(|layer| layer % period > 0).collect()
        }
        (None, Global::Last(period)) => {
            let period = keys.size_or(PATTERN, LAYERS_MAX, period)?;
            (0..used).map(|layer| layer % period + 1 < period).collect()
        }
        (None, Global::Listed) => Metadata::require(&keys.name(PATTERN), None)?,
    };
    has_window.resize(layers, false);
    Ok(has_window.into_iter().map(|has| window.filter(|_| has)).collect())
}
