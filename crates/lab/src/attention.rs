//! Scores of one query with the keys that it attends to, and their means by distance.
//!
//! ```text
//! score(i, j) = cap(m² (R(d) q_i) · k_j)        for the distance d of i and j that the method assigns
//! share(i, j) = e^score(i, j) / (e^sink + sum over keys of e^score(i, key))
//! ```
//! `q` and `k` are queries and keys before they rotate. `R` rotates each pair by `d` times its
//! frequency, and `m` is the attention scale of what rotates. Sums are in double precision.
//!
//! Figure 2 of Position Interpolation (Chen and others 2023, arXiv:2306.15595) shows such scores for a
//! query and a key that were fitted to random points.

use std::ops::Range;

use serde::{Deserialize, Serialize};

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

/// Returns the ranges of distances in a text of `length` tokens: at most `count`, of equal widths but
/// for the last.
pub fn ranges(length: usize, count: usize) -> Vec<Range<usize>> {
    let width = length.div_ceil(count.max(1)).max(1);
    (0..length).step_by(width).map(|start| start..length.min(start + width)).collect()
}

/// The keys that a query attends to, with the rotation from each to the query.
pub struct Rotations {
    /// The position of the query.
    position: usize,
    keys: Vec<usize>,
    /// The number of dimensions that rotate.
    n_rot: usize,
    /// The cosines, then the sines of all pairs: (keys, n_rot).
    rows: Vec<f64>,
}

impl Rotations {
    /// Computes the rotations of a query at `position`. Its first `n_rot` dimensions rotate by
    /// `inv_freq`, multiplied by the square of the attention `scale`; pairs without a frequency stay
    /// still. `distance` returns the distance of a key, or `None` if the query does not attend to it.
    pub fn new(
        position: usize,
        n_rot: usize,
        inv_freq: &[f64],
        scale: f64,
        distance: impl Fn(usize) -> Option<f64>,
    ) -> Self {
        let mut rotations = Rotations { position, keys: Vec::new(), n_rot, rows: Vec::new() };
        let scale = scale * scale;
        for key in 0..=position {
            let Some(distance) = distance(key) else { continue };
            rotations.keys.push(key);
            let inv_freq = inv_freq.iter().copied().chain(std::iter::repeat(0.0));
            let angles = inv_freq.take(n_rot / 2).map(|theta| distance * theta);
            rotations.rows.extend(angles.clone().map(|angle| scale * angle.cos()));
            rotations.rows.extend(angles.map(|angle| scale * angle.sin()));
        }
        rotations
    }

    /// Computes the scores of a query, one for each key that it attends to. `key` returns the key at
    /// a position, and `cap` bounds scores.
    pub fn scores<'k>(
        &self,
        query: &[f32],
        key: impl Fn(usize) -> &'k [f32],
        cap: Option<f64>,
        scores: &mut Vec<f64>,
    ) {
        scores.clear();
        scores.extend(self.keys.iter().enumerate().map(|(index, position)| {
            let score = self.score(index, query, key(*position));
            cap.map_or(score, |cap| cap * (score / cap).tanh())
        }));
    }

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

    /// Adds up scores and their shares in `ranges` of distances. Keys at `trained` tokens or further
    /// are beyond the trained length.
    pub fn sums(
        &self,
        scores: &[f64],
        sink: Option<f64>,
        ranges: &[Range<usize>],
        trained: usize,
    ) -> Sums {
        let mut sums = Sums::new(ranges.len());
        let highest = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
        let of_sink = sink.map_or(0.0, |sink| (sink - highest).exp());
        let all: f64 = of_sink + scores.iter().map(|score| (score - highest).exp()).sum::<f64>();
        let width = ranges.first().map_or(1, Range::len);
        for (key, &score) in self.keys.iter().zip(scores) {
            let (distance, share) = (self.position - key, (score - highest).exp() / all);
            sums.bins[distance / width].add(&BinSums { pairs: 1, score, highest: score, share });
            if distance >= trained {
                sums.beyond += share;
            }
        }
        sums.sink = of_sink / all;
        sums
    }
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
    pub fn new(ranges: usize) -> Self {
        let none = BinSums { pairs: 0, score: 0.0, highest: f64::NEG_INFINITY, share: 0.0 };
        Sums { bins: vec![none; ranges], beyond: 0.0, sink: 0.0 }
    }

    /// Adds the sums of other pairs.
    pub fn add(&mut self, other: &Sums) {
        self.bins.iter_mut().zip(&other.bins).for_each(|(bin, other)| bin.add(other));
        self.beyond += other.beyond;
        self.sink += other.sink;
    }

    /// Returns the means of a head over its pairs and its `queries`.
    pub fn head(&self, layer: usize, head: usize, ranges: &[Range<usize>], queries: usize) -> Head {
        let queries = queries.max(1) as f64;
        let bins = ranges.iter().zip(&self.bins).map(|(distances, sums)| Bin {
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
