//! Captures queries and keys of chosen layers in forward passes, so that attention scores can be
//! computed from them afterwards.
//!
//! A pass computes scores in tiles and does not keep them. An observer therefore stores queries and
//! keys before their rotation. Without an observer, a layer costs one more comparison.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::Config;
use crate::platform::memory::{Refused, filled};

/// The queries and keys of some layers, before their rotation and before the KV cache rounds keys.
///
/// The first `n_rot` elements of a head are in halves order: element `i` rotates with `i + n_rot/2`.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The positions of the queries, in ascending order.
    pub positions: Vec<usize>,
    /// The effective length for the RoPE frequencies of each query.
    pub effective_lengths: Vec<usize>,
    /// The scaled queries of each observed layer: (positions, heads, head dim).
    pub queries: BTreeMap<usize, Vec<f32>>,
    /// The keys of each layer that stores the keys of an observed one: (length, KV heads, head dim).
    pub keys: BTreeMap<usize, Vec<f32>>,
    /// The scores without a value of each observed layer that has them: (heads).
    pub sinks: BTreeMap<usize, Vec<f32>>,
}

/// The memory that passes write queries and keys to.
pub struct Observer {
    /// The layers to observe, and the layers that store their keys.
    layers: Vec<usize>,
    observed: Mutex<Observed>,
}

impl Observer {
    /// Creates an observer of the queries at `positions`, in ascending order, and of the keys of the
    /// first `length` positions. Layers that do not attend are left out.
    ///
    /// # Errors
    /// If the system has no memory left.
    pub fn new(
        config: &Config,
        layers: &[usize],
        positions: &[usize],
        length: usize,
    ) -> Result<Self, Refused> {
        let mut observed = Observed {
            positions: positions.to_vec(),
            effective_lengths: vec![0; positions.len()],
            ..Observed::default()
        };
        for &layer in layers {
            let attention = config.layers.get(layer).and_then(|layer| layer.attention);
            let Some(attention) = attention else { continue };
            let queries = positions.len() * attention.query_width();
            let keys = length * attention.kv_heads * attention.head_dim;
            observed.queries.insert(layer, filled(0.0, queries)?);
            observed.keys.insert(attention.shared_with.unwrap_or(layer), filled(0.0, keys)?);
        }
        let layers = observed.queries.keys().chain(observed.keys.keys()).copied().collect();
        Ok(Observer { layers, observed: Mutex::new(observed) })
    }

    /// Returns whether a layer's queries or keys are captured.
    pub fn observes(&self, layer: usize) -> bool {
        self.layers.contains(&layer)
    }

    /// Returns the captured queries and keys, for writing.
    pub fn lock(&self) -> MutexGuard<'_, Observed> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the captured queries and keys.
    pub fn into_observed(self) -> Observed {
        self.observed.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
