//! Random tokens for measurements of time, which does not depend on the tokens.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use crate::Token;

/// An endless sequence of random tokens, always the same.
pub struct RandomTokens {
    random: Pcg64,
    vocabulary: u64,
}

impl RandomTokens {
    /// Creates the sequence for a vocabulary of this size.
    pub fn new(vocabulary: usize) -> Self {
        RandomTokens { random: Pcg64::seed_from_u64(0), vocabulary: vocabulary.max(1) as u64 }
    }

    /// Returns the next `count` tokens.
    pub fn take(&mut self, count: usize) -> Vec<Token> {
        (0..count).map(|_| (self.random.next_u64() % self.vocabulary) as Token).collect()
    }
}
