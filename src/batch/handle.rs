//! A handle to a scheduler on another thread.

use std::sync::{Arc, mpsc::Sender};
use std::time::Instant;

use super::{Error, Reply, Request, Scheduler, Status, status::Place};

/// A function that a scheduler calls between two steps.
pub type Command = Box<dyn FnOnce(&mut Scheduler<'_>) + Send>;

/// Sends requests and commands to a scheduler that [runs](Scheduler::run) on another thread. Clones
/// are cheap.
///
/// ```no_run
/// use std::{sync::{Arc, mpsc}, thread};
/// use rope_cpu::batch::{Handle, Options, Request, Scheduler};
/// # use rope_cpu::{model::{self, Engine, Model}, rope::{Flags, Rope}};
///
/// let model = Model::open("model.gguf")?;
/// let tokenizer = model.tokenizer()?;
/// # let rope = Rope::new(model.rope_plan(&Flags::default(), 4096)?);
/// # let engine = Engine::new(&model, rope, model::Options::new(4096))?;
/// let (commands, received) = mpsc::channel();
/// let status = Arc::default();
/// let handle = Handle::new(commands, Arc::clone(&status));
/// let scheduler = Scheduler::new(engine, tokenizer, Options::new(4), status);
/// thread::scope(|scope| {
///     scope.spawn(move || scheduler.run(&received));
///     let request = Request::new(tokenizer.encode_chat("The north wind"));
///     // Refused if 16 requests are waiting.
///     let submitted = handle.submit(vec![(request, Box::new(|update| println!("{update:?}")))], 16);
///     // ... more requests, from any thread ...
///     handle.stop(None);
///     submitted
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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

    /// Submits requests together. They wait for slots in order and count as one waiting request
    /// until all have slots. An invalid request is reported to its own reply.
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

    /// Runs `act` with the scheduler after the current step.
    ///
    /// # Errors
    /// [`Error::Stopped`] if the scheduler has stopped.
    pub fn act(&self, act: impl FnOnce(&mut Scheduler<'_>) + Send + 'static) -> Result<(), Error> {
        self.commands.send(Box::new(act)).map_err(|_| Error::Stopped)
    }

    /// Stops the scheduler. Unfinished answers fail with [`Error::Stopped`]. Sequences that are not
    /// on disk by `saved_by` are lost; with `None`, the scheduler saves all. Does nothing if the
    /// scheduler has stopped already.
    pub fn stop(&self, saved_by: Option<Instant>) {
        let _ = self.act(move |scheduler| scheduler.stop(saved_by));
    }
}
