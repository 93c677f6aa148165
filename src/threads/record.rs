//! How long the phases of one worker would take on a larger team.

use std::time::Duration;

/// A phase that one worker computed alone.
///
/// ```
/// use std::time::Duration;
/// use rope_cpu::threads::RecordedPhase;
///
/// let phase = RecordedPhase { tasks: 6, time: Duration::from_millis(6) };
/// // Four workers claim one task each. Two are left.
/// assert_eq!(phase.time_on(&[1.0; 4]), Duration::from_millis(2));
/// assert_eq!(phase.time_on(&[1.0; 8]), Duration::from_millis(1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedPhase {
    /// The number of tasks.
    pub tasks: usize,
    /// The time for all of them.
    pub time: Duration,
}

impl RecordedPhase {
    /// Returns the time that a team would take if all tasks take equally long and memory is no limit.
    /// `speeds` has the speed of each of its workers, relative to the one that was recorded.
    pub fn time_on(&self, speeds: &[f64]) -> Duration {
        let task = self.time.as_secs_f64() / self.tasks.max(1) as f64;
        let mut free = vec![0.0; speeds.len()];
        let mut left = self.tasks;
        while left > 0 {
            // The worker that is free first claims the next tasks.
            let Some(next) = (0..free.len()).min_by(|&a, &b| f64::total_cmp(&free[a], &free[b]))
            else {
                break;
            };
            let claimed = claim_size(left, speeds.len());
            free[next] += claimed as f64 * task / speeds[next];
            left -= claimed;
        }
        Duration::from_secs_f64(free.into_iter().fold(0.0, f64::max))
    }
}

/// Returns how many of the unclaimed tasks a worker claims: about half of its share.
pub(super) fn claim_size(left: usize, workers: usize) -> usize {
    left.div_ceil(2 * workers)
}

#[cfg(test)]
mod tests {
    use super::super::Threads;

    #[test]
    fn phases_of_one_worker_are_recorded_once_asked_for() {
        for (workers, expected) in [(1, &[3, 5][..]), (2, &[])] {
            let team = Threads::new(workers).unwrap();
            let step = || {
                team.step(|worker| {
                    for tasks in [3, 5] {
                        if let Some(phase) = worker.phase(tasks) {
                            phase.for_each(|_| {});
                        }
                    }
                });
            };
            step();
            assert_eq!(team.record(), []);
            step();
            let tasks: Vec<_> = team.record().iter().map(|phase| phase.tasks).collect();
            assert_eq!(tasks, expected);
            assert_eq!(team.record(), []);
        }
    }
}
