//! SIGINT and SIGTERM, and the signal for a file that is too large.

use std::{io, sync::Arc, thread, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use signal_hook::{
    consts::{SIGINT, SIGTERM, SIGXFSZ},
    flag,
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

/// Makes a write beyond the limit on file sizes (`ulimit -f`) an error. By default, it kills the
/// program, which then leaves an incomplete file and no message.
pub fn report_file_size_limit() {
    // A program without the handler is killed as before. Programs that it starts do not inherit it.
    let _ = flag::register(SIGXFSZ, Arc::default());
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
