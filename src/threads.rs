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
mod phase;
mod phased;
mod power;
mod record;

// `current` and `phase` take what they need of the standard library from here. In
// tests/interleavings, it comes from a crate that runs their threads in every order.
use std::{
    sync::{
        self, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

pub(crate) use memory::Memory;
pub(crate) use phase::{Claim, Phase, Worker};
pub(crate) use phased::{Columns, Phased};
pub use power::Power;
pub use record::RecordedPhase;

pub use crate::platform::processors::Workers;

use self::{current::Current, phase::Shared};
use crate::platform::prefer_fast_cores;

/// Iterations of the spin loop before a thread parks: about 20 microseconds. On an idle machine,
/// workers arrive closer together than that. On a busy machine, this wastes little time.
const SPINS: usize = 2_000;

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
        let shared =
            Shared { current: Current::new(), next: AtomicU64::new(0), pace: None, record: None };
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

    /// Records phases from now on, of a team of one worker. Returns those recorded so far.
    pub fn record(&self) -> Vec<RecordedPhase> {
        let mut shared = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        let before = shared.record.replace(Mutex::default());
        before
            .map(|phases| phases.into_inner().unwrap_or_else(PoisonError::into_inner))
            .unwrap_or_default()
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
