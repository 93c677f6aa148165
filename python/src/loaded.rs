//! A model in memory, with its settings and what runs it.

use std::{
    mem,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread,
};

use pyo3::PyResult;
use rope_cpu::{
    constraint::{self, Vocabulary},
    model::{Engine, Model, Session},
    platform::processors::plural,
    runtime::{Plan, Reserved, Runtime, Scheduling, Settings},
    tokenizer::Tokenizer,
};

use crate::{
    errors::{failed, of_model, of_plan},
    process::Process,
};

const MEASURED: &str =
    "the model is in use by another call: wait for its end, or open the model twice";

/// A model and what its calls share.
pub struct Loaded {
    /// The model.
    pub model: Model,
    /// The plan of its sessions and engines.
    pub plan: Plan,
    /// The settings that led to the plan.
    pub settings: Settings,
    scheduling: Scheduling,
    reserved: Reserved,
    vocabulary: OnceLock<Vocabulary>,
    state: Mutex<State>,
}

/// The user of the context's memory, with the process of its threads.
enum State {
    /// Nothing yet.
    New,
    /// Answers.
    Answering(Arc<Runtime>, Process),
    /// Measurements, one at a time.
    Measuring(Box<Session>, Process),
    /// A measurement that uses it now.
    InUse(Process),
}

impl State {
    fn process(&self) -> Option<Process> {
        match self {
            State::New => None,
            State::Answering(_, process) | State::Measuring(_, process) | State::InUse(process) => {
                Some(*process)
            }
        }
    }
}

/// The session while a measurement uses it.
pub struct Borrowed {
    loaded: Arc<Loaded>,
    session: Option<Box<Session>>,
    process: Process,
}

impl Loaded {
    /// Reserves the memory of a planned model. Its threads start with the first call.
    pub fn new(model: Model, plan: Plan, settings: Settings, scheduling: Scheduling) -> Self {
        let reserved = plan.reserve(&model);
        let (vocabulary, state) = (OnceLock::new(), Mutex::new(State::New));
        Loaded { model, plan, settings, scheduling, reserved, vocabulary, state }
    }

    /// Returns the tokenizer.
    pub fn tokenizer(&self) -> PyResult<&Tokenizer<'_>> {
        self.model.tokenizer().map_err(of_model)
    }

    /// Returns the tokens for grammars. The first call prepares them.
    pub fn vocabulary(&self) -> PyResult<&Vocabulary> {
        if let Some(vocabulary) = self.vocabulary.get() {
            return Ok(vocabulary);
        }
        let vocabulary = constraint::vocabulary(self.tokenizer()?).map_err(failed)?;
        Ok(self.vocabulary.get_or_init(|| vocabulary))
    }

    /// Returns how answers are scheduled.
    pub fn scheduling(&self) -> &Scheduling {
        &self.scheduling
    }

    /// Creates an engine with an empty cache.
    pub fn engine(&self) -> PyResult<Engine> {
        self.plan.engine(&self.model).map_err(of_model)
    }

    /// Returns the runtime, for one more stream.
    pub fn runtime(&self) -> PyResult<Arc<Runtime>> {
        let mut state = self.state()?;
        match &*state {
            State::Answering(runtime, _) => self.check_slots(runtime)?,
            State::InUse(_) => return Err(failed(MEASURED)),
            State::New | State::Measuring(..) => {
                *state = State::New;
                let Loaded { model, plan, scheduling, reserved, .. } = self;
                let runtime = Runtime::start(
                    model.clone(),
                    plan.clone(),
                    scheduling.clone(),
                    reserved.clone(),
                );
                let runtime = Arc::new(runtime.map_err(of_plan)?);
                *state = State::Answering(runtime, Process::current());
            }
        }
        match &*state {
            State::Answering(runtime, _) => Ok(runtime.clone()),
            _ => Err(failed(MEASURED)),
        }
    }

    /// Checks that a slot is free: a stream that waits for one would wait for its own reader.
    fn check_slots(&self, runtime: &Arc<Runtime>) -> PyResult<()> {
        let (streams, slots) = (Arc::strong_count(runtime) - 1, self.scheduling.slots);
        match streams < slots {
            true => Ok(()),
            false => Err(failed(format_args!(
                "the model is in use by {}: read it to its end, close it, or open the model with \
                 parallel={}",
                if slots == 1 { "a stream".into() } else { plural(slots, "stream") },
                slots + 1
            ))),
        }
    }

    /// Borrows the session, until the result is dropped.
    pub fn borrow(self: &Arc<Self>) -> PyResult<Borrowed> {
        let mut state = self.state()?;
        if let State::Answering(runtime, _) = &*state
            && Arc::strong_count(runtime) > 1
        {
            return Err(failed(
                "the model is in use by a stream: read the stream to its end, close it, or open the \
                 model twice",
            ));
        }
        let process = Process::current();
        let session = match mem::replace(&mut *state, State::New) {
            State::Measuring(session, _) => session,
            State::New | State::Answering(..) => {
                Box::new(self.plan.session(&self.model).map_err(of_model)?)
            }
            in_use @ State::InUse(_) => {
                *state = in_use;
                return Err(failed(MEASURED));
            }
        };
        *state = State::InUse(process);
        Ok(Borrowed { loaded: self.clone(), session: Some(session), process })
    }

    /// Returns the state, if the current process has its threads.
    fn state(&self) -> PyResult<MutexGuard<'_, State>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.process().map_or(Ok(()), Process::check)?;
        Ok(state)
    }
}

impl Deref for Borrowed {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session.as_ref().expect("only drop takes it")
    }
}

impl DerefMut for Borrowed {
    fn deref_mut(&mut self) -> &mut Session {
        self.session.as_mut().expect("only drop takes it")
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let mut state = self.loaded.state.lock().unwrap_or_else(PoisonError::into_inner);
        // After a panic the session may be in any state.
        let session = self.session.take().filter(|_| !thread::panicking());
        *state = session.map_or(State::New, |session| State::Measuring(session, self.process));
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        // It waits for its threads when it is dropped, and a forked process does not have them.
        if state.process().is_some_and(|process| !process.is_current()) {
            mem::forget(mem::replace(state, State::New));
        }
    }
}
