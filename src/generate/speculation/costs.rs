//! The measured time of a pass by its number of rows.

use std::time::Duration;

/// The assumed cost of each row after the first, in passes of one row.
const ROW: f64 = 0.35;
/// The weight of a new measurement.
const NEW: f64 = 1.0 / 8.0;
/// Maximum ratio of a measurement to the estimate. It bounds the effect of passes during which the
/// processor was busy with other work.
const OUTLIER: f64 = 2.0;
/// The number of passes after which a measurement is forgotten. Then slow row counts are tried
/// again, and estimates adapt to the length of the context.
const MEMORY: usize = 256;

/// The time of a pass by its number of rows, counted over all sequences.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    /// The estimates by rows.
    estimates: Vec<Option<Estimate>>,
    passes: usize,
}

#[derive(Clone, Copy, Debug)]
struct Estimate {
    seconds: f64,
    /// The number of passes at the last measurement.
    measured: usize,
}

impl Costs {
    /// Records the time of a pass. Returns its seconds, limited for an outlier.
    pub fn record(&mut self, rows: usize, time: Duration) -> f64 {
        self.passes += 1;
        self.estimates.resize(self.estimates.len().max(rows + 1), None);
        let (mut time, mut seconds) = (time.as_secs_f64(), time.as_secs_f64());
        if let Some(known) = self.known(rows) {
            time = time.clamp(known / OUTLIER, known * OUTLIER);
            seconds = known + (time - known) * NEW;
        }
        self.estimates[rows] = Some(Estimate { seconds, measured: self.passes });
        time
    }

    /// Returns whether no pass was measured yet.
    pub fn is_empty(&self) -> bool {
        self.passes == 0
    }

    /// Returns the time of a pass in seconds. Before the first measurement, the unit is a pass of
    /// one row.
    pub fn seconds(&self, rows: usize) -> f64 {
        let known = |rows| Some((rows, self.known(rows)?));
        let below = (1..=rows).rev().find_map(known);
        let above = (rows + 1..self.estimates.len()).find_map(known);
        match (below, above) {
            (Some(below), Some(above)) => at(rows, below, above),
            (Some(below), None) => match (1..below.0).find_map(known) {
                Some(first) => at(rows, first, below).max(below.1),
                None => below.1 / line(below.0) * line(rows),
            },
            (None, Some(above)) => above.1 / line(above.0) * line(rows),
            (None, None) => line(rows),
        }
    }

    fn known(&self, rows: usize) -> Option<f64> {
        let Estimate { seconds, measured } = (*self.estimates.get(rows)?)?;
        (self.passes <= measured + MEMORY).then_some(seconds)
    }
}

/// Returns the time of a pass on the line through two measured ones.
fn at(rows: usize, (first, seconds): (usize, f64), (last, last_seconds): (usize, f64)) -> f64 {
    let row = (last_seconds - seconds) / (last - first) as f64;
    seconds + row * (rows - first) as f64
}

/// Returns the assumed time of a pass, in passes of one row.
fn line(rows: usize) -> f64 {
    1.0 + ROW * (rows as f64 - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(costs: &mut Costs, rows: usize, milliseconds: u64) {
        costs.record(rows, Duration::from_millis(milliseconds));
    }

    #[test]
    fn what_is_not_measured_follows_from_what_is() {
        let mut costs = Costs::default();
        assert_eq!(costs.seconds(1), 1.0);
        record(&mut costs, 1, 100);
        let milliseconds = |costs: &Costs, rows| (1000.0 * costs.seconds(rows)).round();
        assert_eq!([1, 5].map(|rows| milliseconds(&costs, rows)), [100.0, 240.0]);
        record(&mut costs, 5, 500);
        assert_eq!([1, 3, 5, 9].map(|n| milliseconds(&costs, n)), [100.0, 300.0, 500.0, 900.0]);
        let mut costs = Costs::default();
        record(&mut costs, 5, 240);
        assert_eq!(milliseconds(&costs, 1), 100.0);
    }

    #[test]
    fn an_interruption_counts_little_and_is_forgotten() {
        let mut costs = Costs::default();
        record(&mut costs, 4, 200);
        record(&mut costs, 4, 60_000);
        assert!((costs.seconds(4) - 0.225).abs() < 1e-9);
        // Too slow to try again, until it is forgotten.
        let mut costs = Costs::default();
        record(&mut costs, 4, 900);
        for _ in 0..MEMORY {
            record(&mut costs, 1, 100);
        }
        assert_eq!(costs.seconds(4), 0.9);
        record(&mut costs, 1, 100);
        assert!(costs.seconds(4) < 0.25, "{}", costs.seconds(4));
    }
}
