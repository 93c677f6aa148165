//! A limit on processor time: a team rests in proportion to its work.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

/// The share of processor time that a team of threads may use. A smaller share means less heat and
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

    /// Returns a share of 1 to 100 percent; `None` for any other number.
    pub fn percent(percent: u8) -> Option<Power> {
        (1..=100).contains(&percent).then_some(Power { percent })
    }

    /// Returns how a team alternates work and rest; `None` if it never rests.
    pub(super) fn pace(self) -> Option<Pace> {
        (self != Power::FULL).then(|| Pace { power: self, since: Instant::now() })
    }

    /// Returns the rest after `work`.
    fn rest(self, work: Duration) -> Duration {
        work * u32::from(100 - self.percent) / u32::from(self.percent)
    }
}

/// How a team alternates work and rest. All workers rest together. If each rested by itself,
/// workers would wait for resting ones.
pub(super) struct Pace {
    power: Power,
    /// When the step started, or the last rest in it ended.
    since: Instant,
}

impl Pace {
    /// The minimum work before a rest within a step. Short rests take longer than requested.
    const WORK_MIN: Duration = Duration::from_millis(10);

    /// Starts a step.
    pub fn begin(&mut self) {
        self.since = Instant::now();
    }

    /// Rests, if the last rest was long enough ago.
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
