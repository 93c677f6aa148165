//! Writing the keys and values of a sequence to a file and reading them back, as whole pages.

use std::io::{self, Read, Write};

use super::{POSITIONS, PageTable};
use crate::{platform::memory::filled, threads::Threads};

impl PageTable {
    /// Writes the pages that the token at `len` and later ones attend to. Pages that the table does
    /// not have are skipped; see [`PageTable::holds`].
    ///
    /// # Errors
    /// If `to` cannot be written.
    pub fn write(&self, team: &Threads, len: usize, to: &mut impl Write) -> io::Result<()> {
        // A page is copied first, so that the team does not wait for the file.
        let mut copy = Vec::with_capacity(self.pool.shape().page_bytes());
        for (layer, pages) in self.layers.iter().enumerate() {
            for i in self.needed_pages(layer, len) {
                let Some(page) = &pages[i] else { continue };
                copy.clear();
                page.read(team, |bytes| copy.extend_from_slice(bytes));
                to.write_all(&copy)?;
            }
        }
        Ok(())
    }

    /// Replaces the sequence by the pages that [`PageTable::write`] wrote for the same `len`.
    ///
    /// # Errors
    /// If `from` cannot be read, or the pool is full. The table is then incomplete, and must be
    /// truncated to 0.
    pub fn read(&mut self, team: &Threads, len: usize, from: &mut impl Read) -> io::Result<()> {
        self.truncate(0);
        let refused = |refused| io::Error::new(io::ErrorKind::OutOfMemory, refused);
        let mut copy = filled(0, self.pool.shape().page_bytes()).map_err(refused)?;
        for layer in 0..self.layers.len() {
            let needed = self.needed_pages(layer, len);
            let new = self.pool.take(team, needed.clone().count());
            let new = new.map_err(|full| io::Error::new(io::ErrorKind::OutOfMemory, full))?;
            let pages = &mut self.layers[layer];
            pages.resize(len.div_ceil(POSITIONS), None);
            for (i, page) in needed.zip(new) {
                from.read_exact(&mut copy)?;
                let mut rest = &copy[..];
                page.write(team, |bytes| {
                    let (next, after) = rest.split_at(bytes.len());
                    bytes.copy_from_slice(next);
                    rest = after;
                });
                pages[i] = Some(page);
            }
        }
        Ok(())
    }

    /// Returns the number of bytes that [`PageTable::write`] writes.
    pub fn written_bytes(&self, len: usize) -> u64 {
        let layers = 0..self.layers.len();
        let pages: usize = layers.map(|layer| self.needed_pages(layer, len).count()).sum();
        (pages * self.pool.shape().page_bytes()) as u64
    }
}
