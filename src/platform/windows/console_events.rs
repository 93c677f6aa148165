//! Ctrl-C, and the end of the console.

use std::{io, thread};

use windows_sys::{
    Win32::System::Console::{CTRL_BREAK_EVENT, CTRL_C_EVENT},
    core::BOOL,
};

use super::system_calls;
use crate::platform::interrupt::{Request, raise};

/// Calls [`raise`] for each Ctrl-C and Ctrl-Break, and when the console is closed or the user logs
/// out.
pub fn handle_signals() -> io::Result<()> {
    system_calls::handle_console_events(console_event)
}

extern "system" fn console_event(event: u32) -> BOOL {
    match event {
        CTRL_C_EVENT | CTRL_BREAK_EVENT => raise(Request::Interrupt),
        _ => {
            raise(Request::Terminate);
            // The system kills the program when this returns, or after some seconds. Until then the
            // other threads finish.
            loop {
                thread::park();
            }
        }
    }
    true.into()
}
