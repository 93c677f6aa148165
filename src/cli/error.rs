//! How a run can end badly, and with which exit code.

use std::{fmt::Display, io, process::ExitCode};

use thiserror::Error;

use super::{inspect, tokenize};
use rope_cpu::platform::interrupt;

/// Why a command did not succeed.
#[derive(Debug, Error)]
pub enum Error {
    /// What was typed, or a file that was named, cannot be used: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Something failed on the way: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// The reader of our output is gone, or has no room.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// Ctrl-C or SIGTERM ended it: exit code 130 or 143, as shells expect.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// An error in what was typed or in a file that was named.
    pub fn usage(message: impl Display) -> Self {
        Error::Usage(message.to_string())
    }

    /// A failure while running.
    pub fn failed(message: impl Display) -> Self {
        Error::Failed(message.to_string())
    }

    /// Tells the user, where there is something to tell, and gives the exit code. A reader that
    /// has seen enough (`| head`) is no failure.
    pub fn report(&self) -> ExitCode {
        match self {
            Error::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Error::Interrupted => ExitCode::from(interrupt::exit_code()),
            Error::Usage(_) => {
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

impl From<inspect::Error> for Error {
    fn from(error: inspect::Error) -> Self {
        match error {
            inspect::Error::Write(e) => Error::Output(e),
            other => Error::usage(other),
        }
    }
}

impl From<tokenize::Error> for Error {
    fn from(error: tokenize::Error) -> Self {
        match error {
            tokenize::Error::Write(e) => Error::Output(e),
            tokenize::Error::Model(e) => e,
            other => Error::usage(other),
        }
    }
}
