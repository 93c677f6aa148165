//! A barrier whose threads spin for a moment and then park.

use std::sync::{
    Condvar, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// The iterations of the spin loop before a thread parks: some 20 microseconds. On an idle machine
/// the workers' phases differ by less than that, and on a busy one little time is wasted.
const SPINS: usize = 2_000;

/// A reusable barrier for a fixed number of threads.
pub(super) struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
    /// The number of times that the barrier has opened.
    generation: AtomicUsize,
    poisoned: AtomicBool,
    parked: Mutex<()>,
    opened: Condvar,
}

impl Barrier {
    pub(super) fn new(threads: usize) -> Self {
        Barrier {
            threads,
            arrived: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
            poisoned: AtomicBool::new(false),
            parked: Mutex::new(()),
            opened: Condvar::new(),
        }
    }

    /// Waits until all threads have called this function. The last one runs `last` before any
    /// returns. What a thread wrote before the call is visible to all threads after it.
    pub(super) fn wait(&self, last: impl FnOnce()) {
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.refuse_poison();
            self.arrived.store(0, Ordering::Relaxed);
            last();
            self.open();
            return;
        }
        // A poisoned barrier opens too. The flag is set before the generation changes, so a thread
        // that finds the barrier open also finds the flag.
        let closed = || {
            let closed = self.generation.load(Ordering::Acquire) == generation;
            self.refuse_poison();
            closed
        };
        for _ in 0..SPINS {
            if !closed() {
                return;
            }
            std::hint::spin_loop();
        }
        let mut guard = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        while closed() {
            guard = self.opened.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Panics if a thread has panicked: the count of arrivals is then no longer valid.
    pub(super) fn refuse_poison(&self) {
        assert!(!self.poisoned.load(Ordering::Relaxed), "another worker panicked");
    }

    fn open(&self) {
        self.generation.fetch_add(1, Ordering::Release);
        // A thread that decided to park before the line above holds the lock until it waits, so
        // taking the lock once makes sure that it is notified.
        drop(self.parked.lock().unwrap_or_else(PoisonError::into_inner));
        self.opened.notify_all();
    }

    /// Returns a guard: as long as it lives, a panic of this thread makes the other threads panic
    /// instead of waiting.
    pub(super) fn poison_on_panic(&self) -> impl Drop {
        struct Poison<'b>(&'b Barrier);
        impl Drop for Poison<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.poisoned.store(true, Ordering::Relaxed);
                    self.0.open();
                }
            }
        }
        Poison(self)
    }
}
