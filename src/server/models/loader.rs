//! The thread that opens and closes models, one at a time.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use rope_cpu::shelf::Entry;
use tracing::{info, warn};

use super::{
    Models,
    state::{Next, Phase, State},
};
use crate::server::{app::Opened, error::ApiError};

/// A model to open.
pub struct Wanted<'e> {
    /// Its entry on the shelf; `None` for the model of `-m`.
    pub entry: Option<&'e Entry>,
    /// Maximum memory of this model in bytes, with `--models-memory`.
    pub memory: Option<u64>,
    /// Memory that open models have reserved but do not use yet, in bytes.
    pub reserved: u64,
    /// Whether to leave memory for further models, if that is possible.
    pub shares: bool,
}

/// Why a model is not open.
#[derive(Debug)]
pub enum Unopened {
    /// There is too little memory. It may fit once another model is closed.
    TooLarge(String),
    /// Any other reason.
    Failed(String),
}

/// Opens a model.
type Open = dyn Fn(&Wanted<'_>) -> Result<Opened, Unopened> + Send;

impl Models {
    /// Starts the thread, which opens models with `open`.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(self: &Arc<Self>, open: Box<Open>) -> io::Result<()> {
        let models = self.clone();
        let thread =
            thread::Builder::new().name("models".into()).spawn(move || models.run(&open))?;
        // A server starts it once.
        let _ = self.loader.set(thread);
        Ok(())
    }

    fn run(&self, open: &Open) {
        let mut state = self.lock();
        while !state.stopping {
            let next = state.next(&self.options);
            self.tell_changes(&mut state);
            state = match next {
                Next::Open(name) => self.open(state, &name, open),
                Next::Close { name, sleeps } => self.close(state, &name, sleeps),
                Next::Wait(None) => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                Next::Wait(Some(time)) => {
                    let waited = self.work.wait_timeout(state, time);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Opens the first model of the queue. If it does not fit, closes an idle one and leaves it in
    /// the queue.
    fn open<'m>(
        &'m self,
        mut state: MutexGuard<'m, State>,
        name: &str,
        open: &Open,
    ) -> MutexGuard<'m, State> {
        state.queue.pop_front();
        let Some(model) = state.models.get_mut(name) else { return state };
        model.phase = Phase::Loading;
        let entry = model.entry.clone();
        let needs = |opened: &Opened| opened.runtime.plan().need().total();
        let used = |opened: &Opened| opened.app.scheduler.status().state().cache_bytes as u64;
        let memory = self
            .options
            .models_memory
            .map(|most| state.opened().map(needs).fold(most as u64, u64::saturating_sub));
        let unused = |opened: &Opened| needs(opened).saturating_sub(used(opened));
        let wanted = Wanted {
            entry: entry.as_ref(),
            memory,
            reserved: state.opened().map(unused).fold(0, u64::saturating_add),
            shares: self.is_shelf() && self.options.models_max != 1,
        };
        self.changed(state);
        let started = Instant::now();
        info!(target: "models", model = name, "opening");
        let panicked = |_| Err(Unopened::Failed("a bug, please report it: it panicked".into()));
        let opened = catch_unwind(AssertUnwindSafe(|| open(&wanted))).unwrap_or_else(panicked);
        let mut state = self.lock();
        let busy = state.busy_names();
        let least_recent = state.least_recent();
        let Some(model) = state.models.get_mut(name) else { return state };
        match opened {
            Ok(opened) => {
                info!(target: "models", model = name, ms = started.elapsed().as_millis() as u64, "open");
                model.set(opened);
            }
            Err(Unopened::TooLarge(_)) if let Some(victim) = least_recent => {
                model.phase = Phase::Waiting;
                state.queue.push_front(name.into());
                return self.close(state, &victim, false);
            }
            Err(unopened) => {
                let error = unopened.error(name, &busy);
                warn!(target: "models", model = name, message = error.message, "cannot be opened");
                (model.phase, model.wanted, model.closes) = (Phase::Failed(error), false, false);
            }
        }
        self.changed(state);
        self.lock()
    }

    /// Closes a model, after writing its conversations to the cache on disk.
    fn close<'m>(
        &'m self,
        mut state: MutexGuard<'m, State>,
        name: &str,
        sleeps: bool,
    ) -> MutexGuard<'m, State> {
        let opened = state.models.get_mut(name).and_then(|model| {
            model.closes = false;
            if model.is_broken() {
                let message = "its scheduler panicked: a bug, please report it";
                warn!(target: "models", model = name, message, "opens again with the next request");
            }
            model.take()
        });
        let Some(Opened { app, runtime }) = opened else { return state };
        self.changed(state);
        info!(target: "models", model = name, "closing");
        drop(app);
        runtime.stop(None);
        let mut state = self.lock();
        if let Some(model) = state.models.get_mut(name) {
            model.phase = if sleeps { Phase::Sleeping } else { Phase::Unloaded };
            model.keep_alive = self.options.keep_alive;
            if model.waiting > 0 || model.wanted {
                // A request has arrived meanwhile.
                state.enqueue(name);
            }
        }
        self.changed(state);
        self.lock()
    }
}

impl State {
    /// Returns the names of the open models.
    fn busy_names(&self) -> String {
        let open = self.models.iter().filter(|(_, model)| model.opened().is_some());
        open.map(|(name, _)| format!("{name:?}")).collect::<Vec<_>>().join(", ")
    }
}

impl Unopened {
    /// Returns the error for requests that wait. `busy` lists the models that answer.
    fn error(self, name: &str, busy: &str) -> ApiError {
        match self {
            Unopened::Failed(reason) => {
                ApiError::internal(format_args!("the model {name:?} cannot be opened: {reason}"))
            }
            Unopened::TooLarge(reason) if busy.is_empty() => {
                ApiError::unavailable(format_args!("the model {name:?} does not fit: {reason}"))
            }
            Unopened::TooLarge(reason) => ApiError::unavailable(format_args!(
                "the model {name:?} does not fit beside {busy}, in use now: try again later. {reason}"
            )),
        }
    }
}
