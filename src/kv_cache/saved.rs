//! Writing the cache to a file and reading it back: whole pages, as they are.

use std::io::{self, Read, Write};

use super::{KvCache, POSITIONS, page::Page};
use crate::threads::Threads;

impl KvCache {
    /// Writes the pages that a token at `len` and later ones need; see [`KvCache::truncate`] for
    /// whether they are there.
    pub fn write(&mut self, sequence: usize, len: usize, to: &mut impl Write) -> io::Result<()> {
        for layer in 0..self.sights.len() {
            for i in self.needed(layer, len) {
                let Some(page) = &mut self.sequences[sequence].layers[layer][i] else { continue };
                for bytes in page.bytes() {
                    to.write_all(bytes)?;
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
            let needed = self.needed(layer, len);
            let pages = &mut self.sequences[sequence].layers[layer];
            pages.resize_with(len.div_ceil(POSITIONS), || None);
            let count = needed.clone().count();
            let new = count.saturating_sub(self.free.len());
            self.free.extend(Page::zeros(team, self.shape, new));
            for (i, mut page) in needed.zip(self.free.drain(self.free.len() - count..)) {
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
        let layers = 0..self.sights.len();
        let pages: usize = layers.map(|layer| self.needed(layer, len).count()).sum();
        (pages * self.shape.page_bytes()) as u64
    }
}
