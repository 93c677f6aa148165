//! Writing the cache to a file and reading it back: whole pages, as they are.

use std::io::{self, Read, Write};

use super::{KvCache, page::Page};
use crate::threads::Threads;

impl KvCache {
    /// Writes the pages that a token at `len` and later ones need; see [`KvCache::truncate`] for
    /// whether they are there.
    pub fn write(&mut self, sequence: usize, len: usize, to: &mut impl Write) -> io::Result<()> {
        for layer in 0..self.windows.len() {
            let needed = self.needed(layer, len);
            for page in self.sequences[sequence].layers[layer][needed].iter_mut().flatten() {
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
        for layer in 0..self.windows.len() {
            let needed = self.needed(layer, len);
            self.sequences[sequence].layers[layer].resize_with(needed.start, || None);
            let new = needed.len().saturating_sub(self.free.len());
            self.free.extend(Page::zeros(team, self.shape, new));
            for mut page in self.free.drain(self.free.len() - needed.len()..) {
                for bytes in page.bytes() {
                    from.read_exact(bytes)?;
                }
                self.sequences[sequence].layers[layer].push(Some(page));
            }
        }
        Ok(())
    }

    /// Bytes of what [`KvCache::write`] writes.
    pub fn written_bytes(&self, len: usize) -> u64 {
        let pages: usize = (0..self.windows.len()).map(|layer| self.needed(layer, len).len()).sum();
        (pages * self.shape.page_bytes()) as u64
    }
}
