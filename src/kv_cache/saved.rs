//! Writing the keys and values of a sequence to a file and reading them back, as whole pages.

use std::io::{self, Read, Write};

use super::{POSITIONS, PageTable};
use crate::threads::Threads;

impl PageTable {
    /// Writes the pages that the token at `len` and later ones attend to. Pages that the table does
    /// not have are skipped; see [`PageTable::holds`].
    ///
    /// # Errors
    /// If `to` cannot be written.
    pub fn write(
        &self,
        team: &Threads,
        len: usize,
        to: &mut (impl Write + Send),
    ) -> io::Result<()> {
        let mut result = Ok(());
        for (layer, pages) in self.layers.iter().enumerate() {
            for i in self.needed_pages(layer, len) {
                let Some(page) = &pages[i] else { continue };
                page.read(team, |bytes| {
                    if result.is_ok() {
                        result = to.write_all(bytes);
                    }
                });
            }
        }
        result
    }

    /// Replaces the sequence by the pages that [`PageTable::write`] wrote for the same `len`.
    ///
    /// # Errors
    /// If `from` cannot be read, or the pool is full. The table is then incomplete, and must be
    /// truncated to 0.
    pub fn read(
        &mut self,
        team: &Threads,
        len: usize,
        from: &mut (impl Read + Send),
    ) -> io::Result<()> {
        self.truncate(0);
        let mut result = Ok(());
        for layer in 0..self.layers.len() {
            let needed = self.needed_pages(layer, len);
            let new = self.pool.take(team, needed.clone().count());
            let new = new.map_err(|full| io::Error::new(io::ErrorKind::OutOfMemory, full))?;
            let pages = &mut self.layers[layer];
            pages.resize(len.div_ceil(POSITIONS), None);
            for (i, page) in needed.zip(new) {
                page.write(team, |bytes| {
                    if result.is_ok() {
                        result = from.read_exact(bytes);
                    }
                });
                pages[i] = Some(page);
            }
        }
        result
    }

    /// Returns the number of bytes that [`PageTable::write`] writes.
    pub fn written_bytes(&self, len: usize) -> u64 {
        let layers = 0..self.layers.len();
        let pages: usize = layers.map(|layer| self.needed_pages(layer, len).count()).sum();
        (pages * self.pool.shape().page_bytes()) as u64
    }
}
