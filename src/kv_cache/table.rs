//! The page table of one sequence.

use std::{ops::Range, sync::Arc};

use rope_cpu_kernels::attention::BLOCK;

use super::{
    PAGE,
    gaps::Gaps,
    page::Page,
    pool::{Full, Pool, PooledPage, Store},
    states::{Points, States, snapshots_max},
};
use crate::{
    rope::{Region, Visibility},
    threads::Threads,
};

/// A page, if the table has it.
pub(super) type Slot = Option<Arc<PooledPage>>;

/// The memory of one sequence: for each layer that stores keys and values, the pages in order of
/// their positions, and the states of recurrent layers.
///
/// A clone shares the pages and states. A shared page is copied before a table writes to it.
#[derive(Clone)]
pub struct PageTable {
    pub(super) pool: Pool,
    /// The pages of each store of the pool, indexed by position / [`PAGE`].
    pub(super) stores: Vec<Vec<Slot>>,
    pub(super) states: States,
    /// The number of positions at the start that stay in layers with a sliding window.
    kept: usize,
    /// The number of positions at the start, in whole blocks, with summaries of their keys.
    summarized: usize,
    /// The positions without keys.
    gaps: Gaps,
}

impl PageTable {
    /// Creates an empty table.
    pub fn new(pool: &Pool) -> Self {
        let stores = pool.stores().iter().map(|_| Vec::new()).collect();
        let (pool, states, gaps) = (pool.clone(), States::default(), Gaps::NONE);
        PageTable { pool, stores, states, kept: 0, summarized: 0, gaps }
    }

    /// Returns whether the pages come from this pool.
    pub fn is_of(&self, pool: &Pool) -> bool {
        self.pool.is(pool)
    }

    /// Returns the states.
    pub fn states(&self) -> &States {
        &self.states
    }

    /// Restores the states from a copy made before some steps, to undo these steps.
    pub fn set_states(&mut self, states: States) {
        self.states = states;
    }

    /// Returns the index of the first buffer of a layer in a state.
    pub fn buffer_of(&self, layer: usize) -> usize {
        self.pool.buffer_of(layer)
    }

    /// Prepares the states that a step over these positions writes, with snapshots at `points`.
    ///
    /// # Errors
    /// If the pool is full.
    pub fn reserve_states(
        &mut self,
        team: &Threads,
        positions: Range<usize>,
        points: &Points,
    ) -> Result<(), Full> {
        self.states.reserve(&self.pool, team, positions, points)
    }

    /// Frees the states of a step that was not computed.
    pub fn cancel(&mut self) {
        self.states.cancel();
    }

    /// Makes the states that a step has written current. Keeps the snapshot at `retained`.
    pub fn commit(&mut self, retained: usize) {
        self.states.commit(snapshots_max(self.pool.state_bytes()), retained);
    }

    /// Prepares positions `start .. end` for writing in every layer: allocates missing pages, and
    /// copies pages that other tables share.
    ///
    /// # Errors
    /// If the pool is full; no position has changed then.
    pub fn reserve(&mut self, team: &Threads, start: usize, end: usize) -> Result<(), Full> {
        let range = start / PAGE..end.div_ceil(PAGE);
        for pages in &mut self.stores {
            pages.resize_with(pages.len().max(range.end), || None);
        }
        self.renew(team, range, |page| page.as_ref().is_none_or(is_shared))
    }

    /// Replaces pages by new ones with the same contents: in all layers, in a range, where
    /// `replaced` is true.
    fn renew(
        &mut self,
        team: &Threads,
        range: Range<usize>,
        replaced: impl Fn(&Slot) -> bool,
    ) -> Result<(), Full> {
        let stores = self.stores.iter_mut().zip(self.pool.stores());
        let pages = stores.flat_map(|(pages, store)| {
            let end = range.end.min(pages.len());
            pages[range.start.min(end)..end].iter_mut().map(|page| (store.shape, page))
        });
        let (shapes, pages): (Vec<_>, Vec<_>) = pages.filter(|(_, page)| replaced(page)).unzip();
        let new = self.pool.take(team, &shapes)?;
        for (page, new) in pages.into_iter().zip(new) {
            if let Some(old) = page {
                new.copy(team, old, 0..PAGE, 0);
            }
            *page = Some(new);
        }
        Ok(())
    }

