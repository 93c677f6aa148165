//! One answer. A thread computes it, so that Python can stop waiting at any time.

use std::{
    mem,
    ops::ControlFlow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use pyo3::{prelude::*, sync::MutexExt};
use rope_cpu::{
    Token,
    generate::{self, End, Event, Generated, Limits, Timings, generate},
    sample::Sampler,
};

use crate::{
    errors::{failed, of_generation},
    loaded::Borrowed,
    process::Process,
};

/// How often a waiting call looks for Ctrl-C.
pub const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// The pieces of an answer that may run ahead of their reader.
const PIECES_AHEAD: usize = 4;

/// An iterator over the pieces of an answer.
#[pyclass(frozen, module = "rope_cpu._native")]
pub struct Stream {
    closed: Arc<AtomicBool>,
    state: Mutex<State>,
    process: Process,
}

struct State {
    pieces: Option<Receiver<String>>,
    worker: Option<JoinHandle<Result<Generated, generate::Error>>>,
    outcome: Option<Outcome>,
    seed: u32,
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
    pub seed: Option<u32>,
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

impl Outcome {
    /// Returns the outcome of an answer.
    pub fn new(
        text: String,
        tokens: Vec<Token>,
        end: &End,
        timings: &Timings,
        seed: Option<u32>,
    ) -> Self {
        let (end, stop) = match end {
            End::Model => ("model", None),
            End::Stop(text) => ("stop", Some(text.clone())),
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

impl Stream {
    /// Starts an answer.
    pub fn start(
        mut session: Borrowed,
        mut sampler: Sampler,
        prompt: Vec<Token>,
        limits: Limits,
    ) -> PyResult<Self> {
        let (sender, pieces) = sync_channel(PIECES_AHEAD);
        let closed = Arc::new(AtomicBool::new(false));
        let (seed, is_closed) = (sampler.seed(), closed.clone());
        let worker = thread::Builder::new().name("rope-cpu answer".into()).spawn(move || {
            generate(&mut session, &mut sampler, &prompt, &limits, &mut |event| {
                let sent = match event {
                    Event::Text(text) if !text.is_empty() => sender.send(text.into()).is_ok(),
                    _ => true,
                };
                match sent && !is_closed.load(Ordering::Relaxed) {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            })
        });
        let worker = Some(worker.map_err(failed)?);
        let state = Mutex::new(State { pieces: Some(pieces), worker, outcome: None, seed });
        Ok(Stream { closed, state, process: Process::current() })
    }

    /// Waits for the thread, which returns the session.
    fn finish(&self, state: &mut State) -> PyResult<()> {
        self.closed.store(true, Ordering::Relaxed);
        // A thread that is sending a piece gives up.
        state.pieces = None;
        let Some(worker) = state.worker.take() else { return Ok(()) };
        let panicked = "this is a bug, please report it with the message on standard error";
        let generated = worker.join().map_err(|_| failed(panicked))?.map_err(of_generation)?;
        let Generated { text, tokens, end, timings } = generated;
        state.outcome = Some(Outcome::new(text, tokens, &end, &timings, Some(state.seed)));
        Ok(())
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
            let Some(pieces) = &mut state.pieces else { return Ok(None) };
            let pieces = &mut *pieces;
            let piece = py.detach(move || pieces.recv_timeout(SIGNALS_EVERY));
            if let Err(interrupt) = py.check_signals() {
                py.detach(|| self.finish(state))?;
                return Err(interrupt);
            }
            match piece {
                Ok(piece) => return Ok(Some(piece)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    py.detach(|| self.finish(state))?;
                }
            }
        }
    }

    /// Stops the answer, unless it has ended.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.process.check()?;
        self.closed.store(true, Ordering::Relaxed);
        let state = &mut *self.state.lock_py_attached(py).map_err(failed)?;
        py.detach(|| self.finish(state))
    }

    /// How the answer ended; `None` before that.
    #[getter]
    fn outcome(&self, py: Python<'_>) -> PyResult<Option<Outcome>> {
        Ok(self.state.lock_py_attached(py).map_err(failed)?.outcome.clone())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        if let Ok(state) = self.state.get_mut() {
            if !self.process.is_current() {
                // Their thread is in another process, and may hold their locks.
                mem::forget((state.pieces.take(), state.worker.take()));
                return;
            }
            state.pieces = None;
            // Waits for the thread, so that the next call finds the session.
            let mut join = || {
                if let Some(worker) = state.worker.take() {
                    let _ = worker.join();
                }
            };
            // Other threads of Python run meanwhile. There are none once the interpreter ends.
            if Python::try_attach(|py| py.detach(&mut join)).is_none() {
                join();
            }
        }
    }
}
