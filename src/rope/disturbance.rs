//! How much a longer context disturbs the angles that a model was trained with.
//!
//! Wu et al., "Extending Context Window of Large Language Models from a Distributional Perspective"
//! (arXiv:2410.01490): a pair that turns by θ gives the angles mθ mod 2π for the positions
//! m = 0, 1, ... The circle is cut into b intervals, and the shares of the angles in each (equations
//! 5 to 7) are compared between the trained length and the new one (equation 8). In f64 throughout:
//! masks that follow from it must not depend on a machine.

use std::{f64::consts::TAU, str::FromStr};

use super::{Error, error};

/// Which of two distributions is the reference of the divergence.
///
/// Values are sums over the intervals, in nats, and comparable for one number of intervals and
/// one pair of lengths alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Σ p ln(p/q) of the trained p and the new q, as in the authors' code: punishes trained
    /// angles that are no longer used. 2^-14 is added to every count.
    Code,
    /// Σ q ln(q/p), as equation 8 is printed: punishes angles that were not there in training.
    /// 10^-6 is added to every share within the logarithm; the paper does not say what it adds.
    Paper,
}

impl Direction {
    /// Both.
    pub const ALL: [Direction; 2] = [Direction::Code, Direction::Paper];

    /// The name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Code => "code",
            Direction::Paper => "paper",
        }
    }
}

impl FromStr for Direction {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        error::one_of("direction of the divergence", name, &Direction::ALL, Direction::name)
    }
}

/// Counts of the angles of one pair in each interval of the circle.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// How many angles are in each interval.
    pub counts: Vec<u32>,
    /// How many there are.
    pub positions: usize,
}

impl Histogram {
    /// Counts the angles of the positions `0..positions` of a pair that turns by `theta`.
    pub fn new(theta: f64, positions: usize, intervals: usize) -> Histogram {
        let mut counts = vec![0; intervals];
        let per_radian = intervals as f64 / TAU;
        for position in 0..positions {
            let angle = (position as f64 * theta) % TAU;
            counts[((angle * per_radian) as usize).min(intervals - 1)] += 1;
        }
        Histogram { counts, positions }
    }

    /// The disturbance of the `trained` angles by these, which are to be as many intervals.
    pub fn disturbance(&self, trained: &Histogram, direction: Direction) -> f64 {
        let (new, old) = (self.positions as f64, trained.positions as f64);
        let counts = self.counts.iter().zip(&trained.counts);
        let counts = counts.map(|(q, p)| (f64::from(*q), f64::from(*p)));
        match direction {
            Direction::Code => {
                const ADDED: f64 = 1.0 / (1 << 14) as f64;
                let shares = counts.map(|(q, p)| ((q + ADDED) / new, (p + ADDED) / old));
                shares.map(|(q, p)| p * (p.ln() - q.ln())).sum()
            }
            Direction::Paper => {
                const ADDED: f64 = 1e-6;
                let shares = counts.map(|(q, p)| (q / new, p / old));
                shares.map(|(q, p)| q * ((q + ADDED) / (p + ADDED)).ln()).sum()
            }
        }
    }
}

/// What the disturbance of frequencies is measured against.
#[derive(Clone, Debug)]
pub struct TrainedAngles {
    histograms: Vec<Histogram>,
    intervals: usize,
}

impl TrainedAngles {
    /// The angles of `inv_freq` over the positions `0..context`, in so many intervals.
    pub fn new(inv_freq: &[f64], context: usize, intervals: usize) -> TrainedAngles {
        let histograms =
            inv_freq.iter().map(|theta| Histogram::new(*theta, context, intervals)).collect();
        TrainedAngles { histograms, intervals }
    }

    /// The disturbance of each pair by the frequencies `inv_freq` over `0..context`. The mean is
    /// that of the whole.
    pub fn disturbances(&self, inv_freq: &[f64], context: usize, direction: Direction) -> Vec<f64> {
        let pairs = inv_freq.iter().zip(&self.histograms);
        pairs
            .map(|(theta, trained)| {
                Histogram::new(*theta, context, self.intervals).disturbance(trained, direction)
            })
            .collect()
    }
}
