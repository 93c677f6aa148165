//! Attention of a few queries over one page of the cache, with an online softmax.
//!
//! ```text
//! partial = (values 0, maximum -inf, sum 0)            one for each query
//! for each page:
//!   scores  = queries . keys
//!   maximum = max(old maximum, scores);  probabilities = e^(scores - maximum)
//!   values  = values e^(old maximum - maximum) + probabilities . values of the page;  sum likewise
//! result    = values / sum
//! ```
//! (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax".) Partials over
//! different pages can be merged, so a long cache can be split among threads.
//!
//! Queries that read the same keys (those of a group of heads, and of neighbouring tokens) come
//! together. Few of them read each row of the cache as it is; many first have the page unpacked
//! into panels, so that the tile of `tile` does the work for every cache type.

mod few;
mod many;

use std::ops::Range;

use crate::{
    cache::{CacheType, UNIT},
    isa::{Cpu, Isa, Kernel, LANES},
    vector::{exp, soft_capped},
};

/// Positions of a page.
pub const PAGE: usize = 256;

/// Queries from which unpacking a page pays.
const MANY_QUERIES: usize = 8;

/// One head's keys or values in a page: a row of the cache for each position.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// How they are stored.
    pub dtype: CacheType,
    /// (positions, row bytes)
    pub bytes: &'a [u8],
}

/// Queries that read the same page.
#[derive(Clone, Copy)]
pub struct Queries<'a> {
    /// (queries, dim), scaled by 1 / sqrt(head_dim) or what the model asks for.
    pub queries: &'a [f32],
    /// Values of a head, filled up with zeros to a multiple of [`UNIT`].
    pub dim: usize,
    /// For each query, which positions of the page it sees.
    pub visible: &'a [Range<usize>],
    /// Limits scores to +-cap by tanh (Gemma 2).
    pub soft_cap: Option<f32>,
}

/// What one thread needs while it attends.
pub struct Scratch {
    /// (queries, PAGE)
    scores: Vec<f32>,
    /// Keys, then values: ([`PAGE`] x dim) in lanes of 16.
    panel: Vec<[f32; LANES]>,
}

impl Scratch {
    /// Scratch for up to `queries` of `dim` values.
    pub fn new(queries: usize, dim: usize) -> Self {
        Scratch {
            scores: vec![0.0; queries * PAGE],
            panel: vec![[0.0; LANES]; PAGE / LANES * dim.next_multiple_of(UNIT)],
        }
    }
}

/// Floats of one query's partial result: its values, then maximum and sum.
pub const fn partial_len(dim: usize) -> usize {
    dim + 2
}

/// Makes partials that have seen nothing.
pub fn clear(partials: &mut [f32], dim: usize) {
    partials.fill(0.0);
    for partial in partials.chunks_exact_mut(partial_len(dim)) {
        partial[dim] = f32::NEG_INFINITY;
    }
}

/// Adds a page to the partials (queries, [`partial_len`]).
pub fn attend(
    cpu: Cpu,
    q: Queries<'_>,
    keys: Rows<'_>,
    values: Rows<'_>,
    scratch: &mut Scratch,
    partials: &mut [f32],
) {
    let seen = q.visible.iter().filter(|v| !v.is_empty());
    let (Some(start), Some(end)) = (seen.clone().map(|v| v.start).min(), seen.map(|v| v.end).max())
    else {
        return;
    };
    let scores = &mut scratch.scores[..q.visible.len() * PAGE];
    let panel = &mut scratch.panel;
    if q.visible.len() < MANY_QUERIES {
        few::scores(cpu, q, keys, start..end, scores);
        cpu.call(Softmax { q, span: start..end, scores, partials });
        few::weighted_values(cpu, q, values, start..end, scores, partials);
    } else {
        many::scores(cpu, q, keys, start..end, panel, scores);
        cpu.call(Softmax { q, span: start..end, scores, partials });
        many::weighted_values(cpu, q, values, start..end, panel, scores, partials);
    }
}

/// Turns scores into probabilities relative to the largest so far; 0 for what is not visible.
struct Softmax<'a> {
    q: Queries<'a>,
    /// The positions that any query sees.
    span: Range<usize>,
    scores: &'a mut [f32],
    partials: &'a mut [f32],
}

