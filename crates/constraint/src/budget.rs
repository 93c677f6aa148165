//! The time that all constraints share in one step of a batch.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// The time that constraints may take in one step of a batch. Clones share it.
///
/// Each constraint limits its time, but the times of many sequences in a step would add up. So a
/// constraint [waits](super::Constraint::must_wait) for the next step if little time is left.
///
/// ```
/// use std::time::Duration;
/// use rope_cpu_constraint::{Constraint, Grammar, StepBudget, Vocabulary, Word};
///
/// let vocabulary = Vocabulary::new([Word::Text(b"yes".into()), Word::Control("<end>")], &[1])?;
/// let budget = StepBudget::new(Duration::from_millis(200));
/// let constraint = Constraint::new(&vocabulary, &Grammar::Regex("yes".into()))?;
/// let constraint = constraint.with_budget(budget.clone());
/// budget.begin_step();
/// assert!(!constraint.must_wait());
/// # Ok::<(), rope_cpu_constraint::Error>(())
/// ```
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

    /// Starts a step with the full time.
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

    /// Subtracts time that a constraint took in this step.
    pub(super) fn spend(&self, time: Duration) {
        let left = nanoseconds(self.left().saturating_sub(time));
        self.0.left.store(left, Relaxed);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
