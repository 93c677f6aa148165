//! The state of the scheduler, as its interfaces show it.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicUsize},
};

use rope_cpu::{generate::Timings, kv_cache::Pool};

use super::slot::Slot;

/// The state of the scheduler after its last step.
#[derive(Debug, Default)]
pub struct Status {
    /// The number of requests that were submitted and have no slot yet.
    pub waiting: AtomicUsize,
    /// Whether the scheduler has ended.
    pub ended: AtomicBool,
    state: Mutex<State>,
}

/// The state of slots, and the sums of finished requests.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The slots.
    pub slots: Vec<SlotState>,
    /// The bytes of keys and values in use.
    pub cache_bytes: usize,
    /// The number of steps.
    pub steps: u64,
    /// The number of slots in use, summed over all steps.
    pub slot_steps: u64,
    /// The number of answers that ended.
    pub answers: u64,
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
        state.cache_bytes = pool.used_bytes();
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
        state.timings += *timings;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
