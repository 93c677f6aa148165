//! A model with a thread that answers requests.

use std::{
    ops::ControlFlow,
    path::PathBuf,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{Error, Plan, Settings, memory::Reserved};
use crate::{
    batch::{self, Answered, Disk, Handle, Heard, Request, Scheduler, Turns, Update, Updates},
    model::{Engine, Model},
    rope::Rope,
    tokenizer::Tokenizer,
};

/// How a [`Runtime`] computes requests.
#[derive(Clone, Debug)]
pub struct Scheduling {
    /// The number of answers that are computed at a time.
    pub slots: usize,
    /// Maximum time of a step while answers are generated.
    pub step_max: Duration,
    /// Maximum bytes of keys and values of earlier sequences, beyond a context for each slot.
    pub cache_bytes: usize,
    /// The folder of the cache on disk, and the maximum bytes of its conversations.
    pub disk: Option<(PathBuf, u64)>,
    /// See [`batch::Options::moved_min`].
    pub moved_min: Option<usize>,
    /// See [`batch::Options::prefill_later`].
    pub prefill_later: bool,
    /// Whether the log may quote prompts.
    pub quotes: bool,
    /// See [`batch::Options::turns`].
    pub turns: Option<Turns>,
}

impl Default for Scheduling {
    /// Returns one slot, steps of at most 200 ms, and no cache beyond its context.
    fn default() -> Self {
        let batch::Options { step_max, moved_min, prefill_later, quotes, turns, .. } =
            batch::Options::new(1);
        let (slots, cache_bytes, disk) = (1, 0, None);
        Scheduling { slots, step_max, cache_bytes, disk, moved_min, prefill_later, quotes, turns }
    }
}

impl Plan {
    /// Creates a scheduler of the planned model, which you drive by [`Scheduler::step`] or
    /// [`Scheduler::answer`].
    ///
    /// # Errors
    /// If the system has no memory left, a thread cannot be started, parts of prompts cannot move or
    /// be left out with these settings, the draft model does not suit the model, or the folder of the cache on
    /// disk cannot be opened.
    ///
    /// ```no_run
    /// use std::ops::ControlFlow::Continue;
    ///
    /// use rope_cpu::{batch::Request, model::Model, runtime::{Plan, Scheduling, Settings}};
    ///
    /// let model = Model::open("model.gguf")?;
    /// let (plan, tokenizer) = (Plan::new(&model, &Settings::default())?, model.tokenizer()?);
    /// let mut scheduler = plan.scheduler(&model, tokenizer, Scheduling::default())?;
    /// let request = Request::new(tokenizer.encode_chat("The sky is"));
    /// println!("{}", scheduler.answer(request, &mut |_| Continue(()))?.text);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scheduler<'t>(
        &self,
        model: &Model,
        tokenizer: &'t Tokenizer<'t>,
        scheduling: Scheduling,
    ) -> Result<Scheduler<'t>, Error> {
        let (engine, options) = self.parts(model, scheduling)?;
        Ok(Scheduler::new(engine, tokenizer, options, Arc::default()))
    }

    /// Creates the engine and the options of a scheduler.
    fn parts(
        &self,
        model: &Model,
        scheduling: Scheduling,
    ) -> Result<(Engine, batch::Options), Error> {
        let Scheduling { slots, step_max, cache_bytes, disk, moved_min, .. } = scheduling;
        let Scheduling { prefill_later, quotes, turns, .. } = scheduling;
        let speculations = self.speculations(model, slots)?;
        let rope = Rope::new(self.rope.clone());
        let engine = Engine::new(model, rope, self.shared_options(cache_bytes))?;
        if moved_min.is_some() {
            engine.check_place().map_err(Error::Moves)?;
        }
        let prefill = self.drafts.prefill;
        if prefill.is_some() {
            engine.check_omit().map_err(Error::Prefill)?;
        }
        let open = |(folder, limit): (PathBuf, u64)| {
            let disk = Disk::open(folder.clone(), limit, engine.archive(model.fingerprint()));
            disk.map_err(|error| Error::Disk { folder, error })
        };
        let disk = disk.map(open).transpose()?;
        let options = batch::Options {
            speculations,
            step_max,
            disk,
            moved_min,
            prefill,
            prefill_later,
            quotes,
            turns,
        };
        Ok((engine, options))
    }
}

