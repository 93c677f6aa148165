//! Runs the phases of `src/threads` with [loom](https://docs.rs/loom), which tries every order of the
//! threads' steps that the memory model permits.
//!
//! Relaxed atomics stand for the elements of a `Phased` buffer: a thread may then read an old value
//! unless the phases order the accesses. Each task adds to its element, so one that runs twice shows.
#![cfg(test)]
#![allow(dead_code, reason = "the files have more than is tested here")]

/// What the included files take from the standard library.
mod sync {
    pub use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub use std::sync::PoisonError;
}

/// Workers look once before they park: more iterations add only more of the same steps. Without any, all
/// would lock, and no wake could be lost.
const SPINS: usize = 1;

#[path = "../../../src/threads/current.rs"]
mod current;
#[path = "../../../src/threads/phase.rs"]
mod phase;
#[path = "../../../src/threads/power.rs"]
mod power;
#[path = "../../../src/threads/record.rs"]
mod record;

use std::time::Instant;

use loom::{model::Builder, sync::Arc, thread};

use self::{
    current::Current,
    phase::{Shared, Worker},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

/// Calls `work` on every worker of a team, in every order with at most `preemptions` switches that
/// the threads do not ask for. Checks what the elements are then.
fn in_every_order(
    workers: usize,
    preemptions: usize,
    expected: [usize; 4],
    work: impl Fn(&mut Worker<'_>, &[AtomicUsize]) + Copy + Send + Sync + 'static,
) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let shared = Shared { current: Current::new(), next: AtomicU64::new(0), pace: None, record: None };
        let elements: Vec<_> = (0..4).map(|_| AtomicUsize::new(0)).collect();
        let team = Arc::new((shared, elements));
        let run = move |team: &(Shared, Vec<AtomicUsize>), index| {
            let (shared, elements) = team;
            let since = Instant::now();
            // One worker in the eyes of `Worker::phase`, which otherwise yields by the clock.
            let mut worker = Worker { shared, team: 1, index, count: 1, next: 1, since };
            work(&mut worker, elements);
        };
        let others: Vec<_> = (1..workers)
            .map(|index| {
                let team = team.clone();
                thread::spawn(move || run(&team, index))
            })
            .collect();
        run(&team, 0);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!([0, 1, 2, 3].map(|element: usize| team.1[element].load(Relaxed)), expected);
    });
}

/// Adds to elements in each of three phases, from what all have written in the one before.
fn exchange(worker: &mut Worker<'_>, elements: &[AtomicUsize]) {
    let read = |element: usize| elements[element].load(Relaxed);
    let add = |element: usize, value| _ = elements[element].fetch_add(value, Relaxed);
    if let Some(phase) = worker.phase(2) {
        phase.for_each(|claim| add(claim.task(), 1 + claim.task()));
    }
    if let Some(phase) = worker.phase(2) {
        let sum = read(0) + read(1);
        phase.for_each(|claim| add(2 + claim.task(), sum));
    }
    if let Some(phase) = worker.phase(1) {
        phase.for_each(|_| {
            let all = [0, 1, 2, 3].map(read);
            assert_eq!(all, [1, 2, 3, 3]);
            add(0, all.iter().sum());
        });
    }
}

#[test]
fn two_workers_see_what_was_written_in_the_phase_before() {
    in_every_order(2, 2, [10, 2, 3, 3], exchange);
}

#[test]
fn three_workers_see_what_was_written_in_the_phase_before() {
    in_every_order(3, 1, [1, 2, 3, 0], |worker, elements| {
        let element = |index: usize| &elements[index];
        if let Some(phase) = worker.phase(2) {
            phase.for_each(|claim| {
                element(claim.task()).fetch_add(1 + claim.task(), Relaxed);
            });
        }
        if let Some(phase) = worker.phase(1) {
            let sum = element(0).load(Relaxed) + element(1).load(Relaxed);
            phase.for_each(|_| _ = element(2).fetch_add(sum, Relaxed));
        }
    });
}

/// A worker that parks is woken by the last one to leave the phase. Otherwise the order has a
/// deadlock, which loom reports.
#[test]
fn no_worker_sleeps_forever() {
    in_every_order(2, 2, [2, 0, 0, 0], |worker, elements| {
        for _ in 0..2 {
            if let Some(phase) = worker.phase(1) {
                phase.for_each(|_| _ = elements[0].fetch_add(1, Relaxed));
            }
        }
    });
}
