//! Computes means, deviations, intervals and tests of a few measurements.

use super::random::Random;

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

/// A mean with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The mean; 0 without values.
    pub mean: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// The number of samples that an interval is computed from.
const RESAMPLES: usize = 2000;

impl Interval {
    /// Computes the mean and its interval by the percentile bootstrap (Efron 1979): the 2.5 and
    /// 97.5 % quantiles of the means of as many values, drawn with replacement.
    ///
    /// Equal values have an interval of width 0, which says nothing about other samples.
    pub fn of(values: &[f64]) -> Self {
        Self::of_groups(&[values])
    }

    /// Computes the mean of the means of several groups, and its interval like [`Interval::of`] with
    /// resamples of each group by itself (stratified bootstrap). Empty groups do not count.
    ///
    /// ```
    /// use rope_cpu::eval::statistics::Interval;
    ///
    /// let interval = Interval::of_groups(&[&[1.0], &[0.0; 9]]);
    /// assert_eq!((interval.mean, interval.low, interval.high), (0.5, 0.5, 0.5));
    /// ```
    pub fn of_groups(groups: &[&[f64]]) -> Self {
        let groups = || groups.iter().filter(|group| !group.is_empty());
        if groups().next().is_none() {
            return Interval { mean: 0.0, low: 0.0, high: 0.0 };
        }
        let count = groups().count() as f64;
        let mean = groups().map(|group| Spread::of(group).mean).sum::<f64>() / count;
        let lengths: Vec<u64> = groups().map(|group| group.len() as u64).collect();
        let mut random = Random::new(&lengths);
        let mut resample = |_| {
            let mean = |group: &&[f64]| {
                let drawn = group.iter().map(|_| group[random.below(group.len())]);
                drawn.sum::<f64>() / group.len() as f64
            };
            groups().map(mean).sum::<f64>() / count
        };
        let mut means: Vec<f64> = (0..RESAMPLES).map(&mut resample).collect();
        means.sort_by(f64::total_cmp);
        let quantile = |share: f64| means[(share * (RESAMPLES - 1) as f64).round() as usize];
        Interval { mean, low: quantile(0.025), high: quantile(0.975) }
    }
}

/// Maximum number of differences for which all signs are tried.
const EXACT_MAX: usize = 14;
/// The number of random signs that are tried for more differences.
const TRIALS: usize = 20_000;

/// Returns the probability of a mean difference at least this large, if each pair were swapped at
/// random (Fisher's two-sided randomization test).
pub fn paired_test(differences: &[f64]) -> f64 {
    // Pairs of equal values have the same sum with either sign.
    let differences: Vec<f64> = differences.iter().copied().filter(|d| *d != 0.0).collect();
    let found = differences.iter().sum::<f64>().abs();
    // Sums of the same numbers in another order differ by rounding.
    let found = found - 1e-12 * differences.iter().map(|d| d.abs()).sum::<f64>();
    let count = differences.len();
    if count <= EXACT_MAX {
        let sum = |signs: &usize| -> f64 {
            let signed = differences.iter().enumerate();
            signed.map(|(i, d)| if signs >> i & 1 == 0 { *d } else { -d }).sum()
        };
        let all = 1 << count;
        let extreme = (0..all).filter(|signs| sum(signs).abs() >= found).count();
        return extreme as f64 / all as f64;
    }
    let mut random = Random::new(&[count as u64]);
    let mut sum = |_: &usize| -> f64 {
        differences.iter().map(|d| if random.below(2) == 0 { *d } else { -d }).sum()
    };
    let extreme = (0..TRIALS).filter(|trial| sum(trial).abs() >= found).count();
    // The signs that were found are one of the trials.
    (extreme + 1) as f64 / (TRIALS + 1) as f64
}

