//! Handling of Ctrl-C and SIGTERM, or a closed console in Windows: the first stops the computation,
//! the second exits the program.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use super::{echo, system};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static TERMINATED: AtomicBool = AtomicBool::new(false);
static WAITING: AtomicBool = AtomicBool::new(false);
/// Whether Ctrl-C does nothing.
static IGNORED: AtomicBool = AtomicBool::new(false);
/// Called at the first signal.
static STOP: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();
static EXIT_ACTIONS: Mutex<ExitActions> =
    Mutex::new(ExitActions { files: Vec::new(), warning: None });

/// The actions before an immediate exit.
struct ExitActions {
    /// Incomplete files, which are removed.
    files: Vec<PathBuf>,
    /// A warning, which is printed.
    warning: Option<String>,
}

/// Installs handlers: Ctrl-C and SIGTERM set a flag, which [`raised`] returns. A second signal
/// exits immediately, so that you can always stop the program.
///
/// # Errors
/// If the system rejects a handler.
pub fn install() -> io::Result<()> {
    system::handle_signals()
}

/// Installs handlers like [`install`], which also call `stop` at the first signal. Without
/// `interrupts`, Ctrl-C does nothing.
///
/// # Errors
/// If the system rejects a handler.
pub fn install_with(interrupts: bool, stop: impl Fn() + Send + Sync + 'static) -> io::Result<()> {
    IGNORED.store(!interrupts, SeqCst);
    // Set once: a program has one server.
    let _ = STOP.set(Box::new(stop));
    install()
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

/// Calls `read`, which waits for a line, and clears an earlier Ctrl-C. SIGTERM interrupts the wait
/// like Ctrl-C in the line editor; after SIGTERM, returns `None` without a wait.
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

/// A request to stop the program.
#[derive(Clone, Copy)]
pub(super) enum Request {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM, or the end of a console in Windows.
    Terminate,
}

/// Handles a request to stop. The second one exits.
pub(super) fn raise(request: Request) {
    let second = raised();
    let flag = match request {
        Request::Interrupt if IGNORED.load(SeqCst) => return,
        Request::Interrupt => &INTERRUPTED,
        Request::Terminate => &TERMINATED,
    };
    flag.store(true, SeqCst);
    if second {
        exit_now();
    }
    if let Some(stop) = STOP.get() {
        stop();
    }
}

/// Returns whether the program waits for a line, which only a signal interrupts.
#[cfg_attr(windows, expect(dead_code, reason = "nothing interrupts that wait in Windows"))]
pub(super) fn waits_for_line() -> bool {
    WAITING.load(SeqCst)
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

/// A writer that fails after Ctrl-C or SIGTERM.
pub struct Interruptible<W>(pub W);

impl<W: Write> Write for Interruptible<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if raised() {
            // Not of the kind Interrupted, after which callers try again.
            return Err(io::Error::other("interrupted"));
        }
        // In parts, so that Ctrl-C stops within a large tensor.
        self.0.write(&bytes[..bytes.len().min(8 << 20)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
