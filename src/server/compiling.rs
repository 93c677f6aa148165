//! The queue of grammars to compile.
//!
//! A grammar of 60 KB takes seconds to compile. Only one is compiled at a time, so answers and
//! other requests keep the remaining processors. The shortest goes first, so a small schema does
//! not wait for large ones.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::error::ApiError;

/// Maximum grammars in the queue.
const WAITING_MAX: usize = 16;

/// The queue of grammars to compile.
#[derive(Debug, Default)]
pub struct Compiling {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    is_busy: bool,
    /// The size and the number of each grammar that waits.
    waiting: Vec<(usize, u64)>,
    numbers: u64,
}

/// Ends the turn of a grammar on drop.
struct Turn<'q>(&'q Compiling);

impl Compiling {
    /// Waits for its turn, and calls `compile` for a grammar of `bytes` bytes. Other requests
    /// continue during that time.
    ///
    /// # Errors
    /// 429 if too many grammars wait.
    pub fn run<T>(&self, bytes: usize, compile: impl FnOnce() -> T) -> Result<T, ApiError> {
        let mut queue = self.queue();
        if queue.waiting.len() >= WAITING_MAX {
            return Err(ApiError::busy(format_args!(
                "{WAITING_MAX} grammars wait to be compiled already: try again later"
            )));
        }
        queue.numbers += 1;
        let own = (bytes, queue.numbers);
        queue.waiting.push(own);
        // Moves the other requests of this thread to another thread.
        tokio::task::block_in_place(|| {
            let waits =
                |queue: &mut Queue| queue.is_busy || queue.waiting.iter().min() != Some(&own);
            let queue = self.changed.wait_while(queue, waits);
            let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
            queue.is_busy = true;
            queue.waiting.retain(|other| *other != own);
            drop(queue);
            let _turn = Turn(self);
            Ok(compile())
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.queue().is_busy = false;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, mpsc},
        thread,
    };

    use super::*;

    #[test]
    fn grammars_have_turns_and_the_shortest_is_first() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let compiling = Arc::new(Compiling::default());
        let (release, released) = mpsc::channel::<()>();
        let (report, reported) = mpsc::channel();
        let run = |bytes: usize, released: Option<mpsc::Receiver<()>>| {
            let (compiling, report) = (compiling.clone(), report.clone());
            runtime.spawn(async move {
                let done = compiling.run(bytes, || {
                    report.send(bytes).unwrap();
                    if let Some(released) = released {
                        released.recv().unwrap();
                    }
                });
                done.map_err(|error| error.status)
            })
        };
        let first = run(1000, Some(released));
        assert_eq!(reported.recv().unwrap(), 1000);
        let mut others = Vec::new();
        for waiting in 1..=WAITING_MAX {
            others.push(run(WAITING_MAX - waiting + 1, None));
            while compiling.queue().waiting.len() < waiting {
                thread::yield_now();
            }
        }
        let refused = runtime.block_on(run(1, None)).unwrap();
        assert_eq!(refused.unwrap_err(), 429);
        // One thread handles all tasks.
        assert_eq!(runtime.block_on(runtime.spawn(async { 5 })).unwrap(), 5);
        release.send(()).unwrap();
        for task in others.into_iter().chain([first]) {
            runtime.block_on(task).unwrap().unwrap();
        }
        drop(report);
        assert_eq!(reported.iter().collect::<Vec<_>>(), (1..=WAITING_MAX).collect::<Vec<_>>());
    }
}
