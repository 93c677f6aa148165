//! Worker threads that compute one step together: a single parallel region, in which every worker
//! runs the same code, phase by phase.
//!
//! A [`Phase`] has a number of tasks, which workers take in runs, each task exactly once; a barrier
//! ends it. Workers meet in [`Phased`] buffers: in a phase a buffer is either read by all, or
//! written in the pieces that belong to a worker's tasks. Which tasks a worker gets varies from run
//! to run; what a task computes does not, so results have the same bits on any number of threads.

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

/// What the workers of a step share.
struct Shared {
    barrier: Barrier,
    /// The next task of the phase.
    next: AtomicUsize,
    /// The number of the phase, never used twice by a team.
    phase: AtomicU64,
}

impl Threads {
    /// A team of `count` workers, at least one.
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

    /// How many workers there are.
    pub fn count(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Runs `work` on every worker at once and waits for all. Every worker must go through the
    /// same phases. One step of a team runs at a time.
    ///
    /// # Panics
    /// When a worker panics, the others stop at their next barrier and the panic is passed on. The
    /// team is of no use after that: every further step panics.
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

/// One of the threads of a step.
pub struct Worker<'s> {
    shared: &'s Shared,
    team: u64,
    index: usize,
    count: usize,
}

impl Worker<'_> {
    /// Which of the team's workers this is.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Begins the next phase, of `tasks` tasks. All workers must give the same number.
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

/// A phase in which this worker takes part. When it is dropped, the worker waits for the others.
pub struct Phase<'w> {
    shared: &'w Shared,
    team: u64,
    number: u64,
    tasks: usize,
    workers: usize,
}

impl Phase<'_> {
    /// Takes some of the tasks that nobody has taken, about half of this worker's share of them.
    pub fn take(&self) -> Option<Run<'_>> {
        let size = |left: usize| left.div_ceil(2 * self.workers);
        let start = self
            .shared
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
                (next < self.tasks).then(|| next + size(self.tasks - next))
            })
            .ok()?;
        let tasks = start..start + size(self.tasks - start);
        Some(Run { phase: self, tasks })
    }

    /// Calls `work` for each task that falls to this worker.
    pub fn each(&self, mut work: impl FnMut(&mut Run<'_>)) {
        while let Some(run) = self.take() {
            for task in run.tasks {
                work(&mut Run { phase: self, tasks: task..task + 1 });
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

/// Tasks that one worker has taken, and nobody else has.
pub struct Run<'p> {
    phase: &'p Phase<'p>,
    tasks: Range<usize>,
}

impl Run<'_> {
    /// The tasks.
    pub fn tasks(&self) -> Range<usize> {
        self.tasks.clone()
    }

    /// The first of them, or the only one.
    pub fn task(&self) -> usize {
        self.tasks.start
    }
}