    /// Frees the pages that no token at `position` or later attends to.
    pub fn release(&mut self, position: usize) {
        for (pages, store) in self.stores.iter_mut().zip(self.pool.stores()) {
            let [far, near] = visible_pages(&store.visibility, position);
            let first = far.end.max(self.kept.div_ceil(PAGE));
            let unseen = first..near.start.min(pages.len());
            if !unseen.is_empty() {
                pages[unseen].fill(None);
            }
        }
    }

    /// Returns the longest length up to `len` that the table can be truncated to. With recurrent
    /// layers, that is a length with a state. It is 0 if a sliding window has already dropped keys
    /// that the next token would attend to.
    pub fn rewind_point(&self, len: usize) -> usize {
        self.nearest(len, self.states.lens(), |len| {
            let mut stores = self.stores.iter().zip(self.pool.stores());
            stores.all(|(pages, store)| {
                let has_page = |i: usize| pages.get(i).is_some_and(Option::is_some);
                let has_no_keys = |i| self.gaps.run(i * PAGE..(i + 1) * PAGE).is_empty();
                store.needed_pages(len).all(|i| has_page(i) || has_no_keys(i))
            })
        })
    }

    /// Returns the longest length up to `len` with all needed pages and, if layers are recurrent,
    /// with a state. `states` are the lengths of all states in ascending order.
    pub(super) fn nearest(
        &self,
        len: usize,
        states: impl DoubleEndedIterator<Item = usize>,
        has_pages: impl Fn(usize) -> bool,
    ) -> usize {
        match self.pool.has_states() {
            false => Some(len).filter(|len| has_pages(*len)).unwrap_or(0),
            true => states.rev().find(|state| *state <= len && has_pages(*state)).unwrap_or(0),
        }
    }

    /// Removes the positions from `len` on. `len` must be a [`PageTable::rewind_point`].
    pub fn truncate(&mut self, len: usize) {
        for pages in &mut self.stores {
            pages.truncate(len.div_ceil(PAGE));
        }
        self.states.truncate(len);
        self.summarized = self.summarized.min(len / BLOCK * BLOCK);
        self.gaps.truncate(len);
    }

    /// Removes all positions to compute them again, except for those without keys, which stay so.
    pub fn clear(&mut self) {
        let gaps = std::mem::take(&mut self.gaps);
        self.truncate(0);
        self.gaps = gaps;
    }

    /// Returns the positions without keys.
    pub fn gaps(&self) -> &Gaps {
        &self.gaps
    }

    /// Sets the positions without keys.
    pub fn set_gaps(&mut self, gaps: Gaps) {
        self.gaps = gaps;
    }

    /// Returns the number of positions at the start with summaries of their keys.
    pub fn summarized(&self) -> usize {
        self.summarized
    }

    /// Records that a step has summarized all whole blocks up to `len`.
    pub fn set_summarized(&mut self, len: usize) {
        self.summarized = len / BLOCK * BLOCK;
    }

    /// From now on, keeps the first `positions` in every layer, so that [`PageTable::shift`] can
    /// move them back into a sliding window. Returns whether a sequence of `len` positions still
    /// has all of them.
    pub fn keep(&mut self, positions: usize, len: usize) -> bool {
        self.kept = positions;
        let pages = 0..positions.min(len).div_ceil(PAGE);
        self.stores.iter().all(|layer| layer[pages.clone()].iter().all(Option::is_some))
    }

    /// Removes `pages` pages of positions after the kept positions. Later positions move down by as
    /// many; their stored bits do not change.
    ///
    /// # Errors
    /// If a page that other tables hold must be copied, and the pool is full; nothing has changed
    /// then.
    pub fn shift(&mut self, team: &Threads, pages: usize) -> Result<(), Full> {
        let (first, within) = (self.kept / PAGE, self.kept % PAGE);
        let next = first + pages;
        if within > 0 {
            // The kept positions of a partly kept page move to the page that follows the gap.
            self.renew(team, next..next + 1, |page| page.as_ref().is_some_and(is_shared))?;
            for layer in &self.stores {
                if let (Some(kept), Some(Some(next))) = (&layer[first], layer.get(next)) {
                    next.copy(team, kept, 0..within, 0);
                }
            }
        }
        for layer in &mut self.stores {
            layer.drain(first..next);
        }
        self.states.shift(self.kept, pages * PAGE);
        self.summarized = self.summarized.min(first * PAGE);
        Ok(())
    }

