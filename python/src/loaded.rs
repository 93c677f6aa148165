//! A model in memory, with its settings and the one session of its calls.

use std::{
    mem,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread,
};

use pyo3::PyResult;
use rope_cpu::{
    constraint::{self, Vocabulary},
    model::{Engine, Model, Session},
    runtime::{Plan, Settings},
    tokenizer::Tokenizer,
};

use crate::{
    errors::{failed, of_model},
    process::Process,
};

/// A model and what its calls share.
pub struct Loaded {
    /// The model.
    pub model: Model,
    /// The plan of its sessions and engines.
    pub plan: Plan,
    /// The settings that led to the plan.
    pub settings: Settings,
    vocabulary: OnceLock<Vocabulary>,
    session: Mutex<Slot>,
}

/// The session of a model, which one call at a time uses, with the process of its threads.
enum Slot {
    New,
    Idle(Box<Session>, Process),
    InUse(Process),
}

/// The session while a call uses it.
pub struct Borrowed {
    loaded: Arc<Loaded>,
    session: Option<Box<Session>>,
    process: Process,
}

impl Loaded {
    /// Returns a model without a session yet.
    pub fn new(model: Model, plan: Plan, settings: Settings) -> Self {
        let (vocabulary, session) = (OnceLock::new(), Mutex::new(Slot::New));
        Loaded { model, plan, settings, vocabulary, session }
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

    /// Creates an engine with an empty cache.
    pub fn engine(&self) -> PyResult<Engine> {
        self.plan.engine(&self.model).map_err(of_model)
    }

    /// Borrows the session, until the result is dropped.
    pub fn borrow(self: &Arc<Self>) -> PyResult<Borrowed> {
        let mut slot = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Slot::Idle(_, process) | Slot::InUse(process) = &*slot {
            process.check()?;
        }
        let process = Process::current();
        let session = match mem::replace(&mut *slot, Slot::InUse(process)) {
            Slot::Idle(session, _) => Ok(session),
            Slot::New => {
                let session = self.plan.session(&self.model);
                session.map(Box::new).map_err(|error| {
                    *slot = Slot::New;
                    of_model(error)
                })
            }
            Slot::InUse(_) => Err(failed(
                "the model is in use by a stream: read the stream to its end, close it, or open the \
                 model twice",
            )),
        };
        Ok(Borrowed { loaded: self.clone(), session: Some(session?), process })
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
        let mut slot = self.loaded.session.lock().unwrap_or_else(PoisonError::into_inner);
        // After a panic the session may be in any state.
        let session = self.session.take().filter(|_| !thread::panicking());
        *slot = session.map_or(Slot::New, |session| Slot::Idle(session, self.process));
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let slot = self.session.get_mut().unwrap_or_else(PoisonError::into_inner);
        // A session waits for its threads, which a forked process does not have.
        if let Slot::Idle(session, process) = mem::replace(slot, Slot::New)
            && !process.is_current()
        {
            mem::forget(session);
        }
    }
}
