//! Measures attention by distance: the scores that queries near the end of a text have with its keys,
//! and the shares of attention that follow ([`rope_cpu_lab::attention`]).
//!
//! Queries and keys are the model's, before they rotate, with all scales of the model. Keys are not
//! rounded as in the KV cache, so scores differ from the scores of a run by rounding.

mod scores;

use rayon::{ThreadPoolBuilder, prelude::*};
use rope_cpu_lab::attention::{Head, Sums, ranges};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    Token,
    model::{self, Config, Engine, Feed, Output, Role, Rotation},
};
use scores::Scores;

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
    let (config, plan) = (engine.model().config(), engine.rope().plan());
    let ranges = ranges(tokens.len(), settings.bins);
    let scores = Scores { config, plan, observed: &observed, settings, ranges: &ranges };
    let threads = engine.options().threads.prompts;
    let pool = ThreadPoolBuilder::new().num_threads(threads).build().map_err(model::Error::from)?;
    let of_queries: Vec<Vec<Sums>> = pool.install(|| {
        (0..positions.len()).into_par_iter().map(|query| scores.of_query(query)).collect()
    });
    let heads = scores.heads().enumerate().map(|(index, (layer, _, head))| {
        let mut sums = Sums::new(ranges.len());
        of_queries.iter().for_each(|of_query| sums.add(&of_query[index]));
        sums.head(layer, head, &ranges, positions.len())
    });
    let heads = heads.collect();
    Ok(Measured { positions, heads })
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
