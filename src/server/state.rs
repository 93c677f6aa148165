//! State shared by all request handlers.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
};

use rope_cpu::shelf::{Entry, Shelf};

use super::{
    body,
    memory::{self, Memory},
    models::Models,
    options::Options,
    work::Work,
};

/// A server: its options, and its models.
pub struct Server {
    /// Settings from the command line.
    pub options: Options,
    /// Set when the server is stopping and refuses requests.
    pub stopping: AtomicBool,
    /// Threads that handle requests.
    pub work: Work,
    /// Memory used by the bodies and answers of requests.
    pub memory: Memory,
    /// The models that requests can use.
    pub models: Arc<Models>,
    /// Checks the options of a model.
    pub check: Check,
}

/// Checks the options of a model, without opening it. The error has the reason.
type Check = fn(&Entry) -> Result<(), String>;

impl Server {
    /// Creates a server of the models of a shelf, or of one model without a shelf.
    ///
    /// # Errors
    /// If the threads that handle requests cannot be started.
    pub fn new(options: Options, shelf: Option<Shelf>, check: Check) -> io::Result<Self> {
        let models = Models::new(shelf, options.shelved.clone(), options.requests.max_queue);
        let (stopping, work, models) = (AtomicBool::new(false), Work::start()?, Arc::new(models));
        Ok(Server { options, stopping, work, memory: Memory::default(), models, check })
    }

    /// Returns whether answers are waiting or being generated.
    pub fn busy(&self) -> bool {
        self.models.busy()
    }

    /// Returns the largest context of a slot in positions; 0 before the model of `-m` is open.
    pub fn context(&self) -> usize {
        self.models.context()
    }

    /// Returns the maximum size of a body in bytes.
    pub fn body_max(&self) -> usize {
        body::largest(self.options.listen.body_max, self.context())
    }

    /// Returns the maximum memory of all requests in bytes.
    pub fn memory_max(&self) -> usize {
        memory::largest(self.body_max())
    }
}
