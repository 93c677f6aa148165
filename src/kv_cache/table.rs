//! The page table of one sequence.

use std::{ops::Range, sync::Arc};

use super::{
    POSITIONS,
    page::Page,
    pool::{Full, Pool, PooledPage},
};
use crate::{
    rope::{Region, Visibility},
    threads::Threads,
};

/// A page, if the table has it.
pub(super) type Slot = Option<Arc<PooledPage>>;

/// The keys and values of one sequence: for each layer, the pages in order of their positions.
///
/// A clone has the same pages. A page that several tables hold is copied before one of them writes
/// to it.
#[derive(Clone)]
pub struct PageTable {
    pub(super) pool: Pool,
    /// The pages of each layer, indexed by position / [`POSITIONS`].
    pub(super) layers: Vec<Vec<Slot>>,
    /// The number of first positions that layers with a sliding window hold, too.
    kept: usize,
}

impl PageTable {
    /// Creates an empty table.
    pub fn new(pool: &Pool) -> Self {
        let layers = pool.visibilities().iter().map(|_| Vec::new()).collect();
        PageTable { pool: pool.clone(), layers, kept: 0 }
    }

    /// Returns whether the pages come from this pool.
    pub fn is_of(&self, pool: &Pool) -> bool {
        self.pool.is(pool)
    }

    /// Allocates pages for positions `start .. end` in every layer, and copies those of them that
    /// other tables hold, too.
    ///
    /// # Errors
    /// If the pool is full; no position has changed then.
    pub fn reserve(&mut self, team: &Threads, start: usize, end: usize) -> Result<(), Full> {
        let range = start / POSITIONS..end.div_ceil(POSITIONS);
        for pages in &mut self.layers {
            pages.resize_with(pages.len().max(range.end), || None);
        }
        self.renew(team, range, |page| page.as_ref().is_none_or(is_shared))
    }

    /// Replaces the pages of all layers in a range that are `replaced` by new ones, with the same
    /// contents.
    fn renew(
        &mut self,
        team: &Threads,
        range: Range<usize>,
        replaced: impl Fn(&Slot) -> bool,
    ) -> Result<(), Full> {
        let pages = self.layers.iter_mut().flat_map(|pages| {
            let end = range.end.min(pages.len());
            &mut pages[range.start.min(end)..end]
        });
        let pages: Vec<_> = pages.filter(|page| replaced(page)).collect();
        let new = self.pool.take(team, pages.len())?;
        for (page, new) in pages.into_iter().zip(new) {
            if let Some(old) = page {
                new.copy_first(team, old, POSITIONS);
            }
            *page = Some(new);
        }
        Ok(())
    }

    /// Frees the pages that no token at `position` or later attends to.
    pub fn release(&mut self, position: usize) {
        for (pages, visibility) in self.layers.iter_mut().zip(self.pool.visibilities()) {
            let [far, near] = visible_pages(visibility, position);
            let first = far.end.max(self.kept.div_ceil(POSITIONS));
            let unseen = first..near.start.min(pages.len());
            if !unseen.is_empty() {
                pages[unseen].fill(None);
            }
        }
    }

    /// Removes the positions from `len` on. Returns the number of positions that remain: `len`, or
    /// 0 if a sliding window has already dropped keys that the token at `len` would attend to.
    pub fn truncate(&mut self, len: usize) -> usize {
        let len = if self.holds(len) { len } else { 0 };
        for pages in &mut self.layers {
            pages.truncate(len.div_ceil(POSITIONS));
        }
        len
    }

    /// Keeps the first `positions` in every layer from now on, so that [`PageTable::shift`] can move
    /// them into a sliding window again. Returns whether a sequence of `len` positions still has
    /// all of them.
    pub fn keep(&mut self, positions: usize, len: usize) -> bool {
        self.kept = positions;
        let pages = 0..positions.min(len).div_ceil(POSITIONS);
        self.layers.iter().all(|layer| layer[pages.clone()].iter().all(Option::is_some))
    }

    /// Removes `pages` pages of positions after the kept ones. Later positions move down by as
    /// many; their stored bits do not change.
    ///
    /// # Errors
    /// If a page that other tables hold must be copied, and the pool is full; nothing has changed
    /// then.
    pub fn shift(&mut self, team: &Threads, pages: usize) -> Result<(), Full> {
        let (first, within) = (self.kept / POSITIONS, self.kept % POSITIONS);
        let next = first + pages;
        if within > 0 {
            // The kept positions of a partly kept page move to the page that follows the gap.
            self.renew(team, next..next + 1, |page| page.as_ref().is_some_and(is_shared))?;
            for layer in &self.layers {
                if let (Some(kept), Some(Some(next))) = (&layer[first], layer.get(next)) {
                    next.copy_first(team, kept, within);
                }
            }
        }
        for layer in &mut self.layers {
            layer.drain(first..next);
        }
        Ok(())
    }

