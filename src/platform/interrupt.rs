//! Handles Ctrl-C, SIGTERM and, in Windows, a closed console. The first one stops the computation,
//! the second one exits the program.

#[cfg(feature = "program")]
mod handlers;

use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

#[cfg(feature = "program")]
pub use handlers::*;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static TERMINATED: AtomicBool = AtomicBool::new(false);
static WAITING: AtomicBool = AtomicBool::new(false);
static EXIT_ACTIONS: Mutex<ExitActions> =
    Mutex::new(ExitActions { files: Vec::new(), warning: None });

/// Actions before an immediate exit.
struct ExitActions {
    /// Incomplete files to remove.
    files: Vec<PathBuf>,
    /// A warning to print.
    warning: Option<String>,
}

/// Returns whether to stop the computation: after Ctrl-C since the last [`read_line()`], or
/// SIGTERM.
pub fn raised() -> bool {
    INTERRUPTED.load(SeqCst) || terminated()
}

/// Returns whether to exit the program: after SIGTERM.
pub fn terminated() -> bool {
    TERMINATED.load(SeqCst)
}

/// Returns the exit code of an interrupted program, as in shells: 128 plus the number of the
/// signal, SIGTERM or SIGINT.
pub fn exit_code() -> u8 {
    if terminated() { 143 } else { 130 }
}

/// Calls `read`, which waits for a line. Clears an earlier Ctrl-C first. SIGTERM interrupts the
/// wait, as Ctrl-C does in the line editor. After SIGTERM, returns `None` without waiting.
pub fn read_line<T>(read: impl FnOnce() -> T) -> Option<T> {
    let clear = || INTERRUPTED.store(false, SeqCst);
    clear();
    WAITING.store(true, SeqCst);
    let line = (!terminated()).then(read);
    WAITING.store(false, SeqCst);
    clear();
    line
}

/// Sets the warning that an immediate exit prints to stderr; `None` for no warning.
pub fn warn_on_exit(warning: Option<String>) {
    exit_actions().warning = warning;
}

/// Registers an incomplete file. While the returned value lives, an immediate exit removes the
/// file.
pub fn unfinished(file: &Path) -> Unfinished {
    exit_actions().files.push(file.into());
    Unfinished(file.into())
}

/// The registration of an incomplete file.
pub struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        exit_actions().files.retain(|file| *file != self.0);
    }
}

fn exit_actions() -> MutexGuard<'static, ExitActions> {
    EXIT_ACTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads like [`Read::read`]. Repeats the call if a signal interrupts it, such as SIGWINCH when a
/// terminal changes its size.
///
/// # Errors
/// As for [`Read::read`].
pub fn read(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// A writer that fails after Ctrl-C or SIGTERM.
pub struct Interruptible<W>(pub W);

impl<W: Write> Write for Interruptible<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if raised() {
            // Not `Interrupted`, since callers would retry.
            return Err(io::Error::other("interrupted"));
        }
        // Write in parts, so that Ctrl-C takes effect within a large tensor.
        self.0.write(&bytes[..bytes.len().min(8 << 20)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe: each second read is interrupted.
    struct Pipe(u8);

    impl Read for Pipe {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 += 1;
            buffer[0] = self.0;
            if self.0.is_multiple_of(2) { Ok(1) } else { Err(io::ErrorKind::Interrupted.into()) }
        }
    }

    #[test]
    fn an_interrupted_read_is_repeated() {
        let (mut pipe, mut buffer) = (Pipe(0), [0]);
        for expected in [2, 4, 6] {
            assert_eq!((read(&mut pipe, &mut buffer).unwrap(), buffer), (1, [expected]));
        }
    }
}
