//! The KV cache: keys and values of past tokens, in pages of 256 positions.
//!
//! Each layer of each sequence has a page table of its own, so that memory grows with use and a
//! layer with a sliding window frees the pages that have left the window. In a page the positions
//! of one head are contiguous, so that attention reads consecutive memory. Keys are in halves order
//! (element `i` rotates with `i + n/2`), stored after or before rotation.

mod page;
mod saved;

use std::ops::Range;

pub use rope_cpu_kernels::cache::CacheType;

use self::page::Page;
pub use self::page::{BLOCK, BLOCKS, POSITIONS, Shape};
use crate::{
    rope::{Region, Visibility},
    threads::Threads,
};

/// The cache of all sequences.
pub struct KvCache {
    shape: Shape,
    /// The keys that a token attends to, for each layer.
    visibilities: Vec<Visibility>,
    sequences: Vec<Sequence>,
    free: Vec<Page>,
    /// The number of first positions that layers with a sliding window hold, too.
    kept: usize,
}

/// The pages of one sequence.
struct Sequence {
    /// The pages of each layer, indexed by position / [`POSITIONS`].
    layers: Vec<Vec<Option<Page>>>,
}

impl KvCache {
    /// Creates an empty cache for `sequences` sequences.
    pub fn new(shape: Shape, visibilities: Vec<Visibility>, sequences: usize) -> Self {
        let sequence = || Sequence { layers: visibilities.iter().map(|_| Vec::new()).collect() };
        let sequences = (0..sequences).map(|_| sequence()).collect();
        KvCache { shape, visibilities, sequences, free: Vec::new(), kept: 0 }
    }

    /// Returns the dimensions and cache types of a page.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Allocates pages for positions `start .. end` of a sequence, in every layer.
    pub fn reserve(&mut self, team: &Threads, sequence: usize, start: usize, end: usize) {
        let range = start / POSITIONS..end.div_ceil(POSITIONS);
        let layers = &mut self.sequences[sequence].layers;
        for pages in &mut *layers {
            pages.resize_with(pages.len().max(range.end), || None);
        }
        let pages = layers.iter_mut().flat_map(|pages| &mut pages[range.clone()]);
        let missing: Vec<_> = pages.filter(|page| page.is_none()).collect();
        // All new pages are cut from one block of memory.
        let new = missing.len().saturating_sub(self.free.len());
        self.free.extend(Page::zeros(team, self.shape, new));
        for page in missing {
            *page = self.free.pop();
        }
    }

    /// Frees the pages that no token at `position` or later attends to.
    pub fn release(&mut self, sequence: usize, position: usize) {
        for (pages, visibility) in
            self.sequences[sequence].layers.iter_mut().zip(&self.visibilities)
        {
            let [far, near] = visible_pages(visibility, position);
            let first = far.end.max(self.kept.div_ceil(POSITIONS));
            let unseen = first..near.start.min(pages.len());
            if !unseen.is_empty() {
                self.free.extend(pages[unseen].iter_mut().filter_map(Option::take));
            }
        }
    }

    /// Removes the positions from `len` on. Returns the number of positions that remain: `len`, or
    /// 0 if a sliding window has already dropped keys that the token at `len` would attend to.
    pub fn truncate(&mut self, sequence: usize, len: usize) -> usize {
        let len = if self.holds(sequence, len) { len } else { 0 };
        for pages in &mut self.sequences[sequence].layers {
            let remaining = len.div_ceil(POSITIONS).min(pages.len());
            self.free.extend(pages.drain(remaining..).flatten());
        }
        len
    }

    /// Keeps the first `positions` in every layer from now on, so that [`KvCache::shift`] can move
    /// them into a sliding window again. Returns whether a sequence of `len` positions still has
    /// all of them.
    pub fn keep(&mut self, sequence: usize, positions: usize, len: usize) -> bool {
        self.kept = positions;
        let pages = 0..positions.min(len).div_ceil(POSITIONS);
        let complete = |layer: &Vec<Option<Page>>| layer[pages.clone()].iter().all(Option::is_some);
        self.sequences[sequence].layers.iter().all(complete)
    }

    /// Removes `pages` pages of positions after the kept ones from a sequence. Later positions move
    /// down by as many; their stored bits do not change.
    pub fn shift(&mut self, sequence: usize, pages: usize) {
        let (first, within) = (self.kept / POSITIONS, self.kept % POSITIONS);
        for layer in &mut self.sequences[sequence].layers {
            // The kept positions of a partly kept page move to the page that follows the gap.
            let (before, after) = layer.split_at_mut(first + pages);
            if let (Some(kept), Some(Some(next))) = (&mut before[first], after.first_mut()) {
                next.copy_first(kept, within);
            }
            self.free.extend(layer.drain(first..first + pages).flatten());
        }
    }

    /// Returns whether the cache holds all keys that the token at `len` attends to.
    pub fn holds(&self, sequence: usize, len: usize) -> bool {
        self.sequences[sequence].layers.iter().enumerate().all(|(layer, pages)| {
            self.needed_pages(layer, len).all(|i| pages.get(i).is_some_and(Option::is_some))
        })
    }

    /// Returns the page of a sequence's layer that holds `position`, if the cache has it.
    pub fn page(&self, sequence: usize, layer: usize, position: usize) -> Option<&Page> {
        self.sequences[sequence].layers[layer].get(position / POSITIONS)?.as_ref()
    }

