//! Forks: a child process has the memory of its parent, but none of its threads.

use std::process;

use pyo3::PyErr;

use crate::errors::failed;

/// The process that started the threads of a value.
#[derive(Clone, Copy)]
pub struct Process(u32);

impl Process {
    /// Returns the current process.
    pub fn current() -> Self {
        Process(process::id())
    }

    /// Returns whether the current process has the threads.
    pub fn is_current(self) -> bool {
        self.0 == process::id()
    }

    /// Checks that the current process has the threads.
    ///
    /// # Errors
    /// If it was forked since.
    pub fn check(self) -> Result<(), PyErr> {
        match self.is_current() {
            true => Ok(()),
            false => Err(failed(
                "the model was used before this process was forked: open it here, or start processes \
                 with spawn",
            )),
        }
    }
}
