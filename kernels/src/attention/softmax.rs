//! Converts a page's scores to probabilities, and scales partials to the new maxima.
//!
//! ```text
//! a few queries, one after the other: lanes are positions, so maxima and sums run over lanes
//! many queries, 16 side by side:      lanes are queries
//! ```
//! The two differ in how they find maxima and exclude invisible positions. The rest is [`Step`].

use super::{
    Lanes, PAGE, Page,
    partial::{partial_len, rescale},
};
use crate::{
    isa::{Isa, Kernel, LANES},
    vector::{exp, soft_capped},
};

/// A step of the online softmax to new maxima, in each lane.
struct Step<I: Isa> {
    isa: I,
    minus_maximum: I::WideFloats,
    /// Scales partials that have the old maximum. It is not a vector, since that would occupy a
    /// register until the partials are scaled.
    factor: [f32; LANES],
    /// The sum of all probabilities.
    sum: I::WideFloats,
}

impl<I: Isa> Step<I> {
    #[inline(always)]
    fn new(isa: I, old_maximum: I::WideFloats, minus_maximum: I::WideFloats) -> Self {
        let factor = isa.wide_to_f32s(exp(isa, isa.wide_add(old_maximum, minus_maximum)));
        Step { isa, minus_maximum, factor, sum: isa.wide_splat(0.0) }
    }

    /// Returns the probabilities of scores, and adds them to the sum.
    #[inline(always)]
    fn probabilities(&mut self, scores: I::WideFloats) -> [f32; LANES] {
        let p = exp(self.isa, self.isa.wide_add(scores, self.minus_maximum));
        self.sum = self.isa.wide_add(self.sum, p);
        self.isa.wide_to_f32s(p)
    }
}

/// A few queries. Invisible positions get probability 0.
pub(super) struct Few<'a> {
    pub page: &'a Page<'a>,
    /// (heads, queries, PAGE)
    pub scores: &'a mut [[f32; PAGE]],
    pub partials: &'a mut [f32],
}

impl Kernel for Few<'_> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Page { queries, visible, span, .. } = self.page;
        let visible = visible.iter().cycle();
        let partials = self.partials.chunks_exact_mut(partial_len(queries.dim));
        for ((scores, visible), partial) in self.scores.iter_mut().zip(visible).zip(partials) {
            if visible.is_empty() {
                scores[span.clone()].fill(0.0);
                continue;
            }
            scores[span.start..visible.start].fill(0.0);
            scores[visible.end..span.end].fill(0.0);
            one(isa, &mut scores[visible.clone()], queries.soft_cap, partial);
        }
    }
}

/// Converts the visible scores of one query.
#[inline(always)]
fn one<I: Isa>(isa: I, scores: &mut [f32], soft_cap: Option<f32>, partial: &mut [f32]) {
    let Some(&[old, _]) = partial.last_chunk() else { return };
    let old = isa.wide_splat(old);
    let mut largest = old;
    for part in scores.chunks_mut(LANES) {
        let mut s = isa.wide_load_f32(&padded(part));
        if let Some(cap) = soft_cap {
            let capped = isa.wide_to_f32s(soft_capped(isa, s, cap));
            part.copy_from_slice(&capped[..part.len()]);
            s = isa.wide_load_f32(&padded(part));
        }
        largest = isa.wide_max(largest, s);
    }
    let [a, b] = isa.wide_halves(largest);
    let maximum = isa.max_lane(isa.max(a, b));
    let mut step = Step::new(isa, old, isa.wide_splat(-maximum));
    for part in scores.chunks_mut(LANES) {
        let p = step.probabilities(isa.wide_load_f32(&padded(part)));
        part.copy_from_slice(&p[..part.len()]);
    }
    let [a, b] = isa.wide_halves(step.sum);
    rescale(isa, partial, step.factor[0], maximum, isa.sum(isa.add(a, b)));
}

/// Returns up to 16 scores, padded with minus infinity (probability 0).
#[inline(always)]
fn padded(scores: &[f32]) -> [f32; LANES] {
    scores.as_array().copied().unwrap_or_else(|| {
        let mut all = [f32::NEG_INFINITY; LANES];
        all[..scores.len()].copy_from_slice(scores);
        all
    })
}

/// Many queries. Invisible positions get score minus infinity, and so probability 0.
pub(super) struct Many<'a> {
    pub page: &'a Page<'a>,
    /// (queries / 16, PAGE)
    pub scores: &'a mut [[Lanes; PAGE]],
    pub partials: &'a mut [f32],
}

impl Kernel for Many<'_> {
    const FLOATS: bool = true;
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let Page { queries, visible, span, .. } = self.page;
        let partials = self.partials.chunks_mut(LANES * partial_len(queries.dim));
        for ((scores, visible), partials) in
            self.scores.iter_mut().zip(visible.chunks(LANES)).zip(partials)
        {
            let scores = &mut scores[span.clone()];
            if let Some(cap) = queries.soft_cap {
                for s in &mut *scores {
                    s.0 = isa.wide_to_f32s(soft_capped(isa, isa.wide_load_f32(&s.0), cap));
                }
            }
            for (lane, visible) in visible.iter().enumerate() {
                let (before, after) = if visible.is_empty() {
                    (scores.len(), scores.len())
                } else {
                    (visible.start - span.start, visible.end - span.start)
                };
                for s in &mut scores[..before] {
                    s.0[lane] = f32::NEG_INFINITY;
                }
                for s in &mut scores[after..] {
                    s.0[lane] = f32::NEG_INFINITY;
                }
            }
            sixteen(isa, scores, partials, queries.dim);
        }
    }
}

/// Converts the scores of up to 16 queries.
#[inline(always)]
fn sixteen<I: Isa>(isa: I, scores: &mut [Lanes], partials: &mut [f32], dim: usize) {
    let mut old = [f32::NEG_INFINITY; LANES];
    for (old, partial) in old.iter_mut().zip(partials.chunks_exact(partial_len(dim))) {
        *old = partial[dim];
    }
    let old = isa.wide_load_f32(&old);
    let mut maxima = old;
    for s in &*scores {
        maxima = isa.wide_max(maxima, isa.wide_load_f32(&s.0));
    }
    // The maximum of a query without keys is minus infinity, and subtracting that from itself would
    // give NaN.
    let finite = isa.wide_max(maxima, isa.wide_splat(f32::MIN));
    let mut step = Step::new(isa, old, isa.wide_mul(finite, isa.wide_splat(-1.0)));
    for s in &mut *scores {
        s.0 = step.probabilities(isa.wide_load_f32(&s.0));
    }
    let (maxima, sums) = (isa.wide_to_f32s(maxima), isa.wide_to_f32s(step.sum));
    for (lane, partial) in partials.chunks_exact_mut(partial_len(dim)).enumerate() {
        rescale(isa, partial, step.factor[lane], maxima[lane], sums[lane]);
    }
}
