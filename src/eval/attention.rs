//! Measures attention by distance: the scores that queries near the end of a text have with its keys,
//! and the shares of attention that follow.
//!
//! ```text
//! score(i, j) = cap(m² (R(d) q_i) · k_j)        for the distance d of i and j that the method assigns
//! share(i, j) = e^score(i, j) / (e^sink + sum over keys of e^score(i, key))
//! ```
//! `q` and `k` are the model's queries and keys before they rotate, with all scales of the model. `R`
//! rotates each pair by `d` times its frequency, and `m` is the attention scale of what rotates. Sums
//! are in double precision, and keys are not rounded as in the KV cache. So scores differ from those of
//! a run by rounding.
//!
//! Figure 2 of Position Interpolation (Chen and others 2023, arXiv:2306.15595) shows such scores for a
//! query and a key that were fitted to random points.

mod scores;

use std::ops::Range;

use rayon::{ThreadPoolBuilder, prelude::*};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    Token,
    model::{self, Config, Engine, Feed, Output, Role, Rotation},
};
use scores::{Scores, Sums};

/// An error while measuring attention.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages explain the variants")]
pub enum Error {
    #[error(transparent)]
    Model(#[from] model::Error),
    #[error("layer {layer}: must be one of the layers that attend: {}", listed(attending))]
    Layer { layer: usize, attending: Vec<usize> },
    #[error("head {head}: must be from 0 to {last}, the last head of layer {layer}")]
    Head { head: usize, layer: usize, last: usize },
    #[error("scores of {0} models cannot be measured: they normalize queries after their rotation")]
    Architecture(&'static str),
}

/// The settings of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The layers, in ascending order: see [`Settings::check`].
    pub layers: Vec<usize>,
    /// The heads of each layer; all if empty.
    pub heads: Vec<usize>,
    /// The number of queries, at even steps through the last 16th of the text.
    pub queries: usize,
    /// The number of ranges of distances.
    pub bins: usize,
}

/// The attention of some heads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// The positions of the queries, in ascending order.
    pub positions: Vec<usize>,
    /// The heads of each layer.
    pub heads: Vec<Head>,
}

/// The attention of a head.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Head {
    /// The index of the layer.
    pub layer: usize,
    /// The index of the head in its layer.
    pub head: usize,
    /// The scores and shares by distance.
    pub bins: Vec<Bin>,
    /// The mean share of keys at the trained length or further.
    pub beyond: f64,
    /// The mean share of the sink, a score without a value.
    pub sink: f64,
}

/// The attention to keys in a range of distances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// The distances in tokens, from 0 for the query's own key.
    pub distances: Range<usize>,
    /// The number of pairs of a query and a key.
    pub pairs: usize,
    /// The mean score before the softmax; 0 without pairs.
    pub score: f64,
    /// The largest score; 0 without pairs.
    pub highest: f64,
    /// The share of attention, the mean over queries.
    pub share: f64,
}

impl Settings {
    /// The number of layers by default.
    const LAYERS: usize = 4;

    /// Returns the layers to measure by default: four at even steps through the layers that RoPE
    /// methods act on, or through all that attend if there are none.
    pub fn default_layers(config: &Config) -> Vec<usize> {
        let attending = attending(config);
        let rotation = |layer: &usize| config.layers[*layer].attention.map(|one| one.rotation);
        let global = |layer: &usize| rotation(layer) == Some(Rotation::Global);
        let mut layers: Vec<usize> = attending.iter().copied().filter(global).collect();
        if layers.is_empty() {
            layers = attending;
        }
        let (count, last) = (layers.len().min(Settings::LAYERS), layers.len().saturating_sub(1));
        (0..count).map(|i| layers[i * last / (count - 1).max(1)]).collect()
    }

    /// Checks that a model has these layers and heads, and that their scores can be measured.
    ///
    /// # Errors
    /// If it does not have them, it is an encoder, or it normalizes queries after their rotation.
    pub fn check(&self, config: &Config) -> Result<(), Error> {
        config.require_logits()?;
        if config.architecture.rope.keys_are_final {
            return Err(Error::Architecture(config.architecture.name));
        }
        for &layer in &self.layers {
            let attention = config.layers.get(layer).and_then(|layer| layer.attention);
            let Some(attention) = attention else {
                return Err(Error::Layer { layer, attending: attending(config) });
            };
            if let Some(&head) = self.heads.iter().find(|head| **head >= attention.heads) {
                return Err(Error::Head { head, layer, last: attention.heads - 1 });
            }
        }
        Ok(())
    }

