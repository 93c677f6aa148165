//! Random tokens and choices that are the same in every run.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use crate::Token;

/// An endless sequence of random tokens, always the same. Measurements of time do not depend on
/// them.
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

/// Random choices that depend on a few numbers only, such as a seed and the number of a test.
pub struct Random(Pcg64);

impl Random {
    /// Creates the choices for these numbers.
    pub fn new(numbers: &[u64]) -> Self {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Random(Pcg64::seed_from_u64(crc32fast::hash(&bytes).into()))
    }

    /// Returns a number below `bound`, or 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.0.next_u64() % bound.max(1) as u64) as usize
    }

    /// Returns `count` different numbers below `bound` in random order, or all of them if there are
    /// fewer.
    pub fn distinct(&mut self, count: usize, bound: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..bound).collect();
        let count = count.min(bound);
        for i in 0..count {
            let other = i + self.below(bound - i);
            all.swap(i, other);
        }
        all.truncate(count);
        all
    }

    /// Puts items in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// Returns `count` random letters from `first` on, of an alphabet of 26.
    pub fn letters(&mut self, count: usize, first: u8) -> String {
        (0..count).map(|_| char::from(first + self.below(26) as u8)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_depend_on_all_numbers_and_on_nothing_else() {
        let first = |numbers: &[u64]| Random::new(numbers).below(1 << 30);
        assert_eq!(first(&[1, 2]), first(&[1, 2]));
        assert_ne!(first(&[1, 2]), first(&[2, 1]));
        assert_ne!(first(&[1, 2]), first(&[1, 2, 0]));
    }

    #[test]
    fn distinct_numbers_are_each_once() {
        let mut some = Random::new(&[3]).distinct(20, 50);
        some.sort_unstable();
        some.dedup();
        assert_eq!((some.len(), some.iter().max().unwrap() < &50), (20, true));
        let mut all = Random::new(&[3]).distinct(9, 5);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
        let mut shuffled = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        Random::new(&[4]).shuffle(&mut shuffled);
        assert_ne!(shuffled, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        shuffled.sort_unstable();
        assert_eq!(shuffled, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }
}
