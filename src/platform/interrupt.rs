//! Ctrl-C and SIGTERM: the first stops what is being computed, the next leaves the program.

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

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static TERMINATED: AtomicBool = AtomicBool::new(false);
/// Whether a line is being waited for, which only a signal ends.
#[cfg(unix)]
static WAITING: AtomicBool = AtomicBool::new(false);
static LOST: Mutex<Lost> = Mutex::new(Lost { files: Vec::new(), warning: None });

/// What is lost where the program is left at once.
struct Lost {
    /// Files that are not complete.
    files: Vec<PathBuf>,
    warning: Option<String>,
}

/// From now on Ctrl-C and SIGTERM set a flag, which [`raised`] tells. A second one leaves the program
/// at once, so that it can always be left.
///
/// # Errors
/// Where the system refuses a handler.
pub fn install() -> io::Result<()> {
    #[cfg(unix)]
    return unix::install();
    #[cfg(not(unix))]
    return ctrlc::set_handler(|| raise(&INTERRUPTED)).map_err(io::Error::other);
}

/// Whether what is being computed is to stop: by a Ctrl-C since the last [`line()`], or SIGTERM.
pub fn raised() -> bool {
    INTERRUPTED.load(SeqCst) || terminated()
}

/// Whether the program is to end, by SIGTERM.
pub fn terminated() -> bool {
    TERMINATED.load(SeqCst)
}

/// The exit code of a program that one of them ended, as shells know it: 128 and the number of the
/// signal, SIGTERM or SIGINT.
pub fn exit_code() -> u8 {
    if terminated() { 143 } else { 130 }
}

/// Waits for a line that is typed, and forgets a Ctrl-C from before it, which has had its effect.
/// SIGTERM ends the waiting: the line editor then sees Ctrl-C. After it nothing is waited for.
pub fn line<T>(read: impl FnOnce() -> T) -> Option<T> {
    let forget = || INTERRUPTED.store(false, SeqCst);
    forget();
    #[cfg(unix)]
    WAITING.store(true, SeqCst);
    let line = (!terminated()).then(read);
    #[cfg(unix)]
    WAITING.store(false, SeqCst);
    forget();
    line
}

/// What is said on stderr if the program is left at once; `None` for nothing.
pub fn warn_if_left(warning: Option<String>) {
    lost().warning = warning;
}

/// Has this file removed if the program is left at once while the value lives.
pub fn unfinished(file: &Path) -> Unfinished {
    lost().files.push(file.into());
    Unfinished(file.into())
}

/// A file that is not complete.
pub struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        lost().files.retain(|file| *file != self.0);
    }
}

fn lost() -> MutexGuard<'static, Lost> {
    LOST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One of the signals arrived, which has this flag.
fn raise(flag: &AtomicBool) {
    let second = raised();
    flag.store(true, SeqCst);
    if second {
        leave();
    }
}

fn leave() -> ! {
    // Held to the end, so that no other file is begun.
    let lost = lost();
    for file in &lost.files {
        let _ = fs::remove_file(file);
    }
    if let Some(warning) = &lost.warning {
        let _ = writeln!(io::stderr(), "{warning}");
    }
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

    use super::{INTERRUPTED, TERMINATED, WAITING, leave, raise, terminated};

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

    /// Ends the waiting for a line. The line editor has a handler of its own for SIGINT while it
    /// waits; one that comes before or after that is not counted.
    fn end_waiting(signals: &mut Signals) {
        while WAITING.load(SeqCst) {
            let _ = kill(Pid::this(), Signal::SIGINT);
            thread::sleep(Duration::from_millis(50));
            if signals.pending().any(|signal| signal == SIGTERM) {
                leave();
            }
        }
    }
}

/// A writer that fails once there was a Ctrl-C or SIGTERM.
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
