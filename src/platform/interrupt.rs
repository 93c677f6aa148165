//! Ctrl-C: the first stops what is being computed, the next leaves the program.

use std::{
    io::{self, Write},
    process,
    sync::atomic::{AtomicBool, Ordering},
};

/// The exit code of a program that was interrupted, as shells know it: 128 + SIGINT.
pub const EXIT_CODE: u8 = 130;

static RAISED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C sets a flag, which [`raised`] tells and [`clear`] takes back. A second
/// Ctrl-C before that leaves the program, so that it can always be left.
///
/// # Errors
/// Where the system refuses a handler, or one was installed before.
pub fn install() -> io::Result<()> {
    ctrlc::set_handler(|| {
        if RAISED.swap(true, Ordering::Relaxed) {
            process::exit(EXIT_CODE.into());
        }
    })
    .map_err(io::Error::other)
}

/// Whether Ctrl-C was pressed since the last [`clear`].
pub fn raised() -> bool {
    RAISED.load(Ordering::Relaxed)
}

/// Forgets a Ctrl-C that has had its effect.
pub fn clear() {
    RAISED.store(false, Ordering::Relaxed);
}

/// A writer that fails once Ctrl-C was pressed.
pub struct Interruptible<W>(pub W);

impl<W: Write> Write for Interruptible<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if raised() {
            // Not the kind Interrupted, after which writing is tried again.
            return Err(io::Error::other("interrupted"));
        }
        // In parts, so that Ctrl-C need not wait for the end of a large tensor.
        self.0.write(&bytes[..bytes.len().min(8 << 20)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
