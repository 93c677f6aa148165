//! The configuration of each layer, as data.

use super::{
    Attention, FeedForward, Function, LAYERS_MAX, Recurrence,
    attention::{self, KV_HEADS},
    feed_forward,
    keys::Keys,
    latent, positions, recurrence,
};
use crate::model::{Architecture, Error};

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

const SHARED: &str = "attention.shared_kv_layers";
const PREDICTING: &str = "nextn_predict_layers";

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
    let windows = positions::windows(keys, architecture, count, predicting)?;
    let attention = match architecture.latent {
        true => latent::read(keys, count)?,
        false => {
            let unrotated = positions::unrotated(keys, architecture, &windows, predicting)?;
            attention::read(keys, architecture, &recurrences, &windows, &unrotated, embedding)?
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