    /// Returns whether the table has all keys that the token at `len` attends to.
    pub fn holds(&self, len: usize) -> bool {
        self.layers.iter().enumerate().all(|(layer, pages)| {
            self.needed_pages(layer, len).all(|i| pages.get(i).is_some_and(Option::is_some))
        })
    }

    /// Returns the page of a layer that has `position`, if the table has it.
    pub fn page(&self, layer: usize, position: usize) -> Option<&Page> {
        self.layers[layer].get(position / POSITIONS)?.as_ref().map(|page| &***page)
    }

    /// Returns the indices of a layer's pages that the token at `len` attends to.
    pub(super) fn needed_pages(
        &self,
        layer: usize,
        len: usize,
    ) -> impl Iterator<Item = usize> + Clone + use<> {
        let [far, near] = visible_pages(&self.pool.visibilities()[layer], len);
        (far.start..far.end.min(near.start)).chain(near.start..len.div_ceil(POSITIONS))
    }
}

/// Returns whether another table holds the page, too.
fn is_shared(page: &Arc<PooledPage>) -> bool {
    Arc::strong_count(page) > 1
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
    use crate::{
        kv_cache::{CacheType, Shape},
        platform::memory::Refused,
        rope::FarKeys,
    };

    fn table(visibilities: &[Visibility]) -> (PageTable, Threads) {
        let (keys, values) = (CacheType::F16, CacheType::Q8_0);
        let shape = Shape { kv_heads: 2, head_dim: 40, keys, values };
        let pool = Pool::new(shape, visibilities.to_vec(), usize::MAX);
        (PageTable::new(&pool), Threads::new(1).unwrap())
    }

    /// Fills all pages with bytes that differ everywhere.
    fn fill(table: &PageTable, team: &Threads) {
        let mut next = 0u32;
        for page in table.layers.iter().flatten().flatten() {
            page.write(team, |bytes| {
                for byte in bytes {
                    next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    *byte = (next >> 24) as u8;
                }
            });
        }
    }

    /// Returns the key and the value of a position in all heads and layers.
    fn rows(table: &PageTable, team: &Threads, position: usize) -> Vec<Vec<u8>> {
        let mut rows = Vec::new();
        for layer in 0..table.layers.len() {
            let Some(page) = table.page(layer, position) else { continue };
            page.read(team, |half| {
                let bytes = half.len() / 2 / POSITIONS; // of two heads
                let heads = half.chunks_exact(bytes).skip(position % POSITIONS);
                rows.push(heads.step_by(POSITIONS).flatten().copied().collect());
            });
        }
        rows
    }

    fn pages(table: &PageTable) -> usize {
        table.pool.bytes() / table.pool.shape().page_bytes()
    }

    #[test]
    fn a_window_keeps_no_more_pages_than_it_needs() {
        let (mut table, team) = table(&[Visibility::ALL, Visibility::window(512)]);
        for start in (0..10_000).step_by(100) {
            table.reserve(&team, start, start + 100).unwrap();
            for position in [(start + 1).saturating_sub(512), start + 99] {
                assert!(table.page(1, position).is_some());
            }
            table.release(start + 100);
        }
        let pages = pages(&table);
        assert!(pages <= 40 + 4, "{pages} pages for 40 of the global layer and 512 positions");
    }

    #[test]
    fn first_tokens_that_are_seen_from_anywhere_stay() {
        let visibility = Visibility { near: 300, first: 5, far: FarKeys::AtDistance(300) };
        let (mut table, team) = table(&[visibility]);
        for start in (0..5_000).step_by(100) {
            table.reserve(&team, start, start + 100).unwrap();
            table.release(start + 100);
        }
        let held = |position| table.page(0, position).is_some();
        assert!(held(0) && !held(256) && !held(4_607) && held(4_701) && held(4_999));
        assert!(pages(&table) <= 5);
        assert_eq!(table.truncate(4_999), 4_999);
        assert_eq!(table.truncate(4_500), 0);
    }

    #[test]
    fn truncating_into_what_a_window_dropped_removes_all() {
        let (mut table, team) = table(&[Visibility::ALL, Visibility::window(300)]);
        table.reserve(&team, 0, 2_000).unwrap();
        table.release(2_000);
        assert_eq!(table.truncate(1_999), 1_999);
        assert_eq!(table.truncate(1_000), 0);
        assert!(table.page(0, 0).is_none());
        assert_eq!(table.pool.used_bytes(), 0);
    }

    #[test]
    fn truncating_without_windows_keeps_what_was_asked_for() {
        let (mut table, team) = table(&[Visibility::ALL; 2]);
        table.reserve(&team, 0, 700).unwrap();
        assert_eq!(table.truncate(256), 256);
        assert!(table.page(1, 255).is_some() && table.page(1, 256).is_none());
        table.reserve(&team, 256, 600).unwrap();
        assert_eq!(pages(&table), 2 * 3);
    }

    #[test]
    fn a_shift_leaves_all_bits_as_they_are() {
        let (mut table, team) = table(&[Visibility::ALL, Visibility::window(900)]);
        table.reserve(&team, 0, 1_200).unwrap();
        fill(&table, &team);
        for kept in [0, 300, 512] {
            let before: Vec<_> = (0..1_200).map(|position| rows(&table, &team, position)).collect();
            let (fork, used) = (table.clone(), table.pool.used_bytes());
            assert!(table.keep(kept, 1_200));
            table.release(1_200);
            table.shift(&team, 1).unwrap();
            for position in 0..1_200 - 256 {
                let moved = if position < kept { position } else { position + 256 };
                assert_eq!(rows(&table, &team, position), before[moved], "{kept}: {position}");
            }
            // The fork has not shifted, and only a partly kept page was copied.
            for (position, before) in before.iter().enumerate() {
                assert_eq!(&rows(&fork, &team, position), before, "{kept}: {position}");
            }
            let copied = if kept % POSITIONS > 0 { 2 } else { 0 };
            let more = table.pool.used_bytes() - used;
            assert_eq!(more / table.pool.shape().page_bytes(), copied);
            table.reserve(&team, 1_200 - 256, 1_200).unwrap();
        }
    }

    #[test]
    fn tables_share_pages_until_one_of_them_writes() {
        let (mut table, team) = table(&[Visibility::ALL]);
        table.reserve(&team, 0, 700).unwrap();
        fill(&table, &team);
        let mut fork = table.clone();
        assert_eq!(pages(&table), 3);
        let before: Vec<_> = (0..700).map(|position| rows(&table, &team, position)).collect();
        // The third page is written by the fork; the first two stay shared.
        fork.reserve(&team, 700, 900).unwrap();
        assert_eq!(pages(&table), 3 + 2);
        for page in fork.layers[0][2..].iter().flatten() {
            page.write(&team, |bytes| bytes.fill(0));
        }
        for (position, before) in before.iter().enumerate() {
            assert_eq!(&rows(&table, &team, position), before, "{position}");
        }
        // A page that nobody shares any more is not copied.
        drop(table);
        fork.reserve(&team, 900, 950).unwrap();
        assert_eq!(fork.pool.used_bytes(), 4 * fork.pool.shape().page_bytes());
        let pool = fork.pool.clone();
        drop(fork);
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn a_full_pool_is_an_error_and_nothing_is_lost() {
        let (unlimited, team) = table(&[Visibility::ALL; 2]);
        let shape = unlimited.pool.shape();
        let limit = 5 * shape.page_bytes();
        let pool = Pool::new(shape, vec![Visibility::ALL; 2], limit);
        let (mut one, mut two) = (PageTable::new(&pool), PageTable::new(&pool));
        one.reserve(&team, 0, 512).unwrap();
        fill(&one, &team);
        let before: Vec<_> = (0..512).map(|position| rows(&one, &team, position)).collect();
        let (needed, left) = (2 * shape.page_bytes(), shape.page_bytes());
        assert_eq!(two.reserve(&team, 0, 1), Err(Full::Limit { needed, left, limit }));
        assert_eq!(one.reserve(&team, 512, 513), Err(Full::Limit { needed, left, limit }));
        for (position, before) in before.iter().enumerate() {
            assert_eq!(&rows(&one, &team, position), before, "{position}");
        }
        assert_eq!(one.truncate(256), 256);
        two.reserve(&team, 0, 1).unwrap();
    }

    #[test]
    fn memory_that_the_system_refuses_is_an_error() {
        // A page of 1 TiB: 512 of them exceed every address space.
        let (kv_heads, head_dim) = (1 << 20, 1 << 10);
        let shape = Shape { kv_heads, head_dim, keys: CacheType::F16, values: CacheType::F16 };
        let pool = Pool::new(shape, vec![Visibility::ALL], usize::MAX);
        let team = Threads::new(1).unwrap();
        let bytes = 512 * shape.page_bytes();
        let refused = pool.take(&team, 512).map(|_| ());
        assert_eq!(refused, Err(Full::Refused(Refused { bytes })));
        assert_eq!((pool.bytes(), pool.used_bytes()), (0, 0));
    }
}
