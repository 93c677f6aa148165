//! The current phase of a team: which workers may enter it, and when the next one starts.

use super::{
    SPINS,
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// The number of bits that count the workers in a phase. rayon starts at most 2^16 - 1.
const PRESENT_BITS: u32 = 16;
const PRESENT: u64 = (1 << PRESENT_BITS) - 1;

/// The current phase. It ends when all workers that entered it have left. So the team does not wait
/// for a worker that the system suspended before it entered.
pub(super) struct Current {
    /// The number of the phase, and in the lowest bits the number of workers in it.
    word: AtomicU64,
    poisoned: AtomicBool,
    parked: Mutex<()>,
    begun: Condvar,
}

impl Current {
    /// Starts with phase number 1.
    pub fn new() -> Self {
        Current {
            word: AtomicU64::new(1 << PRESENT_BITS),
            poisoned: AtomicBool::new(false),
            parked: Mutex::new(()),
            begun: Condvar::new(),
        }
    }

    /// Returns the number of the current phase.
    pub fn number(&self) -> u64 {
        self.word.load(Ordering::Acquire) >> PRESENT_BITS
    }

    /// Waits until a phase has started, and enters it. Returns `false` if the phase is over. A
    /// worker that has entered sees everything that workers wrote in earlier phases.
    pub fn enter(&self, number: u64) -> bool {
        self.wait_for(number);
        let enter = |word| (word >> PRESENT_BITS == number).then_some(word + 1);
        self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter).is_ok()
    }

    /// Returns whether only one worker is in the phase.
    pub fn has_one(&self) -> bool {
        self.word.load(Ordering::Relaxed) & PRESENT == 1
    }

    /// Leaves the phase. The last worker to leave starts the next one.
    pub fn leave(&self) {
        let next = |word: u64| ((word >> PRESENT_BITS) + 1) << PRESENT_BITS;
        let left = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
            Some(if word & PRESENT == 1 { next(word) } else { word - 1 })
        });
        if left.is_ok_and(|word| word & PRESENT == 1) {
            self.wake();
        }
    }

    fn wait_for(&self, number: u64) {
        let waits = || {
            self.refuse_poison();
            self.number() < number
        };
        for _ in 0..SPINS {
            if !waits() {
                return;
            }
            std::hint::spin_loop();
        }
        let mut guard = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        while waits() {
            guard = self.begun.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Panics if a worker has panicked, since its phase never ends.
    pub fn refuse_poison(&self) {
        assert!(!self.poisoned.load(Ordering::Relaxed), "another worker panicked");
    }

    fn wake(&self) {
        // A thread that decided to park before the change holds the lock until it waits. Locking
        // once guarantees that it is notified.
        drop(self.parked.lock().unwrap_or_else(PoisonError::into_inner));
        self.begun.notify_all();
    }

    /// Returns a guard. If this thread panics while the guard lives, the other threads panic
    /// instead of waiting.
    pub fn poison_on_panic(&self) -> impl Drop {
        struct Poison<'c>(&'c Current);
        impl Drop for Poison<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.poisoned.store(true, Ordering::Relaxed);
                    self.0.wake();
                }
            }
        }
        Poison(self)
    }
}
