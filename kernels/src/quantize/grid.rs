//! Finds the nearest entries of a code book.
//!
//! Trying all entries for every vector and scale would take minutes for a small model. So each
//! weight is first rounded to the nearest level. If the code book has an entry with these levels,
//! that is the answer. Otherwise the answer is one of the entries near them. These are listed once
//! for all combinations of levels.

use bytemuck::{AnyBitPattern, must_cast_ref};

use super::{Codes, Multipliers, ScaledBlock, inverse};

/// A code book of vectors of `L` weights, prepared for searches.
pub(crate) struct Grid<const L: usize> {
    entries: Vec<[f32; L]>,
    /// The middles between two levels.
    middles: Vec<f32>,
    /// The nearest entries for each combination of levels. If an entry has exactly these levels,
    /// only that one.
    near: Vec<[u16; NEAR]>,
}

/// The number of entries that are tried.
const NEAR: usize = 24;

impl<const L: usize> Grid<L> {
    /// Prepares a code book. `levels` has the values of its entries in ascending order, in the unit of
    /// the scale; the bytes of the entries are the same values times `unit`, plus `center`.
    pub fn new(entries: &[[u8; L]], unit: u8, center: u8) -> Self {
        let mut bytes: Vec<u8> = entries.iter().flatten().copied().collect();
        bytes.sort_unstable();
        bytes.dedup();
        let value = |byte: u8| (f32::from(byte) - f32::from(center)) / f32::from(unit);
        let middles = bytes.windows(2).map(|two| 0.5 * (value(two[0]) + value(two[1]))).collect();
        let combinations = bytes.len().pow(L as u32);
        let mut distances = vec![0; entries.len()];
        let near = (0..combinations).map(|combination| {
            let level = |i: usize| bytes[combination / bytes.len().pow(i as u32) % bytes.len()];
            let levels: [u8; L] = std::array::from_fn(level);
            for (index, (distance, entry)) in distances.iter_mut().zip(entries).enumerate() {
                let squares =
                    levels.iter().zip(entry).map(|(a, b)| u32::from(a.abs_diff(*b)).pow(2));
                // The index decides between entries at one distance.
                *distance = squares.sum::<u32>() << 11 | index as u32;
            }
            distances.select_nth_unstable(NEAR - 1);
            let index = |distance: u32| (distance & 0x7ff) as u16;
            match distances[..NEAR].iter().find(|&&distance| distance >> 11 == 0) {
                Some(&same) => [index(same); NEAR],
                None => std::array::from_fn(|i| index(distances[i])),
            }
        });
        let near = near.collect();
        Grid { entries: entries.iter().map(|entry| entry.map(value)).collect(), middles, near }
    }

    /// Returns the index of the entry with the smallest error, its values, and the error.
    #[inline]
    pub fn nearest_vector(
        &self,
        weights: &[f32; L],
        importance: &[f32; L],
        scale: f32,
    ) -> (u16, [f32; L], f32) {
        let inverse = inverse(scale);
        let levels = self.middles.len() + 1;
        let combination = weights.iter().rev().fold(0, |combination, weight| {
            let weight = weight * inverse;
            let level = self.middles.iter().filter(|&&middle| weight > middle).count();
            combination * levels + level
        });
        let near = &self.near[combination];
        let error = |index: u16| {
            let entry = &self.entries[usize::from(index)];
            let change = |i: usize| scale * entry[i] - weights[i];
            (0..L).map(|i| importance[i] * change(i) * change(i)).sum::<f32>()
        };
        let mut found = (near[0], error(near[0]));
        if near[0] != near[1] {
            for &index in &near[1..] {
                let error = error(index);
                if error < found.1 {
                    found = (index, error);
                }
            }
        }
        (found.0, self.entries[usize::from(found.0)], found.1)
    }
}

/// Groups of `G / L` vectors; a code has their indices.
impl<const L: usize, const G: usize> Codes<G> for Grid<L> {
    const SIGNED: bool = false;
    type Code = [u16; VECTORS_MAX];
    fn nearest(
        &self,
        weights: &[f32; G],
        importance: &[f32; G],
        scale: f32,
    ) -> ([u16; VECTORS_MAX], [f32; G]) {
        let (mut code, mut values) = ([0; VECTORS_MAX], [0.0; G]);
        let vectors = weights.as_chunks().0.iter().zip(importance.as_chunks().0);
        let places = code.iter_mut().zip(values.as_chunks_mut().0);
        for ((weights, importance), (index, values)) in vectors.zip(places) {
            (*index, *values, _) = self.nearest_vector(weights, importance, scale);
        }
        (code, values)
    }
}

/// The maximum number of vectors of a group.
pub(crate) const VECTORS_MAX: usize = 8;

/// The magnitudes of 256 weights and their signs, a bit for each.
pub(crate) struct Magnitudes {
    pub magnitudes: [f32; 256],
    pub signs: [u8; 32],
}

impl Magnitudes {
    /// Splits weights into magnitudes and signs. If `even`, each eight weights get an even number of
    /// signs: the sign of the least important weight is changed, and its magnitude is negative.
    pub fn new(weights: &[f32; 256], importance: Option<&[f32; 256]>, even: bool) -> Self {
        let mut magnitudes = weights.map(f32::abs);
        let signs = std::array::from_fn(|byte| {
            let all = 8 * byte..8 * byte + 8;
            let negative = |i: usize| u8::from(weights[i] < 0.0) << (i % 8);
            let signs = all.clone().fold(0, |signs, i| signs | negative(i));
            if !even || signs.count_ones().is_multiple_of(2) {
                return signs;
            }
            let cost = |i: usize| importance.map_or(1.0, |all| all[i]) * weights[i] * weights[i];
            let cheapest = super::best(all, cost).unwrap_or_default();
            magnitudes[cheapest] = -magnitudes[cheapest];
            signs ^ 1 << (cheapest % 8)
        });
        Magnitudes { magnitudes, signs }
    }

    /// Quantizes the magnitudes in groups of `G`, whose scales have 4 bits. `tried` has the values that
    /// are tried for the largest magnitude of a group.
    pub fn block<const L: usize, const G: usize, const N: usize>(
        &self,
        grid: &Grid<L>,
        importance: Option<&[f32; 256]>,
        tried: impl Iterator<Item = f32> + Clone,
    ) -> ScaledBlock<[u16; VECTORS_MAX], N>
    where
        [[f32; G]; N]: AnyBitPattern,
    {
        let groups = must_cast_ref::<_, [[f32; G]; N]>(&self.magnitudes);
        let importance = importance.map(must_cast_ref);
        ScaledBlock::new(grid, groups, importance, Multipliers::odd(31.0), tried)
    }
}
