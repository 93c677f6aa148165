//! Tokens without meaning: how long they take to compute does not depend on which they are.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use crate::Token;

/// Always the same tokens, in a row without end.
pub struct RandomTokens {
    random: Pcg64,
    vocabulary: u64,
}

impl RandomTokens {
    /// Tokens of a vocabulary of this size.
    pub fn new(vocabulary: usize) -> Self {
        RandomTokens { random: Pcg64::seed_from_u64(0), vocabulary: vocabulary.max(1) as u64 }
    }

    /// The next `count` of them.
    pub fn take(&mut self, count: usize) -> Vec<Token> {
        (0..count).map(|_| (self.random.next_u64() % self.vocabulary) as Token).collect()
    }
}
