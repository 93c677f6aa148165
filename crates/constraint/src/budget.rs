//! The time that all constraints share in one step of a batch.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// The time for constraints in one step of a batch. Clones share it.
///
/// Each constraint limits its own time, but many sequences would add up within a step. A constraint
/// [waits](super::Constraint::must_wait) for the next step if little of the time is left.
#[derive(Clone, Debug)]
pub struct StepBudget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    max: Duration,
    /// In nanoseconds.
    left: AtomicU64,
}

impl StepBudget {
    /// Creates a budget of `max` for each step.
    pub fn new(max: Duration) -> Self {
        let budget = StepBudget(Arc::new(Shared { max, left: AtomicU64::new(0) }));
        budget.begin_step();
        budget
    }

    /// Starts a step with the whole time.
    pub fn begin_step(&self) {
        self.0.left.store(nanoseconds(self.0.max), Relaxed);
    }

    /// Returns the time for each step.
    pub(super) fn max(&self) -> Duration {
        self.0.max
    }

    /// Returns the remaining time of this step.
    pub(super) fn left(&self) -> Duration {
        Duration::from_nanos(self.0.left.load(Relaxed))
    }

    /// Takes time from this step.
    pub(super) fn spend(&self, time: Duration) {
        let left = nanoseconds(self.left().saturating_sub(time));
        self.0.left.store(left, Relaxed);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
