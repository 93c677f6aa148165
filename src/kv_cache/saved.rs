//! Writing the cache to a file and reading it back: whole pages, as they are.

use std::io::{self, Read, Write};

use super::{KvCache, POSITIONS, needed, page::Page};
use crate::threads::Threads;

impl KvCache {
    /// Writes the pages that a token at `len` and later ones need; see [`KvCache::truncate`] for
    /// whether they are there.
    pub fn write(&mut self, sequence: usize, len: usize, to: &mut impl Write) -> io::Result<()> {
        for layer in 0..self.sights.len() {
            for i in needed(&self.sights[layer], len) {
                if let Some(page) = &mut self.sequences[sequence].layers[layer][i] {
                    for bytes in page.bytes() {
                        to.write_all(bytes)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads what [`KvCache::write`] wrote for the same `len`, in place of what is there.
    pub fn read(
        &mut self,
        team: &Threads,
        sequence: usize,
        len: usize,
        from: &mut impl Read,
    ) -> io::Result<()> {
        self.truncate(sequence, 0);
        for layer in 0..self.sights.len() {
            let needed: Vec<_> = needed(&self.sights[layer], len).collect();
            let new = needed.len().saturating_sub(self.free.len());
            self.free.extend(Page::zeros(team, self.shape, new));
            let pages = &mut self.sequences[sequence].layers[layer];
            pages.resize_with(len.div_ceil(POSITIONS), || None);
            let free = self.free.len() - needed.len();
            for (i, mut page) in needed.into_iter().zip(self.free.drain(free..)) {
                for bytes in page.bytes() {
                    from.read_exact(bytes)?;
                }
                pages[i] = Some(page);
            }
        }
        Ok(())
    }

    /// Bytes of what [`KvCache::write`] writes.
    pub fn written_bytes(&self, len: usize) -> u64 {
        let pages: usize =
            (0..self.sights.len()).map(|layer| needed(&self.sights[layer], len).count()).sum();
        (pages * self.shape.page_bytes()) as u64
    }
}
