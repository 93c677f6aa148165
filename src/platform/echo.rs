//! The echo of typed characters by the terminal.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Whether [`stop`] has stopped the echo.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// The time in which the terminal shows nothing of what is typed; it ends when the value is dropped.
pub struct Stopped(());

/// Stops the echo if standard input is a terminal that echoes. What is typed is read later.
pub fn stop() -> Option<Stopped> {
    set(false).then(|| {
        STOPPED.store(true, SeqCst);
        Stopped(())
    })
}

/// Starts the echo again, if [`stop`] has stopped it.
pub fn restore() {
    if STOPPED.swap(false, SeqCst) {
        set(true);
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        restore();
    }
}

/// Sets the echo. Returns whether that changed it.
#[cfg(unix)]
fn set(echo: bool) -> bool {
    use std::io;

    use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};

    let stdin = io::stdin();
    let Ok(mut settings) = tcgetattr(&stdin) else { return false };
    let changes = settings.local_flags.contains(LocalFlags::ECHO) != echo;
    settings.local_flags.set(LocalFlags::ECHO, echo);
    changes && tcsetattr(&stdin, SetArg::TCSANOW, &settings).is_ok()
}

/// Does nothing: the echo is not changed on this system.
#[cfg(not(unix))]
fn set(_: bool) -> bool {
    false
}
