//! Measures the share of right drafts.

use super::DRAFTS_MAX;
use crate::Token;

/// The assumed share of right drafts at each depth, until it is measured.
const PRIOR: f64 = 0.7;
/// The number of drafts over which the share is averaged.
const MEMORY: f64 = 16.0;

/// The share of right drafts at each depth, averaged over recent drafts.
#[derive(Clone, Debug)]
pub struct Acceptance {
    /// The last drafts, and the number of tokens of the text before them.
    drafts: Vec<Token>,
    drafted_at: usize,
    right: [f64; DRAFTS_MAX],
}

impl Default for Acceptance {
    fn default() -> Self {
        Acceptance { drafts: Vec::new(), drafted_at: 0, right: [PRIOR; DRAFTS_MAX] }
    }
}

impl Acceptance {
    /// Drops the last drafts without counting them.
    pub fn forget(&mut self) {
        self.drafts.clear();
    }

    /// Records the drafts of the tokens after `text`.
    pub fn drafted(&mut self, text: &[Token], drafts: &[Token]) {
        self.drafts.clear();
        self.drafts.extend_from_slice(drafts);
        self.drafted_at = text.len();
    }

    /// Counts which of the last drafts followed in `text`.
    pub fn follow(&mut self, text: &[Token]) {
        let after = text.get(self.drafted_at..).unwrap_or_default();
        for ((draft, token), share) in self.drafts.drain(..).zip(after).zip(&mut self.right) {
            let right = draft == *token;
            *share += (f64::from(u8::from(right)) - *share) / MEMORY;
            if !right {
                break;
            }
        }
    }

    /// Returns the share of right drafts at a depth, among drafts with only right ones before them.
    pub fn share(&self, depth: usize) -> f64 {
        self.right.get(depth).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_drafts_after_right_ones() {
        let mut acceptance = Acceptance::default();
        let mut text = vec![1, 2];
        for _ in 0..100 {
            acceptance.drafted(&text, &[7, 8, 9]);
            // The second draft is wrong, so the third proves nothing.
            text.extend([7, 5]);
            acceptance.follow(&text);
        }
        let [first, second, third] = [0, 1, 2].map(|depth| acceptance.share(depth));
        assert!(first > 0.99 && second < 0.01, "{first}, {second}");
        assert_eq!((third, acceptance.share(DRAFTS_MAX)), (PRIOR, 0.0));
        // Drafts are counted once. Forgotten drafts are not counted.
        acceptance.follow(&text);
        acceptance.drafted(&text, &[7]);
        acceptance.forget();
        acceptance.follow(&[&text[..], &[6]].concat());
        assert_eq!(acceptance.share(0), first);
    }
}
