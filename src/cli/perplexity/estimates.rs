//! The estimates after each window, and the expected time before the first of them.

use std::{
    io::{self, Write},
    time::Instant,
};

use crate::cli::{note, time};

/// Prints the estimates of windows that were read side by side at once, after the last of them.
pub struct Estimates<'o> {
    began: Instant,
    out: &'o mut dyn Write,
    pending: Vec<u8>,
}

impl<'o> Estimates<'o> {
    /// Creates the output to `out` of a run that begins now.
    pub fn new(out: &'o mut dyn Write) -> Self {
        Estimates { began: Instant::now(), out, pending: Vec::new() }
    }

    /// Adds what `print` writes about window `number` of `total`, counted from 1, which was read
    /// side by side with others, `together` windows in all.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn add(
        &mut self,
        number: usize,
        together: usize,
        total: usize,
        print: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        print(&mut self.pending)?;
        if number.is_multiple_of(together) || number == total {
            pace(number, together, total, self.began);
            self.out.write_all(&self.pending)?;
            self.pending.clear();
        }
        self.out.flush()
    }
}

/// Prints the expected time, after the first windows, which were read side by side.
pub fn pace(number: usize, together: usize, total: usize, began: Instant) {
    if number == together && total > together {
        let seconds = began.elapsed().as_secs_f64() / together as f64;
        let left = time::wait(seconds * (total - together) as f64);
        note(format_args!("{seconds:.2} s per window; {total} windows, {left} left"));
    }
}
