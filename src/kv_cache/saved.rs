//! Writing the keys, values and states of a sequence to a file and reading them back.

use std::io::{self, Read, Write};

use bytemuck::{cast_slice, cast_slice_mut};

use super::{PAGE, PageTable, pool::Store, states::FILE_MAX};
use crate::{platform::memory::filled, threads::Threads};

impl PageTable {
    /// Writes the pages that the token at `len` and later ones attend to, and the states of these
    /// lengths. Skips pages that the table does not have; see [`PageTable::rewind_point`].
    ///
    /// # Errors
    /// If `to` cannot be written.
    pub fn write(
        &self,
        team: &Threads,
        len: usize,
        states: &[usize],
        to: &mut impl Write,
    ) -> io::Result<()> {
        // Copy a page first, so that the workers do not wait for the file.
        let mut copy = Vec::new();
        for (store, pages) in self.pool.stores().iter().zip(&self.stores) {
            for i in store.needed_pages(len) {
                let Some(page) = &pages[i] else { continue };
                copy.clear();
                page.read(team, |bytes| copy.extend_from_slice(bytes));
                to.write_all(&copy)?;
            }
        }
        for state in states.iter().filter_map(|len| self.states.at(*len)) {
            copy.clear();
            state.read(team, |floats| copy.extend_from_slice(cast_slice(floats)));
            to.write_all(&copy)?;
        }
        Ok(())
    }

    /// Replaces the sequence by the pages and states that [`PageTable::write`] wrote for the same
    /// lengths.
    ///
    /// # Errors
    /// If `from` cannot be read, or the pool is full. The table is then incomplete, and must be
    /// truncated to 0.
    pub fn read(
        &mut self,
        team: &Threads,
        len: usize,
        states: &[usize],
        from: &mut impl Read,
    ) -> io::Result<()> {
        self.truncate(0);
        let refused = |refused| io::Error::new(io::ErrorKind::OutOfMemory, refused);
        let full = |full| io::Error::new(io::ErrorKind::OutOfMemory, full);
        for (store, pages) in self.pool.stores().iter().zip(&mut self.stores) {
            let mut copy = filled(0, self.pool.shape_of(store).stored_bytes()).map_err(refused)?;
            let needed = store.needed_pages(len);
            let new = self.pool.take(team, &vec![store.shape; needed.clone().count()]);
            let new = new.map_err(full)?;
            pages.resize(len.div_ceil(PAGE), None);
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
        let new = self.pool.take_states(team, states.len()).map_err(full)?;
        let mut copy = filled(0, self.pool.state_bytes()).map_err(refused)?;
        for state in &new {
            from.read_exact(&mut copy)?;
            let mut rest = &copy[..];
            state.write(team, |floats| {
                let (next, after) = rest.split_at(size_of_val(floats));
                cast_slice_mut(floats).copy_from_slice(next);
                rest = after;
            });
        }
        self.states.replace(states, new);
        Ok(())
    }

    /// Returns the [`PageTable::rewind_point`] up to `len` of a table that is read from a file of
    /// `written` positions with these states.
    pub fn rewind_point_of_file(&self, written: usize, states: &[usize], len: usize) -> usize {
        self.nearest(len.min(written), states.iter().copied(), |len| {
            self.pool.stores().iter().all(|store| {
                let pages = store.needed_ranges(written);
                store.needed_pages(len).all(|i| pages.iter().any(|pages| pages.contains(&i)))
            })
        })
    }

    /// Returns whether a file of `len` positions can have states of these lengths, in ascending
    /// order. Only recurrent layers have states; there are a few, and the last one is at `len`.
    pub fn can_have(&self, len: usize, states: &[usize]) -> bool {
        if !self.pool.has_states() || len == 0 {
            return states.is_empty();
        }
        let ascending = states.is_sorted_by(|a, b| a < b) && states.first() != Some(&0);
        ascending && states.last() == Some(&len) && states.len() <= FILE_MAX + 1
    }

    /// Returns the number of bytes that [`PageTable::write`] writes.
    pub fn written_bytes(&self, len: usize, states: usize) -> u64 {
        let bytes = |store: &Store| {
            store.needed_pages(len).count() * self.pool.shape_of(store).stored_bytes()
        };
        let pages = self.pool.stores().iter().map(bytes).sum::<usize>();
        (pages + states * self.pool.state_bytes()) as u64
    }
}
