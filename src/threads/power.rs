//! A limit on the processors' time: a team rests in proportion to its work.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

/// The share of the processors' time that a team of threads may use. Less of it means less heat and
/// noise, and a slower model.
///
/// ```
/// use rope_cpu::threads::{Power, Threads};
///
/// let quiet = Threads::new(2)?.with_power(Power::percent(50).unwrap());
/// assert!(Power::percent(0).is_none());
/// # Ok::<(), rayon::ThreadPoolBuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Power {
    percent: u8,
}

impl Power {
    /// All of the time.
    pub const FULL: Power = Power { percent: 100 };

    /// Returns the share of `percent` from 1 to 100, or `None` for another number.
    pub fn percent(percent: u8) -> Option<Power> {
        (1..=100).contains(&percent).then_some(Power { percent })
    }

    /// Returns the pace of a team, if it rests.
    pub(super) fn pace(self) -> Option<Pace> {
        (self != Power::FULL).then(|| Pace { power: self, since: Instant::now() })
    }

    /// Returns the rest after `work`.
    fn rest(self, work: Duration) -> Duration {
        work * u32::from(100 - self.percent) / u32::from(self.percent)
    }
}

/// A team's alternation of work and rest. All workers rest together: if each did so by itself, the
/// rest of one would be work of another, which waits for it.
pub(super) struct Pace {
    power: Power,
    /// The beginning of a step, or the end of the last rest in it.
    since: Instant,
}

impl Pace {
    /// The least work before a rest within a step: short rests take longer than asked for.
    const WORK_MIN: Duration = Duration::from_millis(10);

    /// Begins a step.
    pub fn begin(&mut self) {
        self.since = Instant::now();
    }

    /// Rests, if the last rest is long enough ago.
    pub fn rest(&mut self) {
        if self.since.elapsed() >= Self::WORK_MIN {
            self.end();
        }
    }

    /// Rests for the work since the last rest.
    pub fn end(&mut self) {
        sleep(self.power.rest(self.since.elapsed()));
        self.begin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_are_in_proportion_to_work() {
        let rest = |percent| Power::percent(percent).unwrap().rest(Duration::from_millis(10));
        assert_eq!([100, 50, 25, 1].map(rest), [0, 10, 30, 990].map(Duration::from_millis));
    }
}
