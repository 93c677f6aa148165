//! The list of tokens that can still be chosen, in a reused buffer.

use std::cmp::Ordering;

use super::{Error, stage::AdjustLogits};
use crate::Token;

/// A token that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The token.
    pub token: Token,
    /// The logit, as changed by the samplers.
    pub logit: f32,
    /// The probability among the candidates.
    pub probability: f32,
}

/// Orders candidates by logit, highest first. Equal logits are ordered by token.
fn order(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

#[derive(Debug, Default)]
pub(super) struct Candidates {
    list: Vec<Candidate>,
    sorted: bool,
}

impl Candidates {
    /// Fills the list with the `k` likeliest tokens of a vocabulary, or all tokens if `k` is 0.
    ///
    /// For a `k` far below the vocabulary size, nearly every logit takes only one comparison: only
    /// logits above the k-th best so far are kept, and the list is truncated to k when it is full.
    pub fn fill(&mut self, logits: &[f32], k: usize) -> Result<(), Error> {
        self.list.clear();
        self.sorted = false;
        let full = if k == 0 { usize::MAX } else { k.saturating_mul(2).max(1024) };
        let mut threshold = f32::NEG_INFINITY;
        for (token, &logit) in logits.iter().enumerate() {
            if logit.is_nan() || logit == f32::INFINITY {
                return Err(Error::Logit { token, logit });
            }
            // A later equal logit has a higher token, so it is dropped.
            if logit > threshold {
                self.list.push(Candidate { token: token as Token, logit, probability: 0.0 });
                if self.list.len() == full {
                    self.cut(k);
                    threshold = self.list[k - 1].logit;
                }
            }
        }
        if k > 0 {
            self.cut(k);
            self.sort(self.list.len());
        }
        if self.list.is_empty() { Err(Error::NoCandidate) } else { Ok(()) }
    }

    /// Keeps the `k` likeliest, with the k-th last and the others in any order.
    fn cut(&mut self, k: usize) {
        if self.list.len() > k {
            self.list.select_nth_unstable_by(k - 1, order);
            self.list.truncate(k);
        }
    }

    /// Moves the `count` likeliest to the start, in order.
    pub fn sort(&mut self, count: usize) {
        if self.sorted {
            return;
        }
        if count < self.list.len() {
            self.list.select_nth_unstable_by(count, order);
            self.list[..count].sort_unstable_by(order);
        } else {
            self.list.sort_unstable_by(order);
            self.sorted = true;
        }
    }

    /// Returns the number of candidates, from the start, until `enough` accepts the sum of their
    /// probabilities; `None` if the first `most` do not suffice. The sum is an f32, as in
    /// llama.cpp, so that the same tokens are kept at the boundary.
    pub fn prefix(&self, most: usize, enough: impl Fn(f32) -> bool) -> Option<usize> {
        let mut sum = 0.0;
        let reached = self.list[..most].iter().position(|c| {
            sum += c.probability;
            enough(sum)
        });
        reached.map(|last| last + 1)
    }

    pub fn as_slice(&self) -> &[Candidate] {
        &self.list
    }

    pub fn largest_logit(&self) -> f32 {
        self.list.iter().map(|c| c.logit).fold(f32::NEG_INFINITY, f32::max)
    }

    /// Sets the probabilities to the softmax of the logits.
    pub fn softmax(&mut self) {
        let max = self.largest_logit();
        let mut sum = 0.0f64;
        for c in &mut self.list {
            c.probability = (c.logit - max).exp();
            sum += f64::from(c.probability);
        }
        for c in &mut self.list {
            c.probability = (f64::from(c.probability) / sum) as f32;
        }
    }

    /// Subtracts the largest logit and divides by a temperature, which may be any number above 0.
    pub fn divide(&mut self, temperature: f32) {
        let max = self.largest_logit();
        for c in &mut self.list {
            c.logit = (c.logit - max) / temperature;
        }
    }

    /// Changes the logits of some tokens.
    pub fn adjust(&mut self, stage: &impl AdjustLogits) {
        for c in &mut self.list {
            c.logit = stage.adjusted(c.token, c.logit);
        }
        self.sorted = false;
    }

    /// Keeps only the `k` likeliest.
    pub fn keep_best(&mut self, k: usize) {
        if !self.sorted {
            self.cut(k);
        }
        self.list.truncate(k);
    }

    /// Sorts by `key`, the smallest first; of equals the likeliest first.
    pub fn sort_by_key(&mut self, key: impl Fn(&Candidate) -> f32) {
        self.list.sort_unstable_by(|a, b| key(a).total_cmp(&key(b)).then(order(a, b)));
        self.sorted = false;
    }

    /// Removes the first `count` candidates.
    pub fn drop_first(&mut self, count: usize) {
        self.list.drain(..count);
    }

    pub fn truncate(&mut self, len: usize) {
        self.list.truncate(len);
    }

    pub fn retain(&mut self, keep: impl FnMut(&Candidate) -> bool) {
        self.list.retain(keep);
    }
}
