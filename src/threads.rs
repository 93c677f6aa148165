//! Worker threads that compute one step together. A step is a single parallel region: every worker
//! runs the same code, phase by phase.
//!
//! A `Phase` has a number of tasks. Workers claim consecutive tasks until none is left, so each
//! task runs exactly once. The next phase starts once every worker in the phase has left it. A
//! worker that arrives later skips the phase. So the team never waits for a worker while its core
//! is busy with another program.
//!
//! Workers exchange data through `Phased` buffers. In a phase, a buffer is either read by all
//! workers, or each worker writes only the elements that belong to its tasks. The assignment of
//! tasks to workers varies from run to run. The result of a task does not, so results have the same
//! bits on any number of threads.

mod current;
mod memory;
mod phased;
mod power;

use std::{
    ops::Range,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

pub(crate) use memory::Memory;
pub(crate) use phased::{Columns, Phased};
pub use power::Power;

pub use crate::platform::processors::Workers;

use self::{current::Current, power::Pace};
use crate::platform::prefer_fast_cores;

/// A team of worker threads.
///
/// ```
/// assert_eq!(rope_cpu::threads::Threads::new(2)?.count(), 2);
/// # Ok::<(), rayon::ThreadPoolBuildError>(())
/// ```
pub struct Threads {
    pool: rayon::ThreadPool,
    team: u64,
    step: Mutex<Shared>,
}

/// The state that the workers of a step share.
struct Shared {
    current: Current,
    /// The first unclaimed task, with the number of its phase in the upper half.
    next: AtomicU64,
    /// `None` for a team that never pauses.
    pace: Option<Mutex<Pace>>,
}

impl Shared {
    fn pace(&self) -> Option<MutexGuard<'_, Pace>> {
        Some(self.pace.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Threads {
    /// Starts a team of `count` workers, or of one if `count` is 0.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn new(count: usize) -> Result<Self, rayon::ThreadPoolBuildError> {
        static TEAMS: AtomicU64 = AtomicU64::new(1);
        let count = count.max(1);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(count)
            .thread_name(|i| format!("worker {i}"))
            .start_handler(|_| prefer_fast_cores())
            .build()?;
        let shared = Shared { current: Current::new(), next: AtomicU64::new(0), pace: None };
        let team = TEAMS.fetch_add(1, Ordering::Relaxed);
        Ok(Threads { pool, team, step: Mutex::new(shared) })
    }

    /// Returns the team with a limit on its share of processor time.
    pub fn with_power(self, power: Power) -> Self {
        let shared = self.step.into_inner().unwrap_or_else(PoisonError::into_inner);
        Threads {
            step: Mutex::new(Shared { pace: power.pace().map(Mutex::new), ..shared }),
            ..self
        }
    }

    /// Returns the number of workers.
    pub fn count(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Runs `work` on every worker in parallel and waits for all of them. Every worker must enter
    /// the same phases. A team runs one step at a time.
    ///
    /// # Panics
    /// If a worker panics: the others stop at their next phase and the panic is propagated. The
    /// team cannot be used after that: every further step panics.
    pub(crate) fn step(&self, work: impl Fn(&mut Worker<'_>) + Sync) {
        self.step_of(self.count(), work);
    }

    /// Runs a step like [`Threads::step`], on only some of the `workers`; 0 means one.
    pub(crate) fn step_of(&self, workers: usize, work: impl Fn(&mut Worker<'_>) + Sync) {
        let count = workers.clamp(1, self.count());
        let shared = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        shared.current.refuse_poison();
        let first = shared.current.number();
        if let Some(mut pace) = shared.pace() {
            pace.begin();
        }
        self.pool.broadcast(|context| {
            if context.index() >= count {
                return;
            }
            let poison = shared.current.poison_on_panic();
            let mut worker = Worker {
                shared: &shared,
                team: self.team,
                index: context.index(),
                count,
                next: first,
                since: Instant::now(),
            };
            work(&mut worker);
            drop(poison);
        });
        if let Some(mut pace) = shared.pace() {
            pace.end();
        }
    }
}

/// How long a worker runs before it yields its core, between two phases. Otherwise the system would
/// take the core away some milliseconds later, in the middle of a task, and all other workers would
/// wait. If no other program waits for the core, yielding costs nothing.
const TURN: Duration = Duration::from_millis(1);

/// One of the threads that compute a step.
pub(crate) struct Worker<'s> {
    shared: &'s Shared,
    team: u64,
    index: usize,
    count: usize,
    /// The number of its next phase, never used twice by a team.
    next: u64,
    /// When it last yielded its core.
    since: Instant,
}

impl Worker<'_> {
    /// Returns the index of this worker in its team.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Waits for the previous phase to end, and enters the next one, with `tasks` tasks. Returns
    /// `None` if the others have completed all tasks. All workers must pass the same number.
    pub fn phase(&mut self, tasks: usize) -> Option<Phase<'_>> {
        if self.count > 1 && self.since.elapsed() >= TURN {
            thread::yield_now();
            self.since = Instant::now();
        }
        let number = self.next;
        self.next += 1;
        let (shared, team, workers) = (self.shared, self.team, self.count);
        shared.current.enter(number).then(|| Phase { shared, team, number, tasks, workers })
    }
}

/// A phase, as one worker sees it. Drop it to leave the phase once no task is left.
pub(crate) struct Phase<'w> {
    shared: &'w Shared,
    team: u64,
    number: u64,
    tasks: usize,
    workers: usize,
}

impl Phase<'_> {
    /// Claims about half of this worker's share of the unclaimed tasks. Returns `None` if no task
    /// is left.
    pub fn claim(&self) -> Option<Claim<'_>> {
        let size = |left: usize| left.div_ceil(2 * self.workers);
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
    phase: &'p Phase<'p>,
    tasks: Range<usize>,
}

impl Claim<'_> {
    /// Returns the first claimed task. In [`Phase::for_each`], a claim has only one.
    pub fn task(&self) -> usize {
        self.tasks.start
    }
}
