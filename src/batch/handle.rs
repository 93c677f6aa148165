//! A handle to a scheduler on another thread.

use std::sync::{Arc, mpsc::Sender};
use std::time::Instant;

use super::{Error, Reply, Request, Scheduler, Status, status::Place};

/// A function that a scheduler calls between two steps.
pub type Command = Box<dyn FnOnce(&mut Scheduler<'_>) + Send>;

/// A handle to a scheduler that [runs](Scheduler::run) on another thread.
#[derive(Clone, Debug)]
pub struct Handle {
    commands: Sender<Command>,
    status: Arc<Status>,
}

impl Handle {
    /// Creates a handle to the scheduler that receives `commands` and reports its state to
    /// `status`.
    pub fn new(commands: Sender<Command>, status: Arc<Status>) -> Self {
        Handle { commands, status }
    }

    /// Returns the state of the scheduler.
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// Submits requests, which wait for slots in order and count as one until all have them. Errors
    /// in a request go to its reply.
    ///
    /// # Errors
    /// [`Error::QueueFull`] if at least `waiting_max` requests are waiting; then none of `requests`
    /// is submitted. [`Error::Stopped`] if the scheduler has stopped.
    pub fn submit(
        &self,
        requests: Vec<(Request, Box<dyn Reply>)>,
        waiting_max: usize,
    ) -> Result<(), Error> {
        let (place, waiting) = Place::take(&self.status);
        if waiting >= waiting_max {
            return Err(Error::QueueFull { waiting });
        }
        self.act(move |scheduler| {
            for (request, reply) in requests {
                scheduler.enqueue(request, reply, place.clone());
            }
        })
    }

    /// Calls `act` with the scheduler after the current step.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the scheduler has stopped.
    pub fn act(&self, act: impl FnOnce(&mut Scheduler<'_>) + Send + 'static) -> Result<(), Error> {
        self.commands.send(Box::new(act)).map_err(|_| Error::Stopped)
    }

    /// Stops the scheduler. Unfinished answers fail with [`Error::Stopped`]. Sequences that are not
    /// on disk by `saved_by` are lost; `None` waits for all. Does nothing if the scheduler has
    /// stopped already.
    pub fn stop(&self, saved_by: Option<Instant>) {
        let _ = self.act(move |scheduler| scheduler.stop(saved_by));
    }
}
