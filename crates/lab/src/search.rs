//! Searches numbers, such as the settings of a RoPE method, for the lowest value of a measure, such as
//! the perplexity of a text.
//!
//! ```text
//! step = 1
//! until step is too small:
//!   for each axis, in order:
//!     move it by +step or -step, first in the direction that helped last; keep what is lower
//!   if no axis helped: step = step / 2
//! ```
//! This is a pattern search (Hooke and Jeeves 1961, "Direct search solution of numerical and
//! statistical problems") without its jumps. It has no random choices, so that the same measurements
//! lead to the same result.

/// A number to search.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// The value to start from.
    pub start: f64,
    /// The largest step.
    pub step: Step,
    /// Values are multiples of it; 0 for numbers of three digits.
    pub multiple: usize,
}

/// A step along an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Multiplies or divides by this number.
    Times(f64),
    /// Adds or subtracts this number.
    Plus(f64),
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trial {
    /// The measure. Lower is better.
    Measured(f64),
    /// The values are not valid, or change nothing.
    Refused,
    /// The search must end, since its budget is spent.
    Ended,
}

/// The number of times that steps are halved.
const HALVINGS: i32 = 3;

impl Axis {
    /// Returns the value that is `steps` steps from `value`.
    fn moved(&self, value: f64, steps: f64) -> f64 {
        let moved = match self.step {
            Step::Times(ratio) => value * ratio.powf(steps),
            Step::Plus(step) => value + step * steps,
        };
        match self.multiple {
            0 => three_digits(moved),
            multiple => (moved / multiple as f64).round().max(0.0) * multiple as f64,
        }
    }
}

/// Rounds to three digits, so that the value can be given as it was measured.
fn three_digits(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// Searches the values of `axes` with the lowest measure, and returns them. `measure` is called with
/// the values to start from first, and may be called with the same values again.
///
/// # Errors
/// If `measure` fails.
///
/// ```
/// use rope_cpu_lab::search::{Axis, Step, Trial, search};
///
/// let axis = Axis { start: 1.0, step: Step::Plus(1.0), multiple: 0 };
/// let found = search(&[axis], &mut |values| Ok::<_, ()>(Trial::Measured((values[0] - 3.2).abs())));
/// assert!((found.unwrap()[0] - 3.2).abs() < 0.1);
/// ```
pub fn search<E>(
    axes: &[Axis],
    measure: &mut dyn FnMut(&[f64]) -> Result<Trial, E>,
) -> Result<Vec<f64>, E> {
    let mut best: Vec<f64> = axes.iter().map(|axis| axis.start).collect();
    let Trial::Measured(mut lowest) = measure(&best)? else { return Ok(best) };
    let mut directions = vec![1.0; axes.len()];
    let mut halvings = 0;
    while halvings <= HALVINGS {
        let mut helped = false;
        for (i, axis) in axes.iter().enumerate() {
            for direction in [directions[i], -directions[i]] {
                let mut moved = best.clone();
                moved[i] = axis.moved(best[i], direction * 0.5f64.powi(halvings));
                if moved[i] == best[i] {
                    continue;
                }
                match measure(&moved)? {
                    Trial::Measured(found) if found < lowest => {
                        (best, lowest, directions[i], helped) = (moved, found, direction, true);
                        break;
                    }
                    Trial::Measured(_) | Trial::Refused => {}
                    Trial::Ended => return Ok(best),
                }
            }
        }
        if !helped {
            halvings += 1;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn axis(start: f64, step: Step, multiple: usize) -> Axis {
        Axis { start, step, multiple }
    }

    /// Searches the minimum of a function with a maximum of trials. Returns it and the number of trials.
    fn found(axes: &[Axis], trials_max: usize, f: impl Fn(&[f64]) -> f64) -> (Vec<f64>, usize) {
        let mut known = HashSet::new();
        let found = search(axes, &mut |values| {
            known.insert(format!("{values:?}"));
            Ok::<_, ()>(if known.len() > trials_max {
                Trial::Ended
            } else {
                Trial::Measured(f(values))
            })
        });
        (found.unwrap(), known.len())
    }

    #[test]
    fn the_lowest_values_are_found_along_all_axes() {
        let axes = [
            axis(4.0, Step::Times(1.5), 0),
            axis(32.0, Step::Times(2.0), 0),
            axis(10.0, Step::Plus(8.0), 2),
        ];
        // The axes depend on each other.
        let (values, trials) = found(&axes, 1000, |x| {
            let [a, b, c] = [(x[0] / 7.0).ln(), (x[1] / 9.0).ln(), (x[2] - 27.0) / 10.0];
            a * a + b * b + c * c + 0.5 * a * b
        });
        assert!((values[0] / 7.0 - 1.0).abs() < 0.06, "{values:?}");
        assert!((values[1] / 9.0 - 1.0).abs() < 0.1, "{values:?}");
        assert!([26.0, 28.0].contains(&values[2]), "{values:?}");
        assert!(trials < 100, "{trials}");
        assert!(values[..2].iter().all(|value| three_digits(*value) == *value), "{values:?}");
    }

    #[test]
    fn a_search_ends_with_its_budget_and_keeps_the_best_values() {
        let axes = [axis(1.0, Step::Plus(1.0), 0), axis(1.0, Step::Plus(1.0), 0)];
        let bowl = |x: &[f64]| (x[0] - 3.0).powi(2) + (x[1] - 1.0).powi(2);
        assert_eq!(found(&axes, 1, bowl).0, [1.0, 1.0]);
        assert_eq!(found(&axes, 2, bowl).0, [2.0, 1.0]);
        assert_eq!(found(&axes, 1000, bowl).0, [3.0, 1.0]);
        assert_eq!(found(&[], 1000, |_| 1.0).0, [0.0; 0]);
    }

    #[test]
    fn refused_values_are_not_kept() {
        let axes = [axis(1.0, Step::Plus(1.0), 0)];
        let found = search(&axes, &mut |values| {
            let valid = values[0] <= 2.5;
            Ok::<_, ()>(if valid { Trial::Measured(-values[0]) } else { Trial::Refused })
        });
        assert_eq!(found.unwrap(), [2.5]);
        assert_eq!(search(&axes, &mut |_| Err("failed")), Err("failed"));
    }
}
