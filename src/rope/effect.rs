//! The effect of a plan on a sequence, as numbers to draw.

use std::f64::consts::TAU;

use super::{Layers, Plan, Table};

/// The effect of a plan on the global layers of a sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// For each pair of dimensions, the number of positions in which it turns once, as the model was
    /// trained.
    pub trained_wavelengths: Vec<f64>,
    /// For each pair of dimensions, the number of positions in which it turns once.
    pub wavelengths: Vec<f64>,
    /// The attention scale, which multiplies rotated queries and rotated keys.
    pub attention_scale: f64,
    /// Distances from the last token, from 0 to the largest.
    pub distances: Vec<Distance>,
}

/// A distance between a query and a key, and the trained distances with the same angles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// The number of tokens from the key to the query.
    pub tokens: usize,
    /// The effective distance for the pair of dimensions with the most reduced frequency; `None` if
    /// the query does not attend to the key.
    pub least: Option<f64>,
    /// The effective distance for the pair of dimensions with the least reduced frequency.
    pub most: Option<f64>,
}

impl Plan {
    /// Returns the effect on a sequence of `tokens`, with up to `points` distances.
    pub fn effect(&self, tokens: usize, points: usize) -> Effect {
        let trained = self.trained_inv_freq();
        let table = Table::new(self, Layers::Global, self.effective_length(tokens));
        let ratios = table.inv_freq.iter().zip(&trained).map(|(now, trained)| now / trained);
        let (least, most) = ratios
            .fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), ratio| {
                (least.min(ratio), most.max(ratio))
            });
        let last = tokens.saturating_sub(1);
        let intervals = points.saturating_sub(1).min(last);
        let distances = (0..=intervals).map(|i| {
            let tokens = (last as u128 * i as u128 / intervals.max(1) as u128) as usize;
            let distance = self.visibility.distance(last, last - tokens);
            Distance {
                tokens,
                least: distance.map(|distance| distance * least),
                most: distance.map(|distance| distance * most),
            }
        });
        let wavelengths = |inv_freq: &[f64]| inv_freq.iter().map(|theta| TAU / theta).collect();
        Effect {
            trained_wavelengths: wavelengths(&trained),
            wavelengths: wavelengths(&table.inv_freq),
            attention_scale: table.scale,
            distances: distances.collect(),
        }
    }
}
