//! Worker threads that compute one step together: a single parallel region, in which every worker
//! runs the same code, phase by phase.
//!
//! A [`Phase`] has a number of tasks. Workers claim consecutive tasks until none is left, so that
//! each task is done exactly once; a barrier ends the phase. Workers exchange data through
//! [`Phased`] buffers: in a phase a buffer is either read by all workers, or each worker writes the
//! elements that belong to its tasks. Which worker gets which task varies from run to run, but what
//! a task computes does not, so results have the same bits on any number of threads.

mod barrier;
mod memory;
mod phased;

use std::{
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

pub use memory::Memory;
pub use phased::{Columns, Phased};

use self::barrier::Barrier;

/// A team of worker threads.
pub struct Threads {
    pool: rayon::ThreadPool,
    team: u64,
    step: Mutex<Shared>,
}

/// The state that the workers of a step share.
struct Shared {
    barrier: Barrier,
    /// The first task of the phase that is not claimed yet.
    next: AtomicUsize,
    /// The number of the current phase, never used twice by a team.
    phase: AtomicU64,
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
            .build()?;
        let shared = Shared {
            barrier: Barrier::new(pool.current_num_threads()),
            next: AtomicUsize::new(0),
            phase: AtomicU64::new(1),
        };
        let team = TEAMS.fetch_add(1, Ordering::Relaxed);
        Ok(Threads { pool, team, step: Mutex::new(shared) })
    }

    /// Returns the number of workers.
    pub fn count(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Runs `work` on every worker in parallel and waits for all of them. Every worker must go
    /// through the same phases. A team runs one step at a time.
    ///
    /// # Panics
    /// If a worker panics: the others stop at their next barrier and the panic is propagated. The
    /// team cannot be used after that: every further step panics.
    pub fn step(&self, work: impl Fn(&mut Worker<'_>) + Sync) {
        let shared = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        shared.barrier.refuse_poison();
        self.pool.broadcast(|context| {
            let poison = shared.barrier.poison_on_panic();
            let mut worker = Worker {
                shared: &shared,
                team: self.team,
                index: context.index(),
                count: context.num_threads(),
            };
            work(&mut worker);
            drop(poison);
        });
    }
}

/// One of the threads that compute a step.
pub struct Worker<'s> {
    shared: &'s Shared,
    team: u64,
    index: usize,
    count: usize,
}

impl Worker<'_> {
    /// Returns the index of this worker in its team.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Begins the next phase, of `tasks` tasks. All workers must pass the same number.
    pub fn phase(&mut self, tasks: usize) -> Phase<'_> {
        Phase {
            shared: self.shared,
            team: self.team,
            number: self.shared.phase.load(Ordering::Acquire),
            tasks,
            workers: self.count,
        }
    }
}

/// A phase, as one worker holds it. Dropping it waits for the other workers.
pub struct Phase<'w> {
    shared: &'w Shared,
    team: u64,
    number: u64,
    tasks: usize,
    workers: usize,
}

impl Phase<'_> {
    /// Claims some of the tasks that no worker has claimed, about half of this worker's share of
    /// them. Returns `None` if no task is left.
    pub fn claim(&self) -> Option<Claim<'_>> {
        let size = |left: usize| left.div_ceil(2 * self.workers);
        let start = self
            .shared
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
                (next < self.tasks).then(|| next + size(self.tasks - next))
            })
            .ok()?;
        let tasks = start..start + size(self.tasks - start);
        Some(Claim { phase: self, tasks })
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
        if std::thread::panicking() {
            return;
        }
        self.shared.barrier.wait(|| {
            self.shared.next.store(0, Ordering::Relaxed);
            self.shared.phase.fetch_add(1, Ordering::Release);
        });
    }
}

/// Consecutive tasks of a phase that one worker has claimed, and no other worker can claim.
pub struct Claim<'p> {
    phase: &'p Phase<'p>,
    tasks: Range<usize>,
}

impl Claim<'_> {
    /// Returns the claimed tasks.
    pub fn tasks(&self) -> Range<usize> {
        self.tasks.clone()
    }

    /// Returns the first claimed task. In [`Phase::for_each`] it is the only one.
    pub fn task(&self) -> usize {
        self.tasks.start
    }
}
