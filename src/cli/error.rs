//! The errors of commands, and their exit codes.

use std::{fmt::Display, io, process::ExitCode};

use thiserror::Error;

use rope_cpu::platform::interrupt;

/// An error that stops a command.
#[derive(Debug, Error)]
pub enum Error {
    /// Invalid arguments or an invalid file: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// A prompt that does not fit in the context: exit code 2.
    #[error("{0}")]
    TooLong(String),
    /// A failure while running: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// Interrupted by Ctrl-C or SIGTERM: exit code 130 or 143, as shells expect.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Creates an error in the arguments or in a file.
    pub fn usage(message: impl Display) -> Self {
        Error::Usage(message.to_string())
    }

    /// Creates an error for a failure while running.
    pub fn failed(message: impl Display) -> Self {
        Error::Failed(message.to_string())
    }

    /// Prints the error and returns the exit code. A closed pipe (`| head`) is not an error.
    pub fn report(&self) -> ExitCode {
        match self {
            Error::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Error::Interrupted => ExitCode::from(interrupt::exit_code()),
            Error::Usage(_) | Error::TooLong(_) => {
                super::note(format_args!("error: {self}"));
                ExitCode::from(2)
            }
            Error::Failed(_) | Error::Output(_) => {
                super::note(format_args!("error: {self}"));
                ExitCode::FAILURE
            }
        }
    }
}
