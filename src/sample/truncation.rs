//! Samplers that drop candidates by their probabilities. Sums are f32, as in llama.cpp, so that
//! the same tokens are kept at the edge.

use super::candidates::{Candidate, Candidates};

/// The shortest prefix of `list` whose probabilities satisfy `enough` when summed.
fn prefix(list: &[Candidate], enough: impl Fn(f32) -> bool) -> Option<usize> {
    let mut sum = 0.0;
    let reached = list.iter().position(|c| {
        sum += c.probability;
        enough(sum)
    });
    reached.map(|last| last + 1)
}

/// Top-n-sigma: the logits within `n` standard deviations of the largest (arXiv:2411.07641).
pub(super) fn top_n_sigma(candidates: &mut Candidates, n: f32) {
    let len = candidates.as_slice().len() as f32;
    let sum_of =
        |f: &dyn Fn(f32) -> f32| -> f32 { candidates.as_slice().iter().map(|c| f(c.logit)).sum() };
    let mean = sum_of(&|logit| logit) / len;
    let deviation = (sum_of(&|logit| (logit - mean) * (logit - mean)) / len).sqrt();
    let least = candidates.largest_logit() - n * deviation;
    candidates.retain(|c| c.logit >= least);
}

/// XTC ("exclude top choices", by p-e-w, oobabooga/text-generation-webui#6335): of the tokens whose
/// probability is at least `threshold`, only the least likely.
pub(super) fn exclude_top(candidates: &mut Candidates, threshold: f32) {
    candidates.softmax();
    candidates.sort(candidates.as_slice().len());
    let above = candidates.as_slice().iter().take_while(|c| c.probability >= threshold).count();
    candidates.drop_first(above.saturating_sub(1));
}

/// Locally typical sampling: the tokens whose surprise, -ln p, is nearest to the expected one
/// (the entropy), until their probabilities exceed `p`.
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

/// Nucleus sampling: the likeliest tokens until their probabilities reach `p`.
pub(super) fn top_p(candidates: &mut Candidates, p: f32) {
    if p >= 1.0 {
        return;
    }
    candidates.softmax();
    // A vocabulary is long and its nucleus short: sort as much as is needed.
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

/// The tokens whose probability is at least `p` times that of the likeliest.
pub(super) fn min_p(candidates: &mut Candidates, p: f32) {
    if p > 0.0 {
        let least = candidates.largest_logit() + p.ln();
        candidates.retain(|c| c.logit >= least);
    }
}
