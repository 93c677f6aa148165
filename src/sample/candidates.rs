//! The tokens that may still be chosen, in a buffer that is reused.

use std::cmp::Ordering;

use super::{Error, stage::Adjust};
use crate::Token;

/// A token that may be chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The token.
    pub token: Token,
    /// Its logit after what the samplers did to it.
    pub logit: f32,
    /// Its probability among the candidates.
    pub probability: f32,
}

/// Likeliest first; among equals, the lower token.
fn order(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token))
}

#[derive(Debug, Default)]
pub(super) struct Candidates {
    list: Vec<Candidate>,
    sorted: bool,
}

impl Candidates {
    /// Takes the `k` likeliest tokens of a vocabulary, or all of them if `k` is 0.
    ///
    /// For a `k` far below the vocabulary, nearly every logit costs one comparison: only those
    /// above the k-th best so far are kept, and the list is cut back to k when it is full.
    pub fn fill(&mut self, logits: &[f32], k: usize) -> Result<(), Error> {
        self.list.clear();
        self.sorted = false;
        let full = if k == 0 { usize::MAX } else { k.saturating_mul(2).max(1024) };
        let mut threshold = f32::NEG_INFINITY;
        for (token, &logit) in logits.iter().enumerate() {
            if logit.is_nan() || logit == f32::INFINITY {
                return Err(Error::Logit { token, logit });
            }
            // An equal logit comes later, thus with a higher token, and loses.
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

    /// Keeps the `k` likeliest, with the k-th at its place and the others in any order.
    fn cut(&mut self, k: usize) {
        if self.list.len() > k {
            self.list.select_nth_unstable_by(k - 1, order);
            self.list.truncate(k);
        }
    }

    /// Puts the `count` likeliest first, in order.
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

    pub fn as_slice(&self) -> &[Candidate] {
        &self.list
    }

    pub fn largest_logit(&self) -> f32 {
        self.list.iter().map(|c| c.logit).fold(f32::NEG_INFINITY, f32::max)
    }

    /// Sets the probabilities: softmax of the logits.
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

    /// Divides the logits, measured from the largest, by a temperature above 0, however small.
    pub fn divide(&mut self, temperature: f32) {
        let max = self.largest_logit();
        for c in &mut self.list {
            c.logit = (c.logit - max) / temperature;
        }
    }

    /// Changes the logits of some tokens.
    pub fn adjust(&mut self, adjust: &impl Adjust) {
        for c in &mut self.list {
            c.logit = adjust.adjust(c.token, c.logit);
        }
        self.sorted = false;
    }

    /// Keeps the `k` likeliest alone.
    pub fn keep_best(&mut self, k: usize) {
        if !self.sorted {
            self.cut(k);
        }
        self.list.truncate(k);
    }

    /// Reorders by `key`, smallest first; among equals, likeliest first.
    pub fn sort_by_key(&mut self, key: impl Fn(&Candidate) -> f32) {
        self.list.sort_unstable_by(|a, b| key(a).total_cmp(&key(b)).then(order(a, b)));
        self.sorted = false;
    }

    /// Drops the first `count`.
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
