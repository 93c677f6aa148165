//! Turns the terminal's echo of typed characters off and on.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::system;

/// Whether [`stop`] has stopped the echo.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Keeps the echo off until it is dropped.
pub struct Stopped(());

/// Turns the echo off if standard input is a terminal that echoes. The program reads what is typed
/// later.
pub fn stop() -> Option<Stopped> {
    system::set_echo(false).then(|| {
        STOPPED.store(true, SeqCst);
        Stopped(())
    })
}

/// Turns the echo on again, if [`stop`] has turned it off.
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
