//! Speculative prefill: a draft model reads the prompt, and the model computes only the part of it that
//! the draft model attends to. The first token of a long prompt comes sooner; the answer may change.
//!
//! ```text
//! the draft model reads the prompt, and generates 7 tokens greedily
//! score(i)  = mean over these tokens and the prompt's last one of
//!             maximum over layers and heads of
//!             mean over j = i - 6 .. i + 6 of p(j)          p: attention to the prompt alone
//! chunks    = the prompt in pieces of 32, each with the mean of its scores
//! the model computes a share of the prompt: its first 128 and last 512 tokens, then the best chunks
//! with 16 tokens on each side; each token at its place in the prompt (see Engine::omit)
//! ```
//! Liu, Chen and Zhang 2025, "Speculative Prefill: Turbocharging TTFT with Lightweight and Training-Free
//! Token Importance Estimation" (arXiv:2502.02789). Formula, number of tokens, pooling and chunks are
//! those of their program (github.com/Jingyu6/speculative_prefill, `look_ahead_spec_worker.py`). The answer
//! has the positions after the whole prompt, as in their program. Deviations:
//!
//! - Their program computes no chunk that is not among the best. Here the start of the prompt, where a
//!   short system message is, and its end, where the question is, are computed as well.
//! - Their chunks have no tokens on each side, so that sentences are cut. Of a number without its name, a
//!   model says the name that it was asked for.
//! - Tokens that are cached already are neither ranked nor counted in the share.
//! - The draft model's layers may have sliding windows. A token outside of a window has probability 0 there.

use std::{mem, ops::Range};

use crate::platform::processors::plural;

/// The number of tokens with queries: the last one of the prompt, and those generated.
pub const LOOK_AHEAD: usize = 8;
/// The number of tokens that are chosen together.
const CHUNK: usize = 32;
/// The number of tokens on each side of a chosen chunk that are computed with it.
const MARGIN: usize = 16;
/// The number of first tokens that are always computed.
const FIRST: usize = 128;
/// The number of last tokens that are always computed.
const LAST: usize = 512;

/// The settings of speculative prefill.
///
/// ```
/// use rope_cpu::{batch::Options, generate::speculation::SpeculativePrefill};
///
/// // Computes a fifth of long prompts. Each slot needs a draft model as well.
/// let prefill = Some(SpeculativePrefill::new(0.2));
/// let options = Options { prefill, ..Options::new(1) };
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeculativePrefill {
    /// The share of a prompt to compute, above 0 and up to 1.
    pub share: f64,
    /// Minimum number of prompt tokens that are not cached. Shorter prompts are computed whole.
    pub length_min: usize,
}

/// The scores of a prompt's tokens.
#[derive(Clone, Debug, PartialEq)]
pub enum Scores {
    /// The score of each token.
    Of(Vec<f32>),
    /// The caller stopped the draft model before it had read the prompt. Ask again.
    Incomplete,
    /// There is no draft model, or it has no room for the prompt.
    None,
}

impl SpeculativePrefill {
    /// Returns the settings for a share of prompts, from 2,048 tokens on.
    pub fn new(share: f64) -> Self {
        SpeculativePrefill { share, length_min: 2048 }
    }

    /// Describes the settings in one line.
    pub fn line(&self) -> String {
        let SpeculativePrefill { share, length_min } = self;
        format!(
            "Speculative prefill: from {length_min} prompt tokens on, only {} % of them are computed; answers \
             may lack what the others say",
            (share * 1000.0).round() / 10.0
        )
    }

    /// Returns whether a prompt has enough tokens after the first `cached` ones, which are computed already.
    pub fn applies(&self, prompt: usize, cached: usize) -> bool {
        prompt.saturating_sub(cached) >= self.length_min
    }

