//! Stages that drop candidates by their probabilities. Sums are f32, as in llama.cpp, so that the
//! same tokens are kept at the boundary.

use super::candidates::{Candidate, Candidates};

/// Returns the length of the shortest prefix of `list` whose sum of probabilities is `enough`.
fn prefix(list: &[Candidate], enough: impl Fn(f32) -> bool) -> Option<usize> {
    let mut sum = 0.0;
    let reached = list.iter().position(|c| {
        sum += c.probability;
        enough(sum)
    });
    reached.map(|last| last + 1)
}

/// Keeps the logits within `n` standard deviations of the largest: top-n-sigma (arXiv:2411.07641).
pub(super) fn top_n_sigma(candidates: &mut Candidates, n: f32) {
    let len = candidates.as_slice().len() as f32;
    let sum_of =
        |f: &dyn Fn(f32) -> f32| -> f32 { candidates.as_slice().iter().map(|c| f(c.logit)).sum() };
    let mean = sum_of(&|logit| logit) / len;
    let deviation = (sum_of(&|logit| (logit - mean) * (logit - mean)) / len).sqrt();
    let least = candidates.largest_logit() - n * deviation;
    candidates.retain(|c| c.logit >= least);
}

/// Drops all but the least likely of the tokens with a probability of at least `threshold`: XTC
/// ("exclude top choices", by p-e-w, oobabooga/text-generation-webui#6335).
pub(super) fn exclude_top(candidates: &mut Candidates, threshold: f32) {
    candidates.softmax();
    candidates.sort(candidates.as_slice().len());
    let above = candidates.as_slice().iter().take_while(|c| c.probability >= threshold).count();
    candidates.drop_first(above.saturating_sub(1));
}

/// Keeps the tokens whose surprise, -ln p, is nearest to the expected one (the entropy), until the
/// sum of their probabilities exceeds `p`: locally typical sampling.
pub(super) fn typical_p(candidates: &mut Candidates, p: f32) {
    if p >= 1.0 {
        return;
    }
    candidates.softmax();
    let surprise = |c: &Candidate| -c.probability.ln();
    let list = candidates.as_slice();
    let possible = list.iter().filter(|c| c.probability > 0.0);
    let entropy: f32 = possible.map(|c| c.probability * surprise(c)).sum();
    candidates.sort_by_key(|c| (surprise(c) - entropy).abs());
    if let Some(kept) = prefix(candidates.as_slice(), |sum| sum > p) {
        candidates.truncate(kept);
    }
}

/// Keeps the likeliest tokens until the sum of their probabilities reaches `p`: nucleus sampling.
pub(super) fn top_p(candidates: &mut Candidates, p: f32) {
    if p >= 1.0 {
        return;
    }
    candidates.softmax();
    // The vocabulary is large and the nucleus small, so only the required prefix is sorted.
    let len = candidates.as_slice().len();
    let mut head = len.min(256);
    loop {
        candidates.sort(head);
        if let Some(kept) = prefix(&candidates.as_slice()[..head], |sum| sum >= p) {
            return candidates.truncate(kept);
        }
        if head == len {
            return;
        }
        head = len.min(head * 8);
    }
}

/// Keeps the tokens whose probability is at least `p` times that of the likeliest.
pub(super) fn min_p(candidates: &mut Candidates, p: f32) {
    if p > 0.0 {
        let least = candidates.largest_logit() + p.ln();
        candidates.retain(|c| c.logit >= least);
    }
}
