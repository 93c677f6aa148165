//! A barrier that spins for a moment and then parks.

use std::sync::{
    Condvar, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// Turns of the spin loop before a thread parks: some 20 microseconds, more than phases differ by
/// when nothing else runs, and little to lose when something does.
const SPINS: usize = 2_000;

pub(super) struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
    /// How often the barrier has opened.
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

    /// Waits until all threads are here. The last one runs `last` before any goes on; what each
    /// thread wrote before is seen by all after.
    pub(super) fn wait(&self, last: impl FnOnce()) {
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.refuse_poison();
            self.arrived.store(0, Ordering::Relaxed);
            last();
            self.open();
            return;
        }
        // A poisoned barrier opens too: whoever sees that it did also sees why.
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

    /// Panics if a thread has panicked: its count of arrivals is no longer to be trusted.
    pub(super) fn refuse_poison(&self) {
        assert!(!self.poisoned.load(Ordering::Relaxed), "another worker panicked");
    }

    fn open(&self) {
        self.generation.fetch_add(1, Ordering::Release);
        // Whoever decided to park before the line above holds the lock until it waits.
        drop(self.parked.lock().unwrap_or_else(PoisonError::into_inner));
        self.opened.notify_all();
    }

    /// While the result lives, a panic of this thread makes the others panic instead of waiting.
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
