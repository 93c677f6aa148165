//! Writing the KV cache to a file and reading it back, as whole pages.

use std::io::{self, Read, Write};

use super::{KvCache, POSITIONS, page::Page};
use crate::threads::Threads;

impl KvCache {
    /// Writes the pages that the token at `len` and later ones attend to. Pages that the cache does
    /// not hold are skipped; see [`KvCache::holds`].
    ///
    /// # Errors
    /// If `to` cannot be written.
    pub fn write(&mut self, sequence: usize, len: usize, to: &mut impl Write) -> io::Result<()> {
        for layer in 0..self.visibilities.len() {
            for i in self.needed_pages(layer, len) {
                let Some(page) = &mut self.sequences[sequence].layers[layer][i] else { continue };
                for bytes in page.bytes() {
                    to.write_all(bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Replaces a sequence by the pages that [`KvCache::write`] wrote for the same `len`.
    ///
    /// # Errors
    /// If `from` cannot be read. The sequence is then incomplete, and must be truncated to 0.
    pub fn read(
        &mut self,
        team: &Threads,
        sequence: usize,
        len: usize,
        from: &mut impl Read,
    ) -> io::Result<()> {
        self.truncate(sequence, 0);
        for layer in 0..self.visibilities.len() {
            let needed = self.needed_pages(layer, len);
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

    /// Returns the number of bytes that [`KvCache::write`] writes.
    pub fn written_bytes(&self, len: usize) -> u64 {
        let layers = 0..self.visibilities.len();
        let pages: usize = layers.map(|layer| self.needed_pages(layer, len).count()).sum();
        (pages * self.shape.page_bytes()) as u64
    }
}