/// Returns the probabilities of several tests, each enlarged so that together they have
/// the chance of a false finding that one test has (Holm 1979).
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let (mut adjusted, mut largest) = (vec![0.0; order.len()], 0.0);
    for (rank, &i) in order.iter().enumerate() {
        largest = f64::max(largest, probabilities[i] * (order.len() - rank) as f64).min(1.0);
        adjusted[i] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_that_of_the_binomial_distribution() {
        // 60 of 100: the standard error of the mean is 0.049. The quantiles of 2,000 resamples have
        // an error of about 0.003 each, and the values a step of 0.01.
        let values: Vec<f64> = (0..100).map(|i| f64::from(u8::from(i < 60))).collect();
        let Interval { mean, low, high } = Interval::of(&values);
        assert_eq!(mean, 0.6);
        assert!((low - (0.6 - 1.96 * 0.049)).abs() < 0.02, "{low}");
        assert!((high - (0.6 + 1.96 * 0.049)).abs() < 0.02, "{high}");
        assert_eq!(Interval::of(&[0.5; 3]), Interval { mean: 0.5, low: 0.5, high: 0.5 });
        assert_eq!(Interval::of(&[]), Interval { mean: 0.0, low: 0.0, high: 0.0 });
    }

    #[test]
    fn groups_count_alike_and_are_drawn_apart() {
        // A mean of 0.6 of 100 values, and of 0.4 of 25: the standard errors 0.049 and 0.098 of the
        // means give half the root of their squares' sum.
        let of = |ones: usize, all: usize| -> Vec<f64> {
            (0..all).map(|i| f64::from(u8::from(i < ones))).collect()
        };
        let Interval { mean, low, high } = Interval::of_groups(&[&of(60, 100), &[], &of(10, 25)]);
        assert!((mean - 0.5).abs() < 1e-15, "{mean}");
        let half = 1.96 * 0.049f64.hypot(0.098) / 2.0;
        assert!((low - (0.5 - half)).abs() < 0.02, "{low}");
        assert!((high - (0.5 + half)).abs() < 0.02, "{high}");
        // The difference of the groups adds nothing to the interval.
        let apart = Interval::of_groups(&[&[1.0; 3], &[0.0; 50]]);
        assert_eq!(apart, Interval { mean: 0.5, low: 0.5, high: 0.5 });
    }

    #[test]
    fn few_pairs_are_tested_exactly() {
        // Of the 8 signs of three equal differences, two give as large a sum.
        assert_eq!(paired_test(&[0.1, 0.0, 0.1, 0.1]), 0.25);
        assert_eq!(paired_test(&[1.0, -1.0]), 1.0);
        assert_eq!(paired_test(&[0.0, 0.0]), 1.0);
        assert_eq!(paired_test(&[1.0; 10]), 2.0 / 1024.0);
    }

    #[test]
    fn many_pairs_are_tested_by_random_signs() {
        // 20 of 30 pairs are better: twice the probability of at least 20 heads in 30 is 0.0987.
        let found: Vec<f64> = (0..30).map(|i| if i < 20 { 1.0 } else { -1.0 }).collect();
        // Four standard errors of 20,000 trials.
        assert!((paired_test(&found) - 0.0987).abs() < 0.0085, "{}", paired_test(&found));
        assert!(paired_test(&[1.0; 40]) < 0.001);
    }

    #[test]
    fn several_tests_are_adjusted_step_by_step() {
        assert_eq!(holm(&[0.01, 0.04, 0.03]), [0.03, 0.06, 0.06]);
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
        assert_eq!(holm(&[]), [0.0; 0]);
    }

    #[test]
    fn deviations_are_those_of_a_sample() {
        assert_eq!(Spread::of(&[2.0, 4.0, 9.0]), Spread { mean: 5.0, deviation: 13f64.sqrt() });
        assert_eq!(Spread::of(&[3.0]), Spread { mean: 3.0, deviation: 0.0 });
        assert_eq!(Spread::of(&[]), Spread { mean: 0.0, deviation: 0.0 });
        // Large values that differ little: the mean of squares would lose the difference.
        assert_eq!(Spread::of(&[1e9, 1e9 + 2.0]).deviation, 2f64.sqrt());
    }
}
