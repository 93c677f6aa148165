//! Signal handlers, which a program installs.

use std::{
    fs,
    io::{self, Write},
    process,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use super::{INTERRUPTED, TERMINATED, exit_actions, exit_code, raised};
use crate::platform::{echo, system};

/// Whether Ctrl-C does nothing.
static IGNORED: AtomicBool = AtomicBool::new(false);
/// Called at the first signal.
static STOP: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

/// Installs handlers for Ctrl-C and SIGTERM. They set a flag, which [`raised`] returns. A second
/// signal exits immediately, so you can always stop the program.
///
/// # Errors
/// If the system rejects a handler.
pub fn install() -> io::Result<()> {
    system::handle_signals()
}

/// Installs handlers like [`install`]. At the first signal, they also call `stop`. Without
/// `interrupts`, Ctrl-C does nothing.
///
/// # Errors
/// If the system rejects a handler.
pub fn install_with(interrupts: bool, stop: impl Fn() + Send + Sync + 'static) -> io::Result<()> {
    IGNORED.store(!interrupts, SeqCst);
    // Fails if it is set already: a program has one server.
    let _ = STOP.set(Box::new(stop));
    install()
}

/// A request to stop the program.
#[derive(Clone, Copy)]
pub(in crate::platform) enum Request {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM, or the end of a console in Windows.
    Terminate,
}

/// Handles a request to stop. The second one exits.
pub(in crate::platform) fn raise(request: Request) {
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

/// Returns whether the program is waiting for a line, which only a signal can interrupt.
#[cfg_attr(windows, expect(dead_code, reason = "nothing interrupts that wait in Windows"))]
pub(in crate::platform) fn waits_for_line() -> bool {
    super::WAITING.load(SeqCst)
}

fn exit_now() -> ! {
    // Hold the lock until the exit, so that no other file is registered.
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
