//! The configuration of the attention of each layer.

use super::{
    DIMENSION_MAX, GROUP_MAX, HEAD_DIM_MAX, Latent, Recurrence, feed_forward::NETWORK, keys::Keys,
    positions, recurrence::Recurrent,
};
use crate::model::{Architecture, Error};

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
    pub(super) fn of_encoder(self) -> Self {
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
pub(super) const ROTATED: &str = "rope.dimension_count";

/// Reads the dimensions of each layer's attention.
pub fn read(
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
    positions::check_sections(keys)?;
    let scale = keys.positive("attention.scale")?;
    let n_rot = keys.size_or(ROTATED, HEAD_DIM_MAX, head_dims[0])?;
    let window_n_rot = of_windows(keys, ROTATED, HEAD_DIM_MAX)?.unwrap_or(n_rot);
    check_pairs(keys, [("", n_rot), ("_swa", window_n_rot)])?;
    let window_dims = [
        of_windows(keys, KEY_LENGTH, HEAD_DIM_MAX)?,
        of_windows(keys, VALUE_LENGTH, DIMENSION_MAX)?,
    ];
    let own_rope = architecture.positions.windows.is_some_and(|windows| windows.own_rope);
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
        let by_family = architecture.scales.scores.of(layers, embedding, heads, head_dim);
        Ok(Some(Attention {
            heads,
            kv_heads,
            head_dim,
            n_rot,
            window,
            ahead: 0,
            rotation,
            scale: scale.unwrap_or(by_family),
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