impl Kernel for Softmax<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let dim = self.q.dim;
        let rows = self.scores.as_chunks_mut::<PAGE>().0;
        let partials = self.partials.chunks_exact_mut(partial_len(dim));
        for ((scores, visible), partial) in rows.iter_mut().zip(self.q.visible).zip(partials) {
            let scores = &mut scores[self.span.clone()];
            if visible.is_empty() {
                scores.fill(0.0);
                continue;
            }
            scores[..visible.start - self.span.start].fill(f32::NEG_INFINITY);
            scores[visible.end - self.span.start..].fill(f32::NEG_INFINITY);
            softmax(isa, scores, self.q.soft_cap, partial, dim);
        }
    }
}

/// One query's scores to probabilities; scales what `partial` holds to the new maximum.
#[inline(always)]
fn softmax<I: Isa>(
    isa: I,
    scores: &mut [f32],
    soft_cap: Option<f32>,
    partial: &mut [f32],
    dim: usize,
) {
    let mut largest = isa.splat_f32(partial[dim]);
    for part in scores.chunks_mut(8) {
        let mut s = isa.load_f32(&padded(part));
        if let Some(cap) = soft_cap {
            // Scores that are not visible stay minus infinity.
            let capped = isa.to_f32s(soft_capped(isa, s, cap));
            for (s, capped) in part.iter_mut().zip(capped) {
                *s = if *s == f32::NEG_INFINITY { *s } else { capped };
            }
            s = isa.load_f32(&padded(part));
        }
        largest = isa.max(largest, s);
    }
    let maximum = isa.max_lane(largest);
    let new = isa.splat_f32(-maximum);
    let factor = isa.to_f32s(exp(isa, isa.add(isa.splat_f32(partial[dim]), new)))[0];
    let mut sum = isa.splat_f32(0.0);
    for part in scores.chunks_mut(8) {
        let p = exp(isa, isa.add(isa.load_f32(&padded(part)), new));
        sum = isa.add(sum, p);
        part.copy_from_slice(&isa.to_f32s(p)[..part.len()]);
    }
    for values in partial[..dim].as_chunks_mut::<8>().0 {
        *values = isa.to_f32s(isa.mul(isa.load_f32(values), isa.splat_f32(factor)));
    }
    partial[dim] = maximum;
    partial[dim + 1] = partial[dim + 1] * factor + isa.sum(sum);
}

/// Up to eight scores, filled up with what no query sees.
#[inline(always)]
fn padded(scores: &[f32]) -> [f32; 8] {
    scores.as_array().copied().unwrap_or_else(|| {
        let mut eight = [f32::NEG_INFINITY; 8];
        eight[..scores.len()].copy_from_slice(scores);
        eight
    })
}

/// Adds partial `from` to partial `into`, as if one query had seen the pages of both.
pub fn merge(cpu: Cpu, into: &mut [f32], from: &[f32]) {
    cpu.call(Merge { into, from });
}

struct Merge<'a> {
    into: &'a mut [f32],
    from: &'a [f32],
}

impl Kernel for Merge<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let dim = self.into.len() - 2;
        let (a, b) = (self.into[dim], self.from[dim]);
        if b == f32::NEG_INFINITY {
            return;
        }
        let maximum = a.max(b);
        let weights = isa.to_f32s(exp(isa, isa.halves(a - maximum, b - maximum)));
        let (wa, wb) = (isa.splat_f32(weights[0]), isa.splat_f32(weights[7]));
        let to = self.into[..dim].as_chunks_mut::<8>().0;
        for (to, from) in to.iter_mut().zip(self.from.as_chunks::<8>().0) {
            let scaled = isa.mul(isa.load_f32(to), wa);
            *to = isa.to_f32s(isa.mul_add(isa.load_f32(from), wb, scaled));
        }
        self.into[dim] = maximum;
        self.into[dim + 1] = self.into[dim + 1] * weights[0] + self.from[dim + 1] * weights[7];
    }
}

/// The result of a partial: as many of its values as `out` takes, divided by their sum.
pub fn finish(partial: &[f32], out: &mut [f32]) {
    let inverse = 1.0 / partial[partial.len() - 1];
    for (out, value) in out.iter_mut().zip(partial) {
        *out = value * inverse;
    }
}
