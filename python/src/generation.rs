//! One answer, which the thread of a runtime computes, so that Python can stop waiting at any time.

use std::{
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};

use pyo3::{prelude::*, sync::MutexExt};
use rope_cpu::{
    Token,
    batch::{self, Answered, Collected, Update, Updates},
    generate::End,
    runtime::Runtime,
};

use crate::{
    errors::{failed, of_batch},
    process::Process,
};

/// How often a waiting call looks for Ctrl-C.
pub const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// An iterator over the pieces of an answer.
#[pyclass(frozen, module = "rope_cpu._native")]
pub struct Stream {
    state: Mutex<State>,
    process: Process,
}

struct State {
    /// The updates, and the runtime that computes them; `None` once the answer has ended.
    answer: Option<(Updates, Arc<Runtime>)>,
    collected: Collected,
    outcome: Option<Outcome>,
}

/// How an answer ended, with its counts and times.
#[pyclass(frozen, get_all, from_py_object, module = "rope_cpu._native")]
#[derive(Clone)]
pub struct Outcome {
    /// The text.
    pub text: String,
    /// The generated tokens.
    pub tokens: Vec<Token>,
    /// Why it ended: `model`, `stop`, `complete`, `max_tokens`, `context` or `closed`.
    pub end: &'static str,
    /// The stop string that ended it.
    pub stop: Option<String>,
    /// The seed of its random numbers.
    pub seed: u32,
    /// Prompt tokens found in the cache.
    pub reused: usize,
    /// Prompt tokens processed.
    pub read: usize,
    /// Generated tokens.
    pub generated: usize,
    /// Seconds of prompt processing.
    pub prompt_seconds: f64,
    /// Seconds of generation.
    pub seconds: f64,
}

impl From<Answered> for Outcome {
    fn from(answered: Answered) -> Self {
        let Answered { text, tokens, seed, outcome: batch::Outcome { end, timings, .. } } =
            answered;
        let (end, stop) = match end {
            End::Model => ("model", None),
            End::Stop(text) => ("stop", Some(text)),
            End::Complete => ("complete", None),
            End::TokensMax => ("max_tokens", None),
            End::ContextFull => ("context", None),
            End::Caller => ("closed", None),
        };
        Outcome {
            text,
            tokens,
            end,
            stop,
            seed,
            reused: timings.reused,
            read: timings.read,
            generated: timings.generated,
            prompt_seconds: timings.reading.as_secs_f64(),
            seconds: timings.generating.as_secs_f64(),
        }
    }
}

impl State {
    /// Adds an update. Returns its text, if it has any.
    fn add(&mut self, update: Update) -> PyResult<Option<String>> {
        let text = match &update {
            Update::Generated(piece) => Some(piece.text.clone()).filter(|text| !text.is_empty()),
            _ => None,
        };
        let answered = self.collected.add(update);
        if !matches!(answered, Ok(None)) {
            self.answer = None;
        }
        if let Some(answered) = answered.map_err(of_batch)? {
            self.outcome = Some(answered.into());
        }
        Ok(text)
    }

    /// Ends the answer, and waits until it has ended.
    fn finish(&mut self) -> PyResult<()> {
        while let Some((updates, _)) = &self.answer {
            updates.close();
            match updates.next() {
                Some(update) => drop(self.add(update)?),
                None => self.answer = None,
            }
        }
        Ok(())
    }
}

impl Stream {
    /// Starts an answer.
    pub fn start(runtime: Arc<Runtime>, request: batch::Request) -> PyResult<Self> {
        let updates = runtime.ask(request).map_err(of_batch)?;
        let (answer, collected) = (Some((updates, runtime)), Collected::default());
        let state = State { answer, collected, outcome: None };
        Ok(Stream { state: Mutex::new(state), process: Process::current() })
    }
}

#[pymethods]
impl Stream {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// Waits for the next piece. Ctrl-C closes the stream.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.process.check()?;
        let state = &mut *self.state.lock_py_attached(py).map_err(failed)?;
        loop {
            let Some((updates, _)) = &mut state.answer else { return Ok(None) };
            let update = py.detach(move || updates.next_within(SIGNALS_EVERY));
            if let Err(interrupt) = py.check_signals() {
                py.detach(|| state.finish())?;
                return Err(interrupt);
            }
            if let Some(update) = update.map_err(of_batch)?
                && let Some(text) = state.add(update)?
            {
                return Ok(Some(text));
            }
        }
    }

    /// Stops the answer, unless it has ended.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.process.check()?;
        let state = &mut *self.state.lock_py_attached(py).map_err(failed)?;
        py.detach(|| state.finish())
    }

    /// How the answer ended; `None` before that.
    #[getter]
    fn outcome(&self, py: Python<'_>) -> PyResult<Option<Outcome>> {
        Ok(self.state.lock_py_attached(py).map_err(failed)?.outcome.clone())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Ok(state) = self.state.get_mut() else { return };
        if !self.process.is_current() {
            // The thread that computes it is in another process.
            mem::forget(state.answer.take());
            return;
        }
        // Waits for the end, so that the next call finds a free slot.
        let mut finish = || drop(state.finish());
        // Other threads of Python run meanwhile. There are none once the interpreter ends.
        if Python::try_attach(|py| py.detach(&mut finish)).is_none() {
            finish();
        }
    }
}
