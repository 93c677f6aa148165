//! Errors of requests.

use thiserror::Error;

use crate::{generate, model};

/// Why a request has no answer.
#[derive(Debug, Error)]
pub enum Error {
    /// The prompt or the settings are invalid, or the answer cannot go on.
    #[error(transparent)]
    Generate(#[from] generate::Error),
    /// The draft model failed.
    #[error("the draft model failed: {0}")]
    Draft(model::Error),
    /// There is no slot with this number.
    #[error("slot {slot}: must be from 0 to {}", slots - 1)]
    NoSlot {
        /// The number that was given.
        slot: usize,
        /// The number of slots.
        slots: usize,
    },
    /// The slot computes an answer.
    #[error("slot {0} is in use: wait for the end of its answer")]
    SlotInUse(usize),
    /// The slot has tokens of another owner.
    #[error("slot {0} has tokens of another owner: use another slot")]
    SlotOfOther(usize),
    /// Too many requests wait.
    #[error("{waiting} requests wait already: try again later")]
    QueueFull {
        /// The number of waiting requests.
        waiting: usize,
    },
    /// The scheduler has stopped, or is stopping.
    #[error("the scheduler has stopped: it answers no more requests")]
    Stopped,
}

impl From<model::Error> for Error {
    fn from(error: model::Error) -> Self {
        Error::Generate(error.into())
    }
}
