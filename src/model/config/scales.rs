//! The factors and limits of activations, scores and logits.

use super::keys::Keys;
use crate::model::{Architecture, Error};

/// The factors and limits of a family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaleFamily {
    /// The factors of activations.
    pub factors: Factors,
    /// The factor of attention scores, if the file does not set it.
    pub scores: ScoreFactor,
    /// The soft caps of attention scores and of logits if the file does not set them, 0 for none.
    /// `None` if the family has no such cap.
    pub soft_caps: [Option<f32>; 2],
}

/// The factors of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factors {
    /// None.
    None,
    /// Embeddings are multiplied by the square root of their length (Gemma).
    Embeddings,
    /// Embeddings and the outputs of branches are multiplied, and logits divided, by keys of the
    /// file (Granite).
    Keys,
    /// The factors of [`Factors::Keys`], with values for files without these keys (MiniCPM).
    KeysOrDefaults,
    /// Logits are multiplied by a key of the file (Cohere, Muse Glimmer).
    Logits,
}

/// The factor of attention scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreFactor {
    /// `1 / sqrt(n)` for the length n of a head.
    ByHead,
    /// [`ScoreFactor::ByHead`], with n = `embedding / heads` in the model with this number of layers.
    ByEmbedding(usize),
    /// 1.
    One,
}

impl ScoreFactor {
    /// Returns the factor in a model with `layers` layers, for heads of `head_dim` elements.
    pub fn of(self, layers: usize, embedding: usize, heads: usize, head_dim: usize) -> f32 {
        let n = match self {
            ScoreFactor::ByEmbedding(all) if all == layers && heads <= embedding => {
                embedding / heads
            }
            ScoreFactor::ByHead | ScoreFactor::ByEmbedding(_) => head_dim,
            ScoreFactor::One => 1,
        };
        1.0 / (n as f32).sqrt()
    }
}

impl ScaleFamily {
    /// No factors and no limits.
    pub const PLAIN: Self =
        ScaleFamily { factors: Factors::None, scores: ScoreFactor::ByHead, soft_caps: [None; 2] };
}

/// The factors and limits of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scales {
    /// The factor of embeddings.
    pub embedding: f32,
    /// The factor of the outputs of branches.
    pub residual: f32,
    /// The factor of logits, before their soft cap.
    pub logits: f32,
    /// The soft cap of attention scores.
    pub score_cap: Option<f32>,
    /// The soft cap of logits.
    pub logit_cap: Option<f32>,
}

/// Reads the factors and limits of a model with `layers` layers.
pub fn read(
    keys: &Keys<'_, '_>,
    architecture: &Architecture,
    embedding: usize,
    layers: usize,
) -> Result<Scales, Error> {
    let soft_cap = |index: usize, key| match architecture.scales.soft_caps[index] {
        Some(default) => keys.positive_or(key, default),
        None => Ok(None),
    };
    let length = embedding as f32;
    let by_keys = |defaults: [f32; 3]| {
        let names = ["embedding_scale", "residual_scale", "logit_scale"];
        let [embedding, residual, divisor] = [0, 1, 2].map(|i| {
            // 0 means none.
            Ok::<f32, Error>(keys.positive_or(names[i], defaults[i])?.unwrap_or(1.0))
        });
        Ok::<_, Error>([embedding?, residual?, 1.0 / divisor?])
    };
    let [embedding, residual, logits] = match architecture.scales.factors {
        Factors::None => [1.0; 3],
        Factors::Embeddings => [length.sqrt(), 1.0, 1.0],
        Factors::Keys => {
            keys.required("logit_scale")?;
            by_keys([1.0; 3])?
        }
        // As llama.cpp sets them for the first files of MiniCPM, which have no keys.
        Factors::KeysOrDefaults => by_keys([12.0, 1.4 / (layers as f32).sqrt(), 256.0 / length])?,
        Factors::Logits => [1.0, 1.0, keys.required("logit_scale")?],
    };
    let score_cap = soft_cap(0, "attn_logit_softcapping")?;
    let logit_cap = soft_cap(1, "final_logit_softcapping")?;
    Ok(Scales { embedding, residual, logits, score_cap, logit_cap })
}
