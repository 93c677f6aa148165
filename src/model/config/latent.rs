//! Attention to latents: the dimensions of DeepSeek's models.

use rope_cpu_kernels::cache::UNIT;

use super::{
    Attention, DIMENSION_MAX, GROUP_MAX, HEAD_DIM_MAX, Rotation,
    attention::{HEADS, ROTATED},
    keys::Keys,
};
use crate::model::Error;

/// The dimensions of heads with keys and values that are products of a latent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latent {
    /// The elements of a query that do not rotate, which keys compute from the latent.
    pub unrotated: usize,
    /// The elements of a value.
    pub value_dim: usize,
    /// Whether both matrices of a head are in one tensor, `attn_kv_b`, as in the first files.
    pub joined: bool,
}

const RANK: &str = "attention.kv_lora_rank";
/// The keys of lengths; in the first files these are the lengths of heads.
const LENGTHS: [&str; 2] = ["attention.key_length_mla", "attention.value_length_mla"];
const JOINED_LENGTHS: [&str; 2] = ["attention.key_length", "attention.value_length"];

/// Reads the attention of all layers.
pub fn read(keys: &Keys<'_, '_>, layers: usize) -> Result<Vec<Option<Attention>>, Error> {
    let invalid = |key: &str, value: String, reason: String| {
        Err(Error::Value { key: keys.name(key), value, reason })
    };
    let joined = keys.number(LENGTHS[0])?.unwrap_or(0) == 0;
    let [key_length, value_length] = if joined { JOINED_LENGTHS } else { LENGTHS };
    let (rank, n_rot) = (keys.size(RANK, HEAD_DIM_MAX)?, keys.size(ROTATED, HEAD_DIM_MAX)?);
    for (key, value) in [(RANK, rank), (ROTATED, n_rot)] {
        if !value.is_multiple_of(UNIT) {
            let reason =
                format!("must be a multiple of {UNIT}, the values that the cache stores together");
            return invalid(key, value.to_string(), reason);
        }
    }
    let head_dim = rank + n_rot;
    if head_dim > HEAD_DIM_MAX {
        let reason = format!("must be at most {} beside {n_rot} that rotate", HEAD_DIM_MAX - n_rot);
        return invalid(RANK, rank.to_string(), reason);
    }
    let key_dim = keys.size(key_length, DIMENSION_MAX)?;
    let value_dim = keys.size(value_length, DIMENSION_MAX)?;
    if key_dim <= n_rot {
        let reason = format!("must be more than the {n_rot} that rotate");
        return invalid(key_length, key_dim.to_string(), reason);
    }
    let widest = head_dim.max(key_dim).max(value_dim);
    let heads_max = GROUP_MAX.min(DIMENSION_MAX / widest).max(1);
    let one = |heads: usize| {
        Some(Attention {
            heads,
            kv_heads: 1,
            head_dim,
            n_rot,
            window: None,
            ahead: 0,
            rotation: Rotation::Global,
            scale: 1.0 / (key_dim as f32).sqrt(),
            shared_with: None,
            latent: Some(Latent { unrotated: key_dim - n_rot, value_dim, joined }),
        })
    };
    Ok(keys.by_layer(HEADS, layers, heads_max, None)?.into_iter().map(one).collect())
}
