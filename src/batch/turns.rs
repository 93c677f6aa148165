//! Schedulers of one process that share its processors: one computes at a time.
//!
//! The workers of a step wait for each other between phases. Two teams on the same cores would wait
//! for workers that have no core, and both become many times slower. So each scheduler computes a
//! whole step with all its threads, and then it is the next one's turn, in the order in which they
//! asked.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// How long a scheduler counts as computing after its last step.
const RECENT: Duration = Duration::from_secs(1);

/// The turns of several schedulers. Clones share them.
///
/// ```
/// use rope_cpu::batch::{Options, Turns};
///
/// let turns = Turns::default();
/// let chat = Options { turns: Some(turns.clone()), ..Options::new(4) };
/// let embeddings = Options { turns: Some(turns), ..Options::new(1) };
/// ```
#[derive(Clone, Debug, Default)]
pub struct Turns(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    members: AtomicU64,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The number of turns asked for.
    asked: u64,
    /// The number of turns that have ended.
    ended: u64,
    /// The member of the last turn, and the last one before it by another member, each with its
    /// end.
    last: [Option<(u64, Instant)>; 2],
}

/// A scheduler among others.
#[derive(Debug)]
pub(super) struct Member {
    id: u64,
    queue: Arc<Queue>,
}

/// The turn of a scheduler, until this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    id: u64,
    queue: Arc<Queue>,
}

impl Turns {
    /// Returns a new member.
    pub(super) fn join(&self) -> Member {
        Member { id: self.0.members.fetch_add(1, Relaxed), queue: self.0.clone() }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    /// Waits for the turn of this member.
    pub fn take(&self) -> Turn {
        let mut state = self.queue.lock();
        let number = state.asked;
        state.asked += 1;
        while state.ended != number {
            state = self.queue.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Turn { id: self.id, queue: self.queue.clone() }
    }

    /// Returns whether other members compute, so that steps should be short.
    pub fn is_shared(&self) -> bool {
        let state = self.queue.lock();
        let mut others = state.last.iter().flatten().filter(|(id, _)| *id != self.id);
        state.asked > state.ended + 1 || others.any(|(_, end)| end.elapsed() < RECENT)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        let now = Some((self.id, Instant::now()));
        match state.last[0] {
            Some((id, _)) if id != self.id => state.last = [now, state.last[0]],
            _ => state.last[0] = now,
        }
        state.ended += 1;
        drop(state);
        self.queue.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn turns_are_taken_in_the_order_of_asking() {
        let turns = Turns::default();
        let (first, order) = (turns.join(), Arc::new(Mutex::new(Vec::new())));
        let held = first.take();
        let waiting: Vec<_> = (0..4)
            .map(|index| {
                let (member, order) = (turns.join(), order.clone());
                let asked = turns.0.lock().asked;
                let thread = thread::spawn(move || {
                    let _turn = member.take();
                    order.lock().unwrap().push(index);
                });
                while turns.0.lock().asked == asked {
                    thread::yield_now();
                }
                thread
            })
            .collect();
        assert!(first.is_shared());
        drop(held);
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_member_alone_shares_nothing() {
        let turns = Turns::default();
        let (one, other) = (turns.join(), turns.join());
        for _ in 0..3 {
            let _turn = one.take();
            assert!(!one.is_shared());
        }
        drop(other.take());
        let _turn = one.take();
        assert!(one.is_shared() && other.is_shared());
    }
}