    /// Returns the tokens to leave out of a prompt with these scores. The first `cached` tokens are
    /// computed already.
    ///
    /// ```
    /// use rope_cpu::generate::speculation::SpeculativePrefill;
    ///
    /// let scores: Vec<f32> = (0..4096).map(|i| if i / 32 == 50 { 1.0 } else { 0.0 }).collect();
    /// let omitted = SpeculativePrefill::new(0.16).omitted(&scores, 0);
    /// assert_eq!(omitted, [128..1584, 1648..3584]);
    /// ```
    pub fn omitted(&self, scores: &[f32], cached: usize) -> Vec<Range<usize>> {
        let length = scores.len();
        let cached = cached.min(length);
        let mut computed = vec![false; length];
        let mut left = ((length - cached) as f64 * self.share).ceil();
        let mut compute = |range: Range<usize>| {
            let tokens = computed.get_mut(range.start.max(cached)..range.end.min(length));
            for computed in tokens.into_iter().flatten() {
                left -= f64::from(!mem::replace(computed, true));
            }
            left > 0.0
        };
        compute(0..FIRST);
        let mut more = compute(length.saturating_sub(LAST)..length);
        let of = |chunk: usize| (chunk * CHUNK).max(cached)..((chunk + 1) * CHUNK).min(length);
        let mean =
            |range: Range<usize>| scores[range.clone()].iter().sum::<f32>() / range.len() as f32;
        let chunks = cached / CHUNK..length.div_ceil(CHUNK);
        let mut ranked: Vec<(f32, usize)> = chunks.map(|chunk| (mean(of(chunk)), chunk)).collect();
        // Earlier chunks first among equals.
        ranked.sort_by(|(a, i), (b, j)| b.total_cmp(a).then(i.cmp(j)));
        for (_, chunk) in ranked {
            if !more {
                break;
            }
            let Range { start, end } = of(chunk);
            more = compute(start.saturating_sub(MARGIN)..end + MARGIN);
        }
        let mut omitted: Vec<Range<usize>> = Vec::new();
        for token in (cached..length).filter(|token| !computed[*token]) {
            match omitted.last_mut().filter(|last| last.end == token) {
                Some(last) => last.end += 1,
                None => omitted.push(token..token + 1),
            }
        }
        omitted
    }
}

/// Describes what was left out of a prompt: `Speculative prefill: 3,328 of 16,384 prompt tokens ..`.
pub fn line(prompt: usize, reused: usize, omitted: usize) -> String {
    let computed = prompt - reused - omitted;
    format!(
        "Speculative prefill: {computed} of {} computed, {omitted} left out{}",
        plural(prompt, "prompt token"),
        if reused > 0 { format!(", {reused} reused") } else { String::new() }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn omitted(share: f64, scores: &[f32], cached: usize) -> Vec<Range<usize>> {
        SpeculativePrefill { share, length_min: 0 }.omitted(scores, cached)
    }

    fn one(range: Range<usize>) -> Vec<Range<usize>> {
        vec![range]
    }

    #[test]
    fn the_best_chunks_and_both_ends_stay() {
        let mut scores = vec![0.0; 2000];
        scores[700..720].fill(1.0);
        scores[1000] = 2.0;
        assert_eq!(omitted(0.1, &scores, 0), one(128..1488));
        // The ends, and the chunks from 704 and from 672 on.
        assert_eq!(omitted(0.36, &scores, 0), [128..656, 752..1488]);
        assert_eq!(omitted(0.38, &scores, 0), [128..656, 752..976, 1040..1488]);
        let kept = |share| 2000 - omitted(share, &scores, 0).iter().map(Range::len).sum::<usize>();
        assert_eq!(kept(1.0), 2000);
        assert!(kept(0.5) >= 1000 && kept(0.5) < 1000 + CHUNK + 2 * MARGIN);
        assert!(omitted(0.1, &scores[..600], 0).is_empty() && omitted(0.1, &[], 0).is_empty());
    }

    #[test]
    fn cached_tokens_are_neither_ranked_nor_left_out() {
        let mut scores = vec![0.0; 2000];
        scores[..800].fill(1.0);
        scores[1400] = 0.5;
        assert_eq!(omitted(0.02, &scores, 810), one(810..1488));
        assert_eq!(omitted(0.44, &scores, 810), [810..1360, 1424..1488]);
        for cached in [1900, 2000] {
            assert!(omitted(0.02, &scores, cached).is_empty());
        }
    }
}
