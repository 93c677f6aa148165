//! The state of the scheduler, for other threads.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use crate::{generate::Timings, kv_cache::Pool};

/// The state of a scheduler, which other threads may read at any time. It is updated before the
/// first token of an answer and after each step.
///
/// [`Handle::status`](super::Handle::status) returns it.
#[derive(Debug, Default)]
pub struct Status {
    /// The number of submitted requests without a slot. Requests that were submitted together count
    /// as one until all have slots.
    pub waiting: AtomicUsize,
    /// Whether the scheduler has stopped.
    pub ended: AtomicBool,
    state: Mutex<State>,
    /// The number of requests so far.
    requests: AtomicU64,
}

/// The state of the slots, and the sums over finished requests.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The slots.
    pub slots: Vec<SlotState>,
    /// The bytes of keys and values in use.
    pub cache_bytes: usize,
    /// The pages of keys and values in use. Pages differ in size between layers; this counts pages
    /// of the average size.
    pub pages: usize,
    /// Maximum pages.
    pub pages_max: usize,
    /// The number of steps.
    pub steps: u64,
    /// The number of slots in use, summed over all steps.
    pub slot_steps: u64,
    /// The number of completed answers.
    pub answers: u64,
    /// The number of completed answers that reused cached tokens.
    pub reusing: u64,
    /// The sums over the completed answers.
    pub timings: Timings,
    /// The number of tokens of the longest sequence so far.
    pub tokens_max: usize,
}

/// The state of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotState {
    /// The owner of its tokens.
    pub owner: u64,
    /// Whether the slot computes an answer.
    pub busy: bool,
    /// Whether the slot processes a prompt.
    pub reading: bool,
    /// The number of tokens of its sequence.
    pub tokens: usize,
    /// The number of tokens of the prompt.
    pub prompt: usize,
    /// The timings of its answer.
    pub timings: Timings,
}

/// A place among the waiting requests. It counts until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    status: Arc<Status>,
    id: u64,
}

impl Place {
    /// Takes a place. Returns the number of places before it.
    pub fn take(status: &Arc<Status>) -> (Arc<Self>, usize) {
        let before = status.waiting.fetch_add(1, Relaxed);
        let id = status.requests.fetch_add(1, Relaxed);
        (Arc::new(Place { status: status.clone(), id }), before)
    }

    /// Returns the number of the request.
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.status.waiting.fetch_sub(1, Relaxed);
    }
}

impl Status {
    /// Returns the state.
    pub fn state(&self) -> State {
        self.lock().clone()
    }

    /// Returns whether a request waits or a slot computes an answer.
    pub fn busy(&self) -> bool {
        self.waiting.load(Relaxed) > 0 || self.state().slots.iter().any(|slot| slot.busy)
    }

    /// Records the state.
    pub(super) fn set(&self, slots: impl Iterator<Item = SlotState>, pool: &Pool) {
        let mut state = self.lock();
        state.slots.clear();
        state.slots.extend(slots);
        let page_bytes = pool.page_bytes().max(1);
        state.cache_bytes = pool.used_bytes();
        state.pages = state.cache_bytes / page_bytes;
        state.pages_max = pool.limit_bytes() / page_bytes;
        let longest = state.slots.iter().map(|slot| slot.tokens).max();
        state.tokens_max = state.tokens_max.max(longest.unwrap_or(0));
    }

    /// Counts a step for `slots` slots.
    pub(super) fn count_step(&self, slots: usize) {
        let mut state = self.lock();
        state.steps += 1;
        state.slot_steps += slots as u64;
    }

    /// Counts a completed answer.
    pub(super) fn count(&self, timings: &Timings) {
        let mut state = self.lock();
        state.answers += 1;
        state.reusing += u64::from(timings.reused > 0);
        state.timings += *timings;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
