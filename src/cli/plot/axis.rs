//! An axis with ticks in steps of 1, 2 and 5.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// The number of ticks that fit well.
const TICKS: f64 = 10.0;

/// The values of an axis.
#[derive(Clone)]
pub struct Axis {
    pub from: f64,
    pub to: f64,
    /// Whether equal ratios have equal lengths; the values are above 0.
    pub logarithmic: bool,
}

impl Axis {
    /// Returns the values with a tick, in increasing order.
    pub fn ticks(&self) -> Vec<f64> {
        let all = if self.logarithmic { decades(self.from, self.to) } else { Vec::new() };
        // Less than a decade has too few round numbers.
        if all.len() < 3 { linear(self.from, self.to) } else { all }
    }

    fn scaled(&self, value: f64) -> f64 {
        if self.logarithmic { value.ln() } else { value }
    }
}

/// Returns the multiples of 1, 2 or 5 times a power of ten.
fn linear(from: f64, to: f64) -> Vec<f64> {
    let least = (to - from) / TICKS;
    if !(least > 0.0 && least.is_finite()) {
        return vec![from];
    }
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    let step = step.into_iter().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * power);
    let (first, last) = ((from / step - 1e-9).ceil() as i64, (to / step + 1e-9).floor() as i64);
    (first..=last).map(|i| i as f64 * step).collect()
}

/// Returns 1, 2 and 5 times the powers of ten, or only powers of ten if those are enough.
fn decades(from: f64, to: f64) -> Vec<f64> {
    let powers = from.log10().floor() as i32..=to.log10().ceil() as i32;
    let within = |value: &f64| (from..=to).contains(value);
    let digits: &[f64] = if powers.clone().count() > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all = powers.flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)));
    all.filter(within).collect()
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (start, end): (i32, i32)) -> i32 {
        let [from, to, value] = [self.from, self.to, *value].map(|value| self.scaled(value));
        let share = if to > from { (value - from) / (to - from) } else { 0.0 };
        start + (share * f64::from(end - start)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        let text = format!("{value:.9}");
        text.trim_end_matches('0').trim_end_matches('.').into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        let ticks = |from, to, logarithmic| {
            let ticks = Axis { from, to, logarithmic }.ticks();
            ticks.iter().map(Axis::format).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ticks(0.0, 16384.0, false), "0 2000 4000 6000 8000 10000 12000 14000 16000");
        assert_eq!(ticks(0.0, 32.0, false), "0 5 10 15 20 25 30");
        assert_eq!(ticks(0.0, 360.0, false), "0 50 100 150 200 250 300 350");
        assert_eq!(ticks(0.0, 0.0142, false), "0 0.002 0.004 0.006 0.008 0.01 0.012 0.014");
        assert_eq!(ticks(3.0, 60.0, true), "5 10 20 50");
        assert_eq!(ticks(0.5, 2e6, true), "1 10 100 1000 10000 100000 1000000");
        assert_eq!(ticks(11.2, 13.9, true), "11.5 12 12.5 13 13.5");
        assert_eq!(ticks(5.0, 5.0, false), "5");
    }
}