    /// Returns the indices of a layer's pages that the token at `len` attends to.
    fn needed_pages(
        &self,
        layer: usize,
        len: usize,
    ) -> impl Iterator<Item = usize> + Clone + use<> {
        let [far, near] = visible_pages(&self.visibilities[layer], len);
        (far.start..far.end.min(near.start)).chain(near.start..len.div_ceil(POSITIONS))
    }

    /// Returns the bytes in use by pages, free ones included.
    pub fn bytes(&self) -> usize {
        let used: usize =
            self.sequences.iter().flat_map(|s| &s.layers).map(|l| l.iter().flatten().count()).sum();
        (used + self.free.len()) * self.shape.page_bytes()
    }
}

/// Returns the ranges of pages with the far keys and with the near keys of the token at `position`.
fn visible_pages(visibility: &Visibility, position: usize) -> [Range<usize>; 2] {
    [Region::Far, Region::Near].map(|region| {
        let Range { start, end } = visibility.visible(region, position);
        start / POSITIONS..end.div_ceil(POSITIONS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rope::FarKeys;

    fn cache(visibilities: &[Visibility]) -> (KvCache, Threads) {
        let (keys, values) = (CacheType::F16, CacheType::Q8_0);
        let shape = Shape { kv_heads: 2, head_dim: 40, keys, values };
        (KvCache::new(shape, visibilities.to_vec(), 1), Threads::new(1).unwrap())
    }

    #[test]
    fn a_window_keeps_no_more_pages_than_it_needs() {
        let (mut cache, team) = cache(&[Visibility::ALL, Visibility::window(512)]);
        for start in (0..10_000).step_by(100) {
            cache.reserve(&team, 0, start, start + 100);
            for position in [(start + 1).saturating_sub(512), start + 99] {
                assert!(cache.page(0, 1, position).is_some());
            }
            cache.release(0, start + 100);
        }
        let pages = cache.bytes() / cache.shape().page_bytes();
        assert!(pages <= 40 + 4, "{pages} pages for 40 of the global layer and 512 positions");
    }

    #[test]
    fn first_tokens_that_are_seen_from_anywhere_stay() {
        let visibility = Visibility { near: 300, first: 5, far: FarKeys::AtDistance(300) };
        let (mut cache, team) = cache(&[visibility]);
        for start in (0..5_000).step_by(100) {
            cache.reserve(&team, 0, start, start + 100);
            cache.release(0, start + 100);
        }
        let held = |position| cache.page(0, 0, position).is_some();
        assert!(held(0) && !held(256) && !held(4_607) && held(4_701) && held(4_999));
        assert!(cache.bytes() <= 5 * cache.shape().page_bytes());
        assert_eq!(cache.truncate(0, 4_999), 4_999);
        assert_eq!(cache.truncate(0, 4_500), 0);
    }

    #[test]
    fn truncating_into_what_a_window_dropped_removes_all() {
        let (mut cache, team) = cache(&[Visibility::ALL, Visibility::window(300)]);
        cache.reserve(&team, 0, 0, 2_000);
        cache.release(0, 2_000);
        assert_eq!(cache.truncate(0, 1_999), 1_999);
        assert_eq!(cache.truncate(0, 1_000), 0);
        assert!(cache.page(0, 0, 0).is_none());
    }

    #[test]
    fn a_shift_leaves_all_bits_as_they_are() {
        let (mut cache, team) = cache(&[Visibility::ALL, Visibility::window(900)]);
        cache.reserve(&team, 0, 0, 1_200);
        let mut next = 0u32;
        for page in cache.sequences[0].layers.iter_mut().flatten().flatten() {
            for byte in page.bytes().into_iter().flatten() {
                next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = (next >> 24) as u8;
            }
        }
        // The key and the value of a position in all heads and layers.
        let rows = |cache: &mut KvCache, position: usize| -> Vec<Vec<u8>> {
            let pages = cache.sequences[0].layers.iter_mut();
            let pages = pages.filter_map(|layer| layer[position / POSITIONS].as_mut());
            let halves = pages.flat_map(|page| page.bytes());
            let row = |half: &mut [u8]| -> Vec<u8> {
                let bytes = half.len() / 2 / POSITIONS; // of two heads
                let rows = half.chunks_exact(bytes).skip(position % POSITIONS);
                rows.step_by(POSITIONS).flatten().copied().collect()
            };
            halves.map(row).collect()
        };
        for kept in [0, 300, 512] {
            let before: Vec<_> = (0..1_200).map(|position| rows(&mut cache, position)).collect();
            assert!(cache.keep(0, kept, 1_200));
            cache.release(0, 1_200);
            cache.shift(0, 1);
            for position in 0..1_200 - 256 {
                let moved = if position < kept { position } else { position + 256 };
                assert_eq!(rows(&mut cache, position), before[moved], "{kept}: {position}");
            }
            cache.reserve(&team, 0, 1_200 - 256, 1_200);
        }
    }

    #[test]
    fn truncating_without_windows_keeps_what_was_asked_for() {
        let (mut cache, team) = cache(&[Visibility::ALL; 2]);
        cache.reserve(&team, 0, 0, 700);
        assert_eq!(cache.truncate(0, 256), 256);
        assert!(cache.page(0, 1, 255).is_some() && cache.page(0, 1, 256).is_none());
        cache.reserve(&team, 0, 256, 600);
        assert_eq!(cache.bytes(), 2 * 3 * cache.shape().page_bytes());
    }
}
