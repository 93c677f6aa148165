//! The echo of typed characters by the terminal.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::system;

/// Whether [`stop`] has stopped the echo.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Keeps the terminal from showing what is typed, until it is dropped.
pub struct Stopped(());

/// Stops the echo if standard input is a terminal that echoes. What is typed is read later.
pub fn stop() -> Option<Stopped> {
    system::set_echo(false).then(|| {
        STOPPED.store(true, SeqCst);
        Stopped(())
    })
}

/// Starts the echo again, if [`stop`] has stopped it.
pub fn restore() {
    if STOPPED.swap(false, SeqCst) {
        system::set_echo(true);
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        restore();
    }
}
