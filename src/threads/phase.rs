//! A phase of a step: workers claim its tasks, and the next one starts when all have left it.

use std::{
    ops::Range,
    thread,
    time::{Duration, Instant},
};

use super::{
    current::Current,
    power::Pace,
    record::{RecordedPhase, claim_size},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// The state that the workers of a step share.
pub(super) struct Shared {
    pub current: Current,
    /// The first unclaimed task, with the number of its phase in the upper half.
    pub next: AtomicU64,
    /// `None` for a team that never pauses.
    pub pace: Option<Mutex<Pace>>,
    /// The phases since [`Threads::record`](super::Threads::record), of a team of one worker.
    pub record: Option<Mutex<Vec<RecordedPhase>>>,
}

impl Shared {
    pub fn pace(&self) -> Option<MutexGuard<'_, Pace>> {
        Some(self.pace.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// How long a worker runs before it yields its core, between two phases. Otherwise the system would
/// take the core away some milliseconds later, in the middle of a task, and all other workers would
/// wait. If no other program waits for the core, yielding costs nothing.
const TURN: Duration = Duration::from_millis(1);

/// One of the threads that compute a step.
pub(crate) struct Worker<'s> {
    pub(super) shared: &'s Shared,
    pub(super) team: u64,
    pub(super) index: usize,
    pub(super) count: usize,
    /// The number of its next phase, never used twice by a team.
    pub(super) next: u64,
    /// When it last yielded its core.
    pub(super) since: Instant,
}

impl Worker<'_> {
    /// Returns the index of this worker in its team.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Waits for the previous phase to end, and enters the next one, with `tasks` tasks. Returns
    /// `None` if the others have completed all tasks. All workers must pass the same number.
    ///
    /// # Panics
    /// If the tasks do not fit in 32 bits: their number shares a word with the number of the phase.
    pub fn phase(&mut self, tasks: usize) -> Option<Phase<'_>> {
        assert!(u32::try_from(tasks).is_ok(), "a phase of {tasks} tasks");
        if self.count > 1 && self.since.elapsed() >= TURN {
            thread::yield_now();
            self.since = Instant::now();
        }
        let number = self.next;
        self.next += 1;
        let (shared, team, workers) = (self.shared, self.team, self.count);
        let began = shared.record.is_some().then(Instant::now);
        shared.current.enter(number).then(|| Phase { shared, team, number, tasks, workers, began })
    }
}

/// A phase, as one worker sees it. Drop it to leave the phase once no task is left.
pub(crate) struct Phase<'w> {
    shared: &'w Shared,
    pub(super) team: u64,
    pub(super) number: u64,
    tasks: usize,
    workers: usize,
    began: Option<Instant>,
}

impl Phase<'_> {
    /// Claims about half of this worker's share of the unclaimed tasks. Returns `None` if no task
    /// is left.
    pub fn claim(&self) -> Option<Claim<'_>> {
        let size = |left: usize| claim_size(left, self.workers);
        let claim = |word| {
            let next = self.next(word);
            (next < self.tasks).then(|| self.number << 32 | (next + size(self.tasks - next)) as u64)
        };
        let word =
            self.shared.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim).ok()?;
        let start = self.next(word);
        Some(Claim { phase: self, tasks: start..start + size(self.tasks - start) })
    }

    /// Returns the first unclaimed task. If `word` is of an earlier phase, no task of this phase is
    /// claimed yet.
    fn next(&self, word: u64) -> usize {
        if word >> 32 == self.number & u64::from(u32::MAX) { word as u32 as usize } else { 0 }
    }

    /// Claims tasks until none is left, and calls `work` for each of them.
    pub fn for_each(&self, mut work: impl FnMut(&mut Claim<'_>)) {
        while let Some(claim) = self.claim() {
            for task in claim.tasks {
                work(&mut Claim { phase: self, tasks: task..task + 1 });
            }
        }
    }
}

impl Drop for Phase<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        assert!(self.claim().is_none(), "a worker left tasks undone");
        if let (Some(record), Some(began), 1) = (&self.shared.record, self.began, self.workers) {
            let phase = RecordedPhase { tasks: self.tasks, time: began.elapsed() };
            record.lock().unwrap_or_else(PoisonError::into_inner).push(phase);
        }
        if self.shared.current.has_one()
            && let Some(mut pace) = self.shared.pace()
        {
            // Rest now, while the others wait for the next phase anyway.
            pace.rest();
        }
        self.shared.current.leave();
    }
}

/// Consecutive tasks of a phase, claimed by one worker.
pub(crate) struct Claim<'p> {
    pub(super) phase: &'p Phase<'p>,
    pub(super) tasks: Range<usize>,
}

impl Claim<'_> {
    /// Returns the first claimed task. In [`Phase::for_each`], a claim has only one.
    pub fn task(&self) -> usize {
        self.tasks.start
    }
}
