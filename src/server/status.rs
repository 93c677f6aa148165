//! The state of the scheduler, as its interfaces show it.

use std::{
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::{Duration, Instant},
};

use rope_cpu::{generate::Timings, kv_cache::Pool};

use super::{
    histogram::{FIRST_TOKEN, Histogram, NEXT_TOKEN},
    slot::Slot,
};

/// The state of the scheduler after its last step.
#[derive(Debug)]
pub struct Status {
    /// The number of requests that were submitted and have no slot yet.
    pub waiting: AtomicUsize,
    /// Whether the scheduler has ended.
    pub ended: AtomicBool,
    /// The time at which the server has to have ended, once that is known: what is written to disk then is
    /// not finished.
    pub end: OnceLock<Instant>,
    state: Mutex<State>,
    first_token: Mutex<Histogram>,
    next_token: Mutex<Histogram>,
}

/// The state of slots, and the sums of finished requests.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The slots.
    pub slots: Vec<SlotState>,
    /// The bytes of keys and values in use.
    pub cache_bytes: usize,
    /// The pages of keys and values in use.
    pub pages: usize,
    /// The most pages that may be in use.
    pub pages_max: usize,
    /// The number of steps.
    pub steps: u64,
    /// The number of slots in use, summed over all steps.
    pub slot_steps: u64,
    /// The number of answers that ended.
    pub answers: u64,
    /// The number of those that did not read their whole prompt.
    pub reusing: u64,
    /// The sums over the answers that ended.
    pub timings: Timings,
    /// The largest number of tokens of a sequence.
    pub tokens_max: usize,
}

/// The state of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotState {
    /// Whether it computes an answer.
    pub busy: bool,
    /// Whether it is reading the prompt.
    pub reading: bool,
    /// The number of tokens of its sequence.
    pub tokens: usize,
    /// The number of tokens of the prompt.
    pub prompt: usize,
    /// The timings of the answer that it computes.
    pub timings: Timings,
}

impl Default for Status {
    fn default() -> Self {
        Status {
            waiting: AtomicUsize::default(),
            ended: AtomicBool::default(),
            end: OnceLock::new(),
            state: Mutex::default(),
            first_token: Mutex::new(Histogram::new(FIRST_TOKEN)),
            next_token: Mutex::new(Histogram::new(NEXT_TOKEN)),
        }
    }
}

impl Status {
    /// Returns the state after the last step.
    pub fn state(&self) -> State {
        self.lock().clone()
    }

    /// Records the state after a step.
    pub fn set(&self, slots: &[Slot], pool: &Pool) {
        let mut state = self.lock();
        state.slots.clear();
        state.slots.extend(slots.iter().map(|slot| SlotState {
            busy: slot.task().is_some(),
            reading: slot.task().is_some() && !slot.generating(),
            tokens: slot.sequence.tokens().len(),
            prompt: slot.prompt().map_or(0, <[_]>::len),
            timings: slot.task().map_or_else(Timings::default, |task| task.timings),
        }));
        let page_bytes = pool.shape().page_bytes();
        state.cache_bytes = pool.used_bytes();
        state.pages = state.cache_bytes / page_bytes;
        state.pages_max = pool.limit_bytes() / page_bytes;
        let longest = state.slots.iter().map(|slot| slot.tokens).max();
        state.tokens_max = state.tokens_max.max(longest.unwrap_or(0));
    }

    /// Counts a step for `slots` slots.
    pub fn count_step(&self, slots: usize) {
        let mut state = self.lock();
        state.steps += 1;
        state.slot_steps += slots as u64;
    }

    /// Counts an answer that ended.
    pub fn count(&self, timings: &Timings) {
        let mut state = self.lock();
        state.answers += 1;
        state.reusing += u64::from(timings.reused > 0);
        state.timings += *timings;
    }

    /// Adds the time from the arrival of a request to the first token of an answer.
    pub fn first_token(&self, time: Duration) {
        lock(&self.first_token).add(time);
    }

    /// Adds the time between two tokens of an answer.
    pub fn next_token(&self, time: Duration) {
        lock(&self.next_token).add(time);
    }

    /// Returns the times until first tokens, and those between tokens.
    pub fn times(&self) -> [Histogram; 2] {
        [&self.first_token, &self.next_token].map(|times| lock(times).clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