    /// Copies the keys and values at `from` in another table of the pool to the positions from `to`
    /// on, which must be [reserved](PageTable::reserve). Their stored bits do not change. Skips
    /// positions that have no page in the other table.
    pub fn copy(&self, team: &Threads, source: &PageTable, from: Range<usize>, to: usize) {
        for (pages, sources) in self.stores.iter().zip(&source.stores) {
            let (mut from, mut to) = (from.clone(), to);
            while !from.is_empty() {
                // Stop at the end of a page in either table.
                let (there, here) = (from.start % PAGE, to % PAGE);
                let count = from.len().min(PAGE - there).min(PAGE - here);
                let page = pages.get(to / PAGE).and_then(Option::as_ref);
                let source = sources.get(from.start / PAGE).and_then(Option::as_ref);
                if let (Some(page), Some(source)) = (page, source) {
                    page.copy(team, source, there..there + count, here);
                }
                from.start += count;
                to += count;
            }
        }
    }

    /// Returns the page of a layer that has `position`, if the table has it.
    pub fn page(&self, layer: usize, position: usize) -> Option<&Page> {
        self.stores[self.pool.store_of(layer)].get(position / PAGE)?.as_ref().map(|page| &***page)
    }
}

impl Store {
    /// Returns the indices of the pages that the token at `len` attends to.
    pub(super) fn needed_pages(&self, len: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        self.needed_ranges(len).into_iter().flatten()
    }

    /// Returns the indices of the pages that the token at `len` attends to, far and near ones.
    pub(super) fn needed_ranges(&self, len: usize) -> [Range<usize>; 2] {
        let [far, near] = visible_pages(&self.visibility, len);
        [far.start..far.end.min(near.start), near.start..len.div_ceil(PAGE)]
    }
}

/// Returns whether other tables hold the page.
fn is_shared(page: &Arc<PooledPage>) -> bool {
    Arc::strong_count(page) > 1
}

