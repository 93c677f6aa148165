//! SIGINT and SIGTERM.

use std::{io, thread, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::platform::interrupt::{Request, raise, terminated, waits_for_line};

/// Starts a thread that calls [`raise`] for each SIGINT and SIGTERM.
pub fn handle_signals() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        loop {
            for signal in signals.wait() {
                raise(if signal == SIGTERM { Request::Terminate } else { Request::Interrupt });
            }
            if terminated() {
                end_waiting(&mut signals);
            }
        }
    })?;
    Ok(())
}

/// Interrupts the wait for a line by SIGINT, which the line editor handles while it waits. A SIGINT
/// outside the wait has no effect, so it is sent repeatedly.
fn end_waiting(signals: &mut Signals) {
    while waits_for_line() {
        let _ = kill(Pid::this(), Signal::SIGINT);
        thread::sleep(Duration::from_millis(50));
        if signals.pending().any(|signal| signal == SIGTERM) {
            raise(Request::Terminate);
        }
    }
}
