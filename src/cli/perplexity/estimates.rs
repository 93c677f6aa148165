//! The estimates after each window, and the expected time before the first of them.

use std::{
    io::{self, Write},
    time::Instant,
};

use crate::cli::{note, time};

/// Prints the estimates of windows side by side together, after the last of these windows.
pub struct Estimates<'o> {
    began: Instant,
    out: &'o mut dyn Write,
    pending: Vec<u8>,
}

impl<'o> Estimates<'o> {
    /// Creates the output to `out`, and starts the clock.
    pub fn new(out: &'o mut dyn Write) -> Self {
        Estimates { began: Instant::now(), out, pending: Vec::new() }
    }

    /// Adds what `print` writes about window `number` of `total`, counted from 1. `together`
    /// windows are processed side by side.
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

/// Prints the expected time, after the first `together` windows.
pub fn pace(number: usize, together: usize, total: usize, began: Instant) {
    if number == together && total > together {
        let seconds = began.elapsed().as_secs_f64() / together as f64;
        let left = time::wait(seconds * (total - together) as f64);
        note(format_args!("{seconds:.2} s per window; {total} windows, {left} left"));
    }
}
