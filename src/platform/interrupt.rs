//! Handling of Ctrl-C and SIGTERM: the first stops the computation, the second exits the program.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use super::echo;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static TERMINATED: AtomicBool = AtomicBool::new(false);
/// Whether the program waits for a line, which only a signal interrupts.
#[cfg(unix)]
static WAITING: AtomicBool = AtomicBool::new(false);
static EXIT_ACTIONS: Mutex<ExitActions> =
    Mutex::new(ExitActions { files: Vec::new(), warning: None });

/// The actions before an immediate exit.
struct ExitActions {
    /// Incomplete files, which are removed.
    files: Vec<PathBuf>,
    /// A warning, which is printed.
    warning: Option<String>,
}

/// Installs handlers: Ctrl-C and SIGTERM set a flag, which [`raised`] returns. A second one exits the
/// program immediately, so that it can always be stopped.
///
/// # Errors
/// If the system rejects a handler.
pub fn install() -> io::Result<()> {
    #[cfg(unix)]
    return unix::install();
    #[cfg(not(unix))]
    return ctrlc::set_handler(|| raise(&INTERRUPTED)).map_err(io::Error::other);
}

/// Returns whether the computation is to stop: after Ctrl-C since the last [`read_line()`], or SIGTERM.
pub fn raised() -> bool {
    INTERRUPTED.load(SeqCst) || terminated()
}

/// Returns whether the program is to exit, after SIGTERM.
pub fn terminated() -> bool {
    TERMINATED.load(SeqCst)
}

/// Returns the exit code of an interrupted program, as in shells: 128 plus the number of the signal,
/// SIGTERM or SIGINT.
pub fn exit_code() -> u8 {
    if terminated() { 143 } else { 130 }
}

/// Calls `read`, which waits for a line, and clears an earlier Ctrl-C. SIGTERM interrupts the wait like
/// a Ctrl-C in the line editor; after SIGTERM, `None` is returned without a wait.
pub fn read_line<T>(read: impl FnOnce() -> T) -> Option<T> {
    let clear = || INTERRUPTED.store(false, SeqCst);
    clear();
    #[cfg(unix)]
    WAITING.store(true, SeqCst);
    let line = (!terminated()).then(read);
    #[cfg(unix)]
    WAITING.store(false, SeqCst);
    clear();
    line
}

/// Sets the warning that an immediate exit prints to stderr; `None` for no warning.
pub fn warn_on_exit(warning: Option<String>) {
    exit_actions().warning = warning;
}

/// Registers an incomplete file, which an immediate exit removes while the returned value lives.
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

/// Handles a signal that has this flag.
fn raise(flag: &AtomicBool) {
    let second = raised();
    flag.store(true, SeqCst);
    if second {
        exit_now();
    }
}

fn exit_now() -> ! {
    // Locked until the exit, so that no other file is registered.
    let actions = exit_actions();
    for file in &actions.files {
        let _ = fs::remove_file(file);
    }
    if let Some(warning) = &actions.warning {
        let _ = writeln!(io::stderr(), "{warning}");
    }
    echo::restore();
    process::exit(exit_code().into());
}

#[cfg(unix)]
mod unix {
    use std::{io, sync::atomic::Ordering::SeqCst, thread, time::Duration};

    use nix::{
        sys::signal::{Signal, kill},
        unistd::Pid,
    };
    use signal_hook::{
        consts::{SIGINT, SIGTERM},
        iterator::Signals,
    };

    use super::{INTERRUPTED, TERMINATED, WAITING, exit_now, raise, terminated};

    pub fn install() -> io::Result<()> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        thread::Builder::new().name("signals".into()).spawn(move || {
            loop {
                for signal in signals.wait() {
                    raise(if signal == SIGTERM { &TERMINATED } else { &INTERRUPTED });
                }
                if terminated() {
                    end_waiting(&mut signals);
                }
            }
        })?;
        Ok(())
    }

    /// Interrupts the wait for a line by SIGINT, for which the line editor has its own handler while it
    /// waits. A SIGINT before or after the wait has no effect, so it is repeated.
    fn end_waiting(signals: &mut Signals) {
        while WAITING.load(SeqCst) {
            let _ = kill(Pid::this(), Signal::SIGINT);
            thread::sleep(Duration::from_millis(50));
            if signals.pending().any(|signal| signal == SIGTERM) {
                exit_now();
            }
        }
    }
}

/// A writer that fails after Ctrl-C or SIGTERM.
pub struct Interruptible<W>(pub W);

impl<W: Write> Write for Interruptible<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if raised() {
            // Not of the kind Interrupted, after which callers try again.
            return Err(io::Error::other("interrupted"));
        }
        // In parts, so that Ctrl-C takes effect within a large tensor.
        self.0.write(&bytes[..bytes.len().min(8 << 20)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
