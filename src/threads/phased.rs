//! Buffers through which workers exchange data.

#![allow(unsafe_code, reason = "disjoint parts of one buffer are lent to several threads at once")]

use std::{
    cell::UnsafeCell,
    marker::PhantomData,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use bytemuck::Zeroable;

use super::{Claim, Memory, Phase, Threads, memory::Cells};
use crate::platform::memory::Refused;

/// A buffer of `rows` x `width` elements. Each phase uses it in one way: all workers read it, or
/// workers write runs of `unit` elements, or they write columns that are `unit` wide. Task `i` of
/// the phase owns the `i`-th unit, so no element has two writers.
///
/// A phase that uses a buffer in two ways panics. This is a bug in the program, whatever its input.
pub struct Phased<T> {
    elements: Cells<T>,
    width: usize,
    team: u64,
    /// The last use of the buffer: phase number, unit and access, packed into one word.
    used: AtomicU64,
}

// SAFETY: `register_use` allows a phase either to read elements or to lend out disjoint parts of
// them. A worker enters a phase after all have left the one before, and sees what they wrote
// (`Current`). Threads that write elements take turns (`T: Send`), and several read them at once
// (`T: Sync`).
unsafe impl<T: Send + Sync> Sync for Phased<T> {}

/// The ways to use a buffer in a phase.
#[derive(Clone, Copy)]
enum Access {
    Read = 0,
    WriteRuns = 1,
    WriteColumns = 2,
}

const ACCESS_BITS: u32 = 2;
/// A task may write 2^31 elements. The number of the phase keeps 31 bits, and so comes round after
/// hours. If a buffer was last used exactly that long ago, in another way, the phase panics. Two
/// uses in one phase are never permitted.
const UNIT_BITS: u32 = 31;

impl<T: Zeroable + Copy> Phased<T> {
    /// Allocates a buffer of zeros.
    ///
    /// # Errors
    /// If the system has no memory left.
    pub fn new(team: &Threads, rows: usize, width: usize) -> Result<Self, Refused> {
        let bytes = rows.saturating_mul(width).saturating_mul(size_of::<T>());
        let mut memory = Memory::for_buffers([bytes])?;
        Ok(Phased::within(&mut memory, team, rows, width))
    }

    /// Returns a buffer without elements.
    pub fn empty() -> Self {
        Phased { elements: Cells::empty(), width: 0, team: 0, used: AtomicU64::new(0) }
    }

    /// Cuts a buffer of zeros from `memory`.
    pub fn within(memory: &mut Memory, team: &Threads, rows: usize, width: usize) -> Self {
        let elements = memory.cut(rows.saturating_mul(width));
        Phased { elements, width, team: team.team, used: AtomicU64::new(0) }
    }

    /// Returns the number of elements of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns all elements, between steps.
    pub fn all(&mut self) -> &mut [T] {
        let start = UnsafeCell::raw_get(self.elements.as_ptr());
        let len = self.elements.len();
        // SAFETY: `&mut self` guarantees that no other reference to an element exists.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    /// Returns all elements, in a phase in which no worker writes them.
    pub fn read<'p>(&'p self, phase: &'p Phase<'_>) -> &'p [T] {
        self.register_use(phase, Access::Read, 0);
        let start = self.elements.as_ptr().cast();
        // SAFETY: `register_use` ensures that this phase only reads. The result borrows `phase`,
        // so this worker is in the phase as long as it lives, and no later phase starts.
        unsafe { std::slice::from_raw_parts(start, self.elements.len()) }
    }

    /// Returns the elements of the claimed tasks: task `i` owns `unit * i .. unit * (i + 1)`.
    pub fn write<'p>(&'p self, claim: &'p mut Claim<'_>, unit: usize) -> &'p mut [T] {
        self.register_use(claim.phase, Access::WriteRuns, unit);
        let len = self.elements.len();
        let range = claim.tasks.start.saturating_mul(unit).min(len)
            ..claim.tasks.end.saturating_mul(unit).min(len);
        let start = UnsafeCell::raw_get(self.elements[range.clone()].as_ptr());
        // SAFETY: no other claim of this phase has these tasks, and the result borrows this claim,
        // which borrows the phase. `register_use` ensures that all claims of the phase use the same
        // unit. The products saturate, so different tasks never have the same elements.
        unsafe { std::slice::from_raw_parts_mut(start, range.len()) }
    }

    /// Returns the columns of the claimed tasks, in every row: task `i` owns
    /// `unit * i .. unit * (i + 1)`.
    pub fn columns<'p>(&'p self, claim: &'p mut Claim<'_>, unit: usize) -> Columns<'p, T> {
        self.register_use(claim.phase, Access::WriteColumns, unit);
        let range = claim.tasks.start.saturating_mul(unit).min(self.width)
            ..claim.tasks.end.saturating_mul(unit).min(self.width);
        Columns { elements: &self.elements, width: self.width, range, claim: PhantomData }
    }

    /// Records how this phase uses the buffer. Panics if the phase already uses it in another way.
    fn register_use(&self, phase: &Phase<'_>, access: Access, unit: usize) {
        assert_eq!(phase.team, self.team, "a buffer of another team");
        assert!(unit < 1 << UNIT_BITS, "a unit of {unit} elements");
        let use_of = |word: u64| word >> (ACCESS_BITS + UNIT_BITS);
        let word = phase.number << (ACCESS_BITS + UNIT_BITS)
            | (unit as u64) << ACCESS_BITS
            | access as u64;
        let mut seen = self.used.load(Ordering::Relaxed);
        while seen != word {
            assert_ne!(use_of(seen), use_of(word), "two uses of a buffer in one phase");
            match self.used.compare_exchange(seen, word, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}

/// Some columns of a buffer, in every row, lent to one worker.
pub struct Columns<'p, T> {
    elements: &'p [UnsafeCell<T>],
    width: usize,
    range: Range<usize>,
    claim: PhantomData<&'p mut T>,
}

impl<T> Columns<'_, T> {
    /// Returns the columns' elements in one row.
    pub fn row(&mut self, row: usize) -> &mut [T] {
        let at = row.saturating_mul(self.width);
        let cells = &self.elements[at..at + self.width][self.range.clone()];
        let start = UnsafeCell::raw_get(cells.as_ptr());
        // SAFETY: these columns belong to the tasks of one claim, which is borrowed as long as
        // `self` lives. `columns` limits them to the width, so they are within `row`, and columns
        // of other claims are apart in every row. The result borrows `self`: one row at a time.
        unsafe { std::slice::from_raw_parts_mut(start, cells.len()) }
    }

    /// Returns the range of column indices.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Worker, *};

    /// Runs a phase of one task.
    fn pass(worker: &mut Worker<'_>) {
        if let Some(phase) = worker.phase(1) {
            phase.for_each(|_| {});
        }
    }

    #[test]
    fn every_task_is_done_once_and_seen_by_all_in_the_next_phase() {
        for count in [1, 2, 5] {
            let team = Threads::new(count).unwrap();
            let a = Phased::<u32>::new(&team, 3, 70).unwrap();
            let mut b = Phased::<u64>::new(&team, 1, 10).unwrap();
            for round in 1..200 {
                team.step(|worker| {
                    if let Some(phase) = worker.phase(7) {
                        while let Some(mut claim) = phase.claim() {
                            let mut columns = a.columns(&mut claim, 10);
                            for row in 0..3 {
                                columns.row(row).iter_mut().for_each(|x| *x += 1);
                            }
                        }
                    }
                    let Some(phase) = worker.phase(10) else { return };
                    let sum: u64 = a.read(&phase).iter().map(|&x| u64::from(x)).sum();
                    phase.for_each(|claim| b.write(claim, 1)[0] = sum);
                });
                assert_eq!(b.all(), [210 * round; 10]);
            }
        }
    }

    #[test]
    fn a_worker_that_comes_late_is_not_waited_for() {
        let team = Threads::new(2).unwrap();
        let (passed, joined) = (AtomicU64::new(0), AtomicU64::new(0));
        let wait_for = |count: &AtomicU64, number| {
            while count.load(Ordering::Relaxed) < number {
                std::thread::yield_now();
            }
        };
        team.step(|worker| {
            let late = worker.index() == 1;
            if late {
                wait_for(&passed, 5);
            }
            for _ in 0..5 {
                let phase = worker.phase(3);
                assert_eq!(phase.is_none(), late);
                if let Some(phase) = phase {
                    phase.for_each(|_| {});
                    drop(phase);
                    passed.fetch_add(1, Ordering::Relaxed);
                }
            }
            // Each worker has one of two tasks, and the phase ends when both are done.
            let Some(phase) = worker.phase(2) else { return };
            phase.for_each(|_| {
                joined.fetch_add(1, Ordering::Relaxed);
                wait_for(&joined, 2);
            });
        });
        assert_eq!(joined.load(Ordering::Relaxed), 2);
    }

    #[test]
    #[should_panic(expected = "a worker left tasks undone")]
    fn leaving_tasks_undone_panics() {
        Threads::new(1).unwrap().step(|worker| drop(worker.phase(2)));
    }

    #[test]
    #[should_panic(expected = "two uses of a buffer in one phase")]
    fn reading_what_the_phase_writes_panics() {
        let team = Threads::new(1).unwrap();
        let a = Phased::<u32>::new(&team, 1, 4).unwrap();
        team.step(|worker| {
            let phase = worker.phase(4).unwrap();
            phase.for_each(|claim| a.write(claim, 1)[0] = 1);
            let _ = a.read(&phase);
        });
    }

    #[test]
    fn a_task_may_own_a_large_buffer() {
        const LEN: usize = 1 << 26;
        let team = Threads::new(1).unwrap();
        let a = Phased::<u8>::new(&team, 1, LEN).unwrap();
        team.step(|worker| {
            let phase = worker.phase(1).unwrap();
            phase.for_each(|claim| assert_eq!(a.write(claim, LEN).len(), LEN));
        });
    }

    #[test]
    #[should_panic(expected = "a phase of 4294967296 tasks")]
    fn more_tasks_than_are_counted_panic() {
        // A task's number would carry into the phase's, and other workers claim the tasks again.
        Threads::new(1).unwrap().step(|worker| drop(worker.phase(1 << 32)));
    }

    #[test]
    fn a_team_cannot_be_used_after_a_panic() {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        let team = Threads::new(2).unwrap();
        let step = |fail: bool| {
            catch_unwind(AssertUnwindSafe(|| {
                team.step(|worker| {
                    assert!(!fail || worker.index() != 1, "on purpose");
                    pass(worker);
                });
            }))
        };
        assert!(step(false).is_ok());
        assert!(step(true).is_err());
        assert!(step(false).is_err());
    }

    #[test]
    #[should_panic]
    fn a_panic_of_one_worker_does_not_hang_the_others() {
        let team = Threads::new(3).unwrap();
        team.step(|worker| {
            assert!(worker.index() != 1, "on purpose");
            pass(worker);
        });
    }
}
