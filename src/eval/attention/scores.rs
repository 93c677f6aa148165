//! Computes the scores of one query with all keys that it attends to.

use std::ops::Range;

use super::{Bin, Head, Settings};
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
    pub bins: &'s [Range<usize>],
}

/// Sums over pairs of queries and keys of a head.
pub struct Sums {
    bins: Vec<BinSums>,
    beyond: f64,
    sink: f64,
}

/// Sums over the pairs in a range of distances.
#[derive(Clone)]
struct BinSums {
    pairs: usize,
    score: f64,
    highest: f64,
    share: f64,
}

/// The keys that a query attends to, with the rotation from each to the query.
struct Turns {
    keys: Vec<usize>,
    n_rot: usize,
    /// The cosines, then the sines of all pairs: (keys, n_rot).
    rows: Vec<f64>,
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
        let position = self.observed.positions[query];
        // Layers of one kind share their rotations.
        let kind = |one: &Attention| (one.window, one.rotation, one.n_rot);
        let mut kinds: Vec<(Attention, Turns)> = Vec::new();
        let mut scores = Vec::new();
        let heads = self.heads().map(|(layer, attention, head)| {
            let known = kinds.iter().position(|(known, _)| kind(known) == kind(&attention));
            let known = known.unwrap_or_else(|| {
                kinds.push((attention, self.turns(&attention, query)));
                kinds.len() - 1
            });
            let turns = &kinds[known].1;
            self.scores(layer, &attention, query, head, turns, &mut scores);
            let sink = self.observed.sinks.get(&layer).map(|sinks| f64::from(sinks[head]));
            self.sums(position, turns, &scores, sink)
        });
        heads.collect()
    }

    /// Returns the rotations between a query of a layer and its keys.
    fn turns(&self, attention: &Attention, query: usize) -> Turns {
        let position = self.observed.positions[query];
        let visibility = attention.window.map_or(self.plan.visibility, Visibility::window);
        let layers = match attention.rotation {
            Rotation::Global => Some(Layers::Global),
            Rotation::Window => Some(Layers::Window),
            Rotation::None => None,
        };
        let length = self.observed.effective_lengths[query];
        let table = layers.map(|layers| Table::new(self.plan, layers, length));
        let n_rot = if table.is_some() { attention.n_rot } else { 0 };
        let mut turns = Turns { keys: Vec::new(), n_rot, rows: Vec::new() };
        for key in 0..=position {
            let Some(distance) = visibility.distance(position, key) else { continue };
            turns.keys.push(key);
            let Some(table) = &table else { continue };
            // Pairs without a frequency stay still.
            let inv_freq = table.inv_freq.iter().copied().chain(std::iter::repeat(0.0));
            let angles = inv_freq.take(n_rot / 2).map(|theta| distance * theta);
            let scale = table.scale * table.scale;
            turns.rows.extend(angles.clone().map(|angle| scale * angle.cos()));
            turns.rows.extend(angles.map(|angle| scale * angle.sin()));
        }
        turns
    }

    /// Computes the scores of a head, one for each key of `turns`.
    fn scores(
        &self,
        layer: usize,
        attention: &Attention,
        query: usize,
        head: usize,
        turns: &Turns,
        scores: &mut Vec<f64>,
    ) {
        let (dim, kv_heads) = (attention.head_dim, attention.kv_heads);
        let queries = &self.observed.queries[&layer];
        let query = &queries[(query * attention.heads + head) * dim..][..dim];
        let keys = &self.observed.keys[&attention.shared_with.unwrap_or(layer)];
        let kv_head = head / attention.group();
        let cap = self.config.attention_soft_cap.map(f64::from);
        scores.clear();
        scores.extend(turns.keys.iter().enumerate().map(|(index, key)| {
            let key = &keys[(key * kv_heads + kv_head) * dim..][..dim];
            let score = turns.score(index, query, key);
            cap.map_or(score, |cap| cap * (score / cap).tanh())
        }));
    }

    /// Adds up the scores of a query at `position` and their shares.
    fn sums(&self, position: usize, turns: &Turns, scores: &[f64], sink: Option<f64>) -> Sums {
        let mut sums = Sums::new(self.bins.len());
        let highest = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
        let of_sink = sink.map_or(0.0, |sink| (sink - highest).exp());
        let all: f64 = of_sink + scores.iter().map(|score| (score - highest).exp()).sum::<f64>();
        let width = self.bins.first().map_or(1, Range::len);
        for (key, &score) in turns.keys.iter().zip(scores) {
            let (distance, share) = (position - key, (score - highest).exp() / all);
            sums.bins[distance / width].add(&BinSums { pairs: 1, score, highest: score, share });
            if distance >= self.config.context_train {
                sums.beyond += share;
            }
        }
        sums.sink = of_sink / all;
        sums
    }
}

impl Turns {
    /// Returns the product of a query, rotated by its distance from the key of an index, with that key.
    fn score(&self, index: usize, query: &[f32], key: &[f32]) -> f64 {
        let half = self.n_rot / 2;
        let (cos, sin) = self.rows[index * self.n_rot..][..self.n_rot].split_at(half);
        let mut sum = 0.0;
        for i in 0..half {
            let [qa, qb] = [query[i], query[i + half]].map(f64::from);
            let [ka, kb] = [key[i], key[i + half]].map(f64::from);
            sum += (qa * ka + qb * kb) * cos[i] + (qa * kb - qb * ka) * sin[i];
        }
        let still = query[self.n_rot..].iter().zip(&key[self.n_rot..]);
        sum + still.map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>()
    }
}

impl BinSums {
    fn add(&mut self, other: &BinSums) {
        self.pairs += other.pairs;
        self.score += other.score;
        self.highest = self.highest.max(other.highest);
        self.share += other.share;
    }
}

impl Sums {
    /// Creates the sums of no pairs.
    pub fn new(bins: usize) -> Self {
        let none = BinSums { pairs: 0, score: 0.0, highest: f64::NEG_INFINITY, share: 0.0 };
        Sums { bins: vec![none; bins], beyond: 0.0, sink: 0.0 }
    }

    /// Adds the sums of other pairs.
    pub fn add(&mut self, other: &Sums) {
        self.bins.iter_mut().zip(&other.bins).for_each(|(bin, other)| bin.add(other));
        self.beyond += other.beyond;
        self.sink += other.sink;
    }

    /// Returns the means of a head over its pairs and its `queries`.
    pub fn head(&self, layer: usize, head: usize, bins: &[Range<usize>], queries: usize) -> Head {
        let queries = queries.max(1) as f64;
        let bins = bins.iter().zip(&self.bins).map(|(distances, sums)| Bin {
            distances: distances.clone(),
            pairs: sums.pairs,
            score: sums.score / sums.pairs.max(1) as f64,
            highest: if sums.pairs > 0 { sums.highest } else { 0.0 },
            share: sums.share / queries,
        });
        let (bins, beyond, sink) = (bins.collect(), self.beyond / queries, self.sink / queries);
        Head { layer, head, bins, beyond, sink }
    }
}
