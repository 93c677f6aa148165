//! Computes the scores of one query in all layers and heads.

use std::ops::Range;

use rope_cpu_lab::attention::{Rotations, Sums};

use super::Settings;
use crate::{
    model::{Attention, Config, Observed, Rotation},
    rope::{Layers, Plan, Table, Visibility},
};

/// The inputs of attention scores.
pub struct Scores<'s> {
    pub config: &'s Config,
    pub plan: &'s Plan,
    pub observed: &'s Observed,
    pub settings: &'s Settings,
    /// The ranges of distances. All but the last have the same width.
    pub ranges: &'s [Range<usize>],
}

impl Scores<'_> {
    /// Returns the layer of each head, its attention, and the index of the head.
    pub fn heads(&self) -> impl Iterator<Item = (usize, Attention, usize)> {
        let chosen = move |head: &usize| match &self.settings.heads[..] {
            [] => true,
            heads => heads.contains(head),
        };
        self.observed.queries.keys().flat_map(move |&layer| {
            let attention = self.config.layers[layer].attention;
            attention.into_iter().flat_map(move |attention| {
                (0..attention.heads).filter(chosen).map(move |head| (layer, attention, head))
            })
        })
    }

    /// Returns the sums of one query, for each of [`Scores::heads`].
    pub fn of_query(&self, query: usize) -> Vec<Sums> {
        // Layers of one kind share their rotations.
        let kind = |one: &Attention| (one.window, one.rotation, one.n_rot);
        let mut kinds: Vec<(Attention, Rotations)> = Vec::new();
        let mut scores = Vec::new();
        let cap = self.config.scales.score_cap.map(f64::from);
        let heads = self.heads().map(|(layer, attention, head)| {
            let known = kinds.iter().position(|(known, _)| kind(known) == kind(&attention));
            let known = known.unwrap_or_else(|| {
                kinds.push((attention, self.rotations(&attention, query)));
                kinds.len() - 1
            });
            let rotations = &kinds[known].1;
            let (dim, kv_heads) = (attention.head_dim, attention.kv_heads);
            let queries = &self.observed.queries[&layer];
            let query = &queries[(query * attention.heads + head) * dim..][..dim];
            let keys = &self.observed.keys[&attention.shared_with.unwrap_or(layer)];
            let kv_head = head / attention.group();
            let key = |position| &keys[(position * kv_heads + kv_head) * dim..][..dim];
            rotations.scores(query, key, cap, &mut scores);
            let sink = self.observed.sinks.get(&layer).map(|sinks| f64::from(sinks[head]));
            rotations.sums(&scores, sink, self.ranges, self.config.context_train)
        });
        heads.collect()
    }

    /// Returns the rotations between a query of a layer and its keys.
    fn rotations(&self, attention: &Attention, query: usize) -> Rotations {
        let position = self.observed.positions[query];
        let visibility = attention.window.map_or(self.plan.visibility, Visibility::window);
        let distance = |key| visibility.distance(position, key);
        let layers = match attention.rotation {
            Rotation::Global => Layers::Global,
            Rotation::Window => Layers::Window,
            Rotation::None => return Rotations::new(position, 0, &[], 1.0, distance),
        };
        let table = Table::new(self.plan, layers, self.observed.effective_lengths[query]);
        Rotations::new(position, attention.n_rot, &table.inv_freq, table.scale, distance)
    }
}
