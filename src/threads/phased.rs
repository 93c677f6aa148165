//! The buffers in which workers meet.

#![allow(unsafe_code, reason = "pieces of one buffer are lent to several threads at once")]

use std::{
    cell::UnsafeCell,
    marker::PhantomData,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use bytemuck::Zeroable;

use super::{Memory, Phase, Run, Threads, memory::Cells};

/// A buffer of `rows` x `width` elements, which in each phase of its team's steps is used in one
/// way: read as a whole, written in runs of `unit` elements, or written in columns `unit` wide.
/// Task `i` of the phase owns the `i`-th unit, so that no element has two writers.
///
/// A phase that uses it in two ways panics: that is a mistake in the program, not in its input.
pub struct Phased<T> {
    elements: Cells<T>,
    width: usize,
    team: u64,
    /// How it was last used: phase number, unit and kind.
    used: AtomicU64,
}

// SAFETY: `claim` lets a phase either read elements or hand out disjoint pieces of them, and the
// barrier between phases orders all accesses; elements move between threads, hence `T: Send`.
unsafe impl<T: Send + Sync> Sync for Phased<T> {}

/// Ways to use a buffer.
#[derive(Clone, Copy)]
enum Kind {
    Read = 0,
    Runs = 1,
    Columns = 2,
}

const KIND_BITS: u32 = 2;
const UNIT_BITS: u32 = 24;

impl<T: Zeroable + Copy> Phased<T> {
    /// A buffer of zeros.
    pub fn new(team: &Threads, rows: usize, width: usize) -> Self {
        let mut memory = Memory::for_buffers([rows * width * size_of::<T>()]);
        Phased::within(&mut memory, team, rows, width)
    }

    /// The same, cut from `memory`.
    pub fn within(memory: &mut Memory, team: &Threads, rows: usize, width: usize) -> Self {
        let elements = memory.cut(rows * width);
        Phased { elements, width, team: team.team, used: AtomicU64::new(0) }
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// All elements, outside of any step.
    pub fn all(&mut self) -> &mut [T] {
        let start = UnsafeCell::raw_get(self.elements.as_ptr());
        let len = self.elements.len();
        // SAFETY: the exclusive borrow of `self` is one of all its elements.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    /// All elements, in a phase in which nobody writes them.
    pub fn read<'p>(&'p self, phase: &'p Phase<'_>) -> &'p [T] {
        self.claim(phase, Kind::Read, 0);
        let start = self.elements.as_ptr().cast();
        // SAFETY: `claim` made sure that this phase only reads; the borrow of the phase ends
        // before the barrier that ends it.
        unsafe { std::slice::from_raw_parts(start, self.elements.len()) }
    }

    /// The elements of the run's tasks: task `i` owns `unit * i .. unit * (i + 1)`.
    pub fn write<'p>(&'p self, run: &'p mut Run<'_>, unit: usize) -> &'p mut [T] {
        self.claim(run.phase, Kind::Runs, unit);
        let len = self.elements.len();
        let range = run.tasks.start.saturating_mul(unit).min(len)
            ..run.tasks.end.saturating_mul(unit).min(len);
        let start = UnsafeCell::raw_get(self.elements[range.clone()].as_ptr());
        // SAFETY: no other run of this phase has these tasks, and this run is borrowed for as long
        // as the result lives; `claim` made sure that all runs of the phase use the same unit, and
        // the product saturates, so that different tasks never have the same elements.
        unsafe { std::slice::from_raw_parts_mut(start, range.len()) }
    }

    /// The columns of the run's tasks, in every row: task `i` owns `unit * i .. unit * (i + 1)`.
    pub fn columns<'p>(&'p self, run: &'p mut Run<'_>, unit: usize) -> Columns<'p, T> {
        self.claim(run.phase, Kind::Columns, unit);
        let range = run.tasks.start.saturating_mul(unit).min(self.width)
            ..run.tasks.end.saturating_mul(unit).min(self.width);
        Columns { elements: &self.elements, width: self.width, range, run: PhantomData }
    }

    /// Notes how this phase uses the buffer, or panics if it is used in another way already.
    fn claim(&self, phase: &Phase<'_>, kind: Kind, unit: usize) {
        assert_eq!(phase.team, self.team, "a buffer of another team");
        assert!(unit < 1 << UNIT_BITS, "a unit of {unit} elements");
        let use_of = |word: u64| word >> (KIND_BITS + UNIT_BITS);
        let word =
            phase.number << (KIND_BITS + UNIT_BITS) | (unit as u64) << KIND_BITS | kind as u64;
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
    run: PhantomData<&'p mut T>,
}

impl<T> Columns<'_, T> {
    /// The columns' elements in one row.
    pub fn row(&mut self, row: usize) -> &mut [T] {
        let at = row.saturating_mul(self.width);
        let cells = &self.elements[at..at + self.width][self.range.clone()];
        let start = UnsafeCell::raw_get(cells.as_ptr());
        // SAFETY: these columns belong to the tasks of one run, which is borrowed as long as this
        // lives, and only one row is lent at a time.
        unsafe { std::slice::from_raw_parts_mut(start, cells.len()) }
    }

    /// Which columns they are.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_is_done_once_and_seen_by_all_in_the_next_phase() {
        for count in [1, 2, 5] {
            let team = Threads::new(count).unwrap();
            let (a, mut b) = (Phased::<u32>::new(&team, 3, 70), Phased::<u64>::new(&team, 1, 10));
            for round in 1..200 {
                team.step(|worker| {
                    let phase = worker.phase(7);
                    while let Some(mut run) = phase.take() {
                        let mut columns = a.columns(&mut run, 10);
                        for row in 0..3 {
                            columns.row(row).iter_mut().for_each(|x| *x += 1);
                        }
                    }
                    drop(phase);
                    let phase = worker.phase(10);
                    let sum: u64 = a.read(&phase).iter().map(|&x| u64::from(x)).sum();
                    phase.each(|run| b.write(run, 1)[0] = sum);
                });
                assert_eq!(b.all(), [210 * round; 10]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "two uses of a buffer in one phase")]
    fn reading_what_the_phase_writes_panics() {
        let team = Threads::new(1).unwrap();
        let a = Phased::<u32>::new(&team, 1, 4);
        team.step(|worker| {
            let phase = worker.phase(4);
            phase.each(|run| a.write(run, 1)[0] = 1);
            let _ = a.read(&phase);
        });
    }

    #[test]
    fn a_team_is_of_no_use_after_a_panic() {
        use std::panic::{AssertUnwindSafe, catch_unwind};
        let team = Threads::new(2).unwrap();
        let step = |fail: bool| {
            catch_unwind(AssertUnwindSafe(|| {
                team.step(|worker| {
                    assert!(!fail || worker.index() != 1, "on purpose");
                    drop(worker.phase(1));
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
            drop(worker.phase(1));
        });
    }
}
