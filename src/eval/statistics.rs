//! Computes means and deviations of a few measurements.

/// A mean and the standard deviation from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The mean; 0 without values.
    pub mean: f64,
    /// The sample standard deviation, with the divisor n - 1; 0 for fewer than two values.
    pub deviation: f64,
}

impl Spread {
    /// Computes the mean and the deviation of `values`.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        if values.is_empty() {
            return Spread { mean: 0.0, deviation: 0.0 };
        }
        let mean = values.iter().sum::<f64>() / count;
        let squares = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>();
        let deviation = if values.len() < 2 { 0.0 } else { (squares / (count - 1.0)).sqrt() };
        Spread { mean, deviation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_are_those_of_a_sample() {
        assert_eq!(Spread::of(&[2.0, 4.0, 9.0]), Spread { mean: 5.0, deviation: 13f64.sqrt() });
        assert_eq!(Spread::of(&[3.0]), Spread { mean: 3.0, deviation: 0.0 });
        assert_eq!(Spread::of(&[]), Spread { mean: 0.0, deviation: 0.0 });
        // Large values that differ little: the mean of squares would lose the difference.
        assert_eq!(Spread::of(&[1e9, 1e9 + 2.0]).deviation, 2f64.sqrt());
    }
}