/// Returns the ranges of pages with the far keys and with the near keys of the token at `position`.
fn visible_pages(visibility: &Visibility, position: usize) -> [Range<usize>; 2] {
    [Region::Far, Region::Near].map(|region| {
        let Range { start, end } = visibility.visible(region, position);
        start / PAGE..end.div_ceil(PAGE)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        kv_cache::{
            CacheType,
            LayerPages::{Own, SharedWith},
            Shape,
        },
        platform::memory::Refused,
        rope::FarKeys,
    };

    fn shape(head_dim: usize) -> Shape {
        Shape {
            kv_heads: 2,
            head_dim,
            keys: CacheType::F16,
            values: Some(CacheType::Q8_0),
            summaries: false,
        }
    }

    fn table(visibilities: &[Visibility]) -> (PageTable, Threads) {
        let shape = shape(40);
        let pool = Pool::new(visibilities.iter().map(|seen| Own(shape, *seen)), [], usize::MAX);
        (PageTable::new(&pool), Threads::new(1).unwrap())
    }

    /// Fills all pages with bytes that differ everywhere.
    fn fill(table: &PageTable, team: &Threads) {
        let mut next = 0u32;
        for page in table.stores.iter().flatten().flatten() {
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
        for layer in 0..table.stores.len() {
            let Some(page) = table.page(layer, position) else { continue };
            page.read(team, |half| {
                let bytes = half.len() / 2 / PAGE; // of two heads
                let heads = half.chunks_exact(bytes).skip(position % PAGE);
                rows.push(heads.step_by(PAGE).flatten().copied().collect());
            });
        }
        rows
    }

    fn pages(table: &PageTable) -> usize {
        table.pool.bytes() / table.pool.page_bytes()
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
        assert_eq!(table.rewind_point(4_999), 4_999);
        assert_eq!(table.rewind_point(4_500), 0);
    }

    #[test]
    fn a_table_returns_to_no_length_that_a_window_has_left() {
        let (mut table, team) = table(&[Visibility::ALL, Visibility::window(300)]);
        table.reserve(&team, 0, 2_000).unwrap();
        table.release(2_000);
        assert_eq!(table.rewind_point(1_999), 1_999);
        table.truncate(1_999);
        assert_eq!(table.rewind_point(1_000), 0);
        table.truncate(0);
        assert!(table.page(0, 0).is_none());
        assert_eq!(table.pool.used_bytes(), 0);
    }

    #[test]
    fn a_file_returns_to_the_lengths_that_its_pages_serve() {
        let far = Visibility { near: 300, first: 5, far: FarKeys::AtDistance(300) };
        for windows in [&[Visibility::ALL, Visibility::window(300)][..], &[far], &[Visibility::ALL]]
        {
            let (mut table, team) = table(windows);
            table.reserve(&team, 0, 2_000).unwrap();
            let mut file = Vec::new();
            table.write(&team, 2_000, &[], &mut file).unwrap();
            let mut read = PageTable::new(&table.pool);
            read.read(&team, 2_000, &[], &mut &file[..]).unwrap();
            for len in (0..=2_000).step_by(50) {
                let found = table.rewind_point_of_file(2_000, &[], len);
                assert_eq!(found, read.rewind_point(len), "{len}");
            }
        }
    }

    #[test]
    fn truncating_without_windows_keeps_what_was_asked_for() {
        let (mut table, team) = table(&[Visibility::ALL; 2]);
        table.reserve(&team, 0, 700).unwrap();
        assert_eq!(table.rewind_point(256), 256);
        table.truncate(256);
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
            // The fork has not shifted, so only a partly kept page was copied.
            for (position, before) in before.iter().enumerate() {
                assert_eq!(&rows(&fork, &team, position), before, "{kept}: {position}");
            }
            let copied = if kept % PAGE > 0 { 2 } else { 0 };
            let more = table.pool.used_bytes() - used;
            assert_eq!(more / table.pool.page_bytes(), copied);
            table.reserve(&team, 1_200 - 256, 1_200).unwrap();
        }
    }

    #[test]
    fn copied_positions_have_their_bits_at_any_place() {
        let (mut source, team) = table(&[Visibility::ALL; 2]);
        source.reserve(&team, 0, 900).unwrap();
        fill(&source, &team);
        for (from, to) in [(0..900, 0), (37..800, 300), (300..310, 255), (5..6, 511)] {
            let mut table = PageTable::new(&source.pool);
            table.reserve(&team, 0, to).unwrap();
            let before: Vec<_> = (0..to).map(|position| rows(&table, &team, position)).collect();
            let fork = table.clone();
            table.reserve(&team, to, to + from.len()).unwrap();
            table.copy(&team, &source, from.clone(), to);
            for (position, there) in (to..).zip(from) {
                assert_eq!(rows(&table, &team, position), rows(&source, &team, there));
            }
            for (position, before) in before.iter().enumerate() {
                assert_eq!(&rows(&table, &team, position), before, "{position}");
                assert_eq!(&rows(&fork, &team, position), before, "{position}");
            }
        }
    }

    #[test]
    fn summaries_are_of_whole_blocks_that_have_not_changed() {
        let (mut table, team) = table(&[Visibility::ALL]);
        table.reserve(&team, 0, 1_200).unwrap();
        table.set_summarized(1_199);
        assert_eq!(table.summarized(), 1_184);
        table.truncate(1_183);
        assert_eq!(table.summarized(), 1_152);
        // Kept positions move into the page after the gap; the first page stays.
        assert!(table.keep(300, 1_183));
        table.shift(&team, 1).unwrap();
        assert_eq!(table.summarized(), 256);
        table.truncate(0);
        assert_eq!(table.summarized(), 0);
    }

    #[test]
    fn tables_share_pages_until_one_of_them_writes() {
        let (mut table, team) = table(&[Visibility::ALL]);
        table.reserve(&team, 0, 700).unwrap();
        fill(&table, &team);
        let mut fork = table.clone();
        assert_eq!(pages(&table), 3);
        let before: Vec<_> = (0..700).map(|position| rows(&table, &team, position)).collect();
        // The fork writes to the third page; the first two stay shared.
        fork.reserve(&team, 700, 900).unwrap();
        assert_eq!(pages(&table), 3 + 2);
        for page in fork.stores[0][2..].iter().flatten() {
            page.write(&team, |bytes| bytes.fill(0));
        }
        for (position, before) in before.iter().enumerate() {
            assert_eq!(&rows(&table, &team, position), before, "{position}");
        }
        // A page that is no longer shared is not copied.
        drop(table);
        fork.reserve(&team, 900, 950).unwrap();
        assert_eq!(fork.pool.used_bytes(), 4 * fork.pool.page_bytes());
        let pool = fork.pool.clone();
        drop(fork);
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn a_full_pool_is_an_error_and_nothing_is_lost() {
        let team = Threads::new(1).unwrap();
        let shape = shape(40);
        let limit = 5 * shape.page_bytes();
        let pool = Pool::new([Own(shape, Visibility::ALL); 2], [], limit);
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
        one.truncate(256);
        two.reserve(&team, 0, 1).unwrap();
    }

    #[test]
    fn shapes_share_one_budget_and_leave_no_more_than_that() {
        let team = Threads::new(1).unwrap();
        let [small, large] = [shape(32), shape(96)];
        let page_bytes = small.page_bytes();
        assert_eq!(large.page_bytes(), 3 * page_bytes);
        let layers = [Own(small, Visibility::ALL), Own(large, Visibility::window(256))];
        let pool = Pool::new(layers, [], 9 * page_bytes);
        assert_eq!(pool.page_bytes(), 2 * page_bytes);
        let mut table = PageTable::new(&pool);
        table.reserve(&team, 0, 512).unwrap();
        assert_eq!(pool.used_bytes(), 8 * page_bytes);
        let full =
            Full::Limit { needed: 4 * page_bytes, left: page_bytes, limit: pool.limit_bytes() };
        assert_eq!(table.reserve(&team, 512, 513), Err(full));
        // The window frees a page, whose place a page of the other shape may take.
        table.release(512);
        assert_eq!((pool.used_bytes(), pool.bytes()), (5 * page_bytes, 8 * page_bytes));
        let held = pool.take(&team, &[0; 2]).unwrap();
        assert_eq!((pool.used_bytes(), pool.bytes()), (7 * page_bytes, 7 * page_bytes));
        drop((held, table));
        assert_eq!((pool.used_bytes(), pool.bytes()), (0, 7 * page_bytes));
    }

    #[test]
    fn a_layer_without_pages_reads_the_pages_of_another() {
        let team = Threads::new(1).unwrap();
        let [small, large] = [shape(32), shape(96)].map(|shape| Own(shape, Visibility::ALL));
        let pool = Pool::new([small, large, SharedWith(0), small, SharedWith(1)], [], usize::MAX);
        let mut table = PageTable::new(&pool);
        table.reserve(&team, 0, 300).unwrap();
        let page = |layer| std::ptr::from_ref(table.page(layer, 299).unwrap());
        assert_eq!((page(2), page(4)), (page(0), page(1)));
        assert!(page(3) != page(0) && page(0) != page(1));
        assert_eq!(pool.used_bytes(), 2 * (2 + 3) * shape(32).page_bytes());
    }

    #[test]
    fn memory_that_the_system_refuses_is_an_error() {
        // A page of 1 TiB: 512 of them exceed every address space.
        let (kv_heads, head_dim) = (1 << 20, 1 << 10);
        let shape = Shape {
            kv_heads,
            head_dim,
            keys: CacheType::F16,
            values: Some(CacheType::F16),
            summaries: false,
        };
        let pool = Pool::new([Own(shape, Visibility::ALL)], [], usize::MAX);
        let team = Threads::new(1).unwrap();
        let bytes = 512 * shape.page_bytes();
        let refused = pool.take(&team, &[0; 512]).map(|_| ());
        assert_eq!(refused, Err(Full::Refused(Refused { bytes })));
        assert_eq!((pool.bytes(), pool.used_bytes()), (0, 0));
    }
}