/// An open model with a thread that answers requests. When you drop it, answers in progress fail,
/// and it waits until their sequences are on disk, if it has a cache there.
///
/// ```no_run
/// use std::ops::ControlFlow::Continue;
///
/// use rope_cpu::{batch::{Request, Update}, model::Model, runtime::{Runtime, Settings}};
///
/// let runtime = Runtime::new(Model::open("model.gguf")?, &Settings::default())?;
/// let prompt = runtime.model().tokenizer()?.encode_chat("The sky is");
/// let answered = runtime.answer(Request::new(prompt), &mut |update| {
///     if let Update::Generated(piece) = update {
///         print!("{}", piece.text);
///     }
///     Continue(())
/// })?;
/// println!("\n{} tokens", answered.tokens.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Runtime {
    model: Model,
    plan: Plan,
    handle: Handle,
    thread: Option<JoinHandle<()>>,
    capacity: usize,
    unused_files: Option<String>,
    _reserved: Reserved,
}

impl Runtime {
    /// Plans a run, checks that it fits in memory, and starts it with one slot.
    ///
    /// # Errors
    /// As for [`Plan::new`], [`Plan::check`] and [`Plan::scheduler`], and if the model has no
    /// tokenizer.
    pub fn new(model: Model, settings: &Settings) -> Result<Self, Error> {
        let plan = Plan::new(&model, settings)?;
        plan.check()?;
        let reserved = plan.reserve(&model);
        Self::start(model, plan, Scheduling::default(), reserved)
    }

    /// Starts a planned run in the memory that is reserved for it.
    ///
    /// # Errors
    /// As for [`Plan::scheduler`], and if the model has no tokenizer.
    pub fn start(
        model: Model,
        plan: Plan,
        scheduling: Scheduling,
        reserved: Reserved,
    ) -> Result<Self, Error> {
        model.tokenizer()?;
        let (engine, options) = plan.parts(&model, scheduling)?;
        let (capacity, status) = (engine.capacity(), reserved.status().clone());
        let unused_files = options.disk.as_ref().and_then(Disk::mismatch);
        let (commands, received) = mpsc::channel();
        let handle = Handle::new(commands, status.clone());
        let of_thread = model.clone();
        let thread = thread::Builder::new().name("scheduler".into()).spawn(move || {
            // It was checked above.
            if let Ok(tokenizer) = of_thread.tokenizer() {
                Scheduler::new(engine, tokenizer, options, status).run(&received);
            }
        });
        let thread = Some(thread.map_err(Error::Thread)?);
        Ok(Runtime { model, plan, handle, thread, capacity, unused_files, _reserved: reserved })
    }

    /// Returns the model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns the plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the handle to the scheduler.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns the maximum tokens of a sequence: the context, or `usize::MAX` if it rolls.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns why files of the cache on disk are not used, if there are any.
    pub fn unused_files(&self) -> Option<&str> {
        self.unused_files.as_deref()
    }

    /// Submits a request, and returns its updates.
    ///
    /// # Errors
    /// [`batch::Error::Stopped`] if the scheduler has stopped.
    pub fn ask(&self, request: Request) -> Result<Updates, batch::Error> {
        let (reply, updates) = Updates::channel();
        self.handle.submit(vec![(request, Box::new(reply))], usize::MAX)?;
        Ok(updates)
    }

    /// Waits for the answer to a request. `on_update` receives its updates, and can end it.
    ///
    /// # Errors
    /// As for [`Scheduler::answer`], and if the scheduler has stopped.
    pub fn answer(
        &self,
        request: Request,
        on_update: &mut dyn FnMut(&Update) -> ControlFlow<()>,
    ) -> Result<Answered, batch::Error> {
        let updates = self.ask(request)?;
        let mut heard = Heard::new(on_update);
        loop {
            let update = updates.next().ok_or(batch::Error::Stopped)?;
            if let Some(answered) = heard.add(update, &updates)? {
                return Ok(answered);
            }
        }
    }

    /// Stops the scheduler, and waits for its thread. Answers in progress fail. Sequences that are
    /// not on disk by `saved_by` are lost; `None` waits for all.
    pub fn stop(mut self, saved_by: Option<Instant>) {
        self.stop_by(saved_by);
    }

    fn stop_by(&mut self, saved_by: Option<Instant>) {
        self.handle.stop(saved_by);
        if let Some(thread) = self.thread.take() {
            // The thread has reported its own panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop_by(None);
    }
}