    /// Returns the positions of the queries in a text of `length` tokens.
    fn positions(&self, length: usize) -> Vec<usize> {
        let span = length.div_ceil(16);
        let count = self.queries.min(span);
        (1..=count).map(|i| length - span + i * span / count - 1).collect()
    }
}

/// Reads a text into an empty sequence and measures the attention of its last part. `reading` is
/// called with the number of tokens that have been read.
///
/// # Errors
/// If the model cannot be computed, or see [`Settings::check`].
pub fn attention(
    engine: &mut Engine,
    tokens: &[Token],
    settings: &Settings,
    reading: &mut dyn FnMut(usize),
) -> Result<Measured, Error> {
    settings.check(engine.model().config())?;
    let positions = settings.positions(tokens.len());
    engine.observe(&settings.layers, &positions, tokens.len())?;
    let read = read(engine, tokens, reading);
    let observed = engine.take_observed();
    read?;
    let (model, width) = (engine.model(), tokens.len().div_ceil(settings.bins.max(1)).max(1));
    let bins: Vec<Range<usize>> = (0..tokens.len())
        .step_by(width)
        .map(|start| start..tokens.len().min(start + width))
        .collect();
    let scores = Scores {
        config: model.config(),
        plan: engine.rope().plan(),
        observed: &observed,
        settings,
        bins: &bins,
    };
    let threads = engine.options().threads.prompts;
    let pool = ThreadPoolBuilder::new().num_threads(threads).build().map_err(model::Error::from)?;
    let of_queries: Vec<Vec<Sums>> = pool.install(|| {
        (0..positions.len()).into_par_iter().map(|query| scores.of_query(query)).collect()
    });
    let heads = scores.heads().enumerate().map(|(index, (layer, _, head))| {
        let mut sums = Sums::new(bins.len());
        of_queries.iter().for_each(|of_query| sums.add(&of_query[index]));
        sums.head(layer, head, &bins, positions.len())
    });
    let heads = heads.collect();
    Ok(Measured { positions, heads })
}

/// Returns the means over heads, weighted by their pairs. All heads have the same ranges.
pub fn mean(heads: &[Head]) -> Vec<Bin> {
    let Some(first) = heads.first() else { return Vec::new() };
    let mean = |(i, bin): (usize, &Bin)| {
        let all = || heads.iter().map(|head| &head.bins[i]);
        let pairs = all().map(|bin| bin.pairs).sum::<usize>();
        let sum: f64 = all().map(|bin| bin.score * bin.pairs as f64).sum();
        Bin {
            distances: bin.distances.clone(),
            pairs,
            score: sum / pairs.max(1) as f64,
            highest: all().map(|bin| bin.highest).reduce(f64::max).unwrap_or(0.0),
            share: all().map(|bin| bin.share).sum::<f64>() / heads.len() as f64,
        }
    };
    first.bins.iter().enumerate().map(mean).collect()
}

/// Reads all tokens into a new sequence.
fn read(
    engine: &mut Engine,
    mut tokens: &[Token],
    reading: &mut dyn FnMut(usize),
) -> Result<(), Error> {
    let mut sequence = engine.sequence();
    while !tokens.is_empty() {
        let mut feed = Feed {
            sequence: &mut sequence,
            tokens,
            role: Role::Prompt,
            wanted: 0..0,
            output: Output::Logits,
        };
        engine.step(std::slice::from_mut(&mut feed), &mut |_, _, _| {})?;
        tokens = feed.tokens;
        reading(sequence.tokens().len());
    }
    Ok(())
}

/// Returns the layers that attend.
fn attending(config: &Config) -> Vec<usize> {
    let attends = |layer: &usize| config.layers[*layer].attention.is_some();
    (0..config.layers.len()).filter(attends).collect()
}

fn listed(layers: &[usize]) -> String {
    layers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_in_the_last_part_and_the_last_token_is_one() {
        let settings = Settings { layers: vec![0], heads: vec![], queries: 4, bins: 16 };
        assert_eq!(settings.positions(1600), [1524, 1549, 1574, 1599]);
        assert_eq!(settings.positions(32), [30, 31]);
        assert_eq!(settings.positions(1), [0]);
        assert!(settings.positions(0).is_empty());
    }
}
