//! A measure of how much a longer context disturbs the angles that a model was trained with.
//!
//! Wu et al., "Extending Context Window of Large Language Models from a Distributional Perspective"
//! (arXiv:2410.01490): a pair that turns by θ gives the angles mθ mod 2π for the positions m = 0,
//! 1, ... The circle is cut into b intervals. Equation 8 compares the shares of the angles in each
//! (equations 5 to 7) between the trained length and the new one. All arithmetic is f64, so that
//! the choice of pairs does not depend on the machine.

use std::{f64::consts::TAU, str::FromStr};

/// The maximum number of positions with counted angles, which takes seconds.
pub const POSITIONS_MAX: usize = 1 << 22;

/// The direction of the divergence: which of the two distributions is its reference.
///
/// Values are sums over the intervals, in nats. They are comparable only for the same number of
/// intervals and the same two lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Σ p ln(p/q) for the trained p and the new q, as in the authors' code: penalizes trained
    /// angles that are no longer used. 2^-14 is added to every count.
    Code,
    /// Σ q ln(q/p), as in the paper's equation 8: penalizes angles that did not occur in training.
    /// 10^-6 is added to every share in the logarithm; the paper does not specify the value.
    Paper,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Direction; 2] = [Direction::Code, Direction::Paper];

    /// Returns the name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Code => "code",
            Direction::Paper => "paper",
        }
    }
}

impl FromStr for Direction {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Direction::ALL.into_iter().find(|way| way.name() == name).ok_or_else(|| {
            let known = Direction::ALL.map(Direction::name).join(", ");
            format!("unknown direction of the divergence {name:?}: must be one of {known}")
        })
    }
}

/// The number of angles of one pair in each interval of the circle.
///
/// ```
/// use rope_cpu_lab::disturbance::{Direction, Histogram};
///
/// let trained = Histogram::new(0.01, 4096, 360);
/// let longer = Histogram::new(0.01, 8192, 360);
/// assert_eq!(trained.disturbance(&trained, Direction::Code), 0.0);
/// assert!(longer.disturbance(&trained, Direction::Code) > 0.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// The number of angles in each interval.
    pub counts: Vec<u32>,
    /// The number of angles in all: one for each position.
    pub positions: usize,
}

impl Histogram {
    /// Counts the angles at the positions `0..positions` of a pair that turns by `theta` radians per
    /// position.
    pub fn new(theta: f64, positions: usize, intervals: usize) -> Histogram {
        let mut counts = vec![0; intervals];
        let per_radian = intervals as f64 / TAU;
        for position in 0..positions {
            let angle = (position as f64 * theta) % TAU;
            counts[((angle * per_radian) as usize).min(intervals - 1)] += 1;
        }
        Histogram { counts, positions }
    }

    /// Returns the share of the angles in each interval.
    pub fn shares(&self) -> Vec<f64> {
        self.counts.iter().map(|count| f64::from(*count) / self.positions as f64).collect()
    }

    /// Returns the disturbance of the `trained` angles by these. Both histograms must have the same
    /// number of intervals.
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

/// The angles of a model as trained, which disturbances are measured against.
#[derive(Clone, Debug)]
pub struct TrainedAngles {
    histograms: Vec<Histogram>,
    intervals: usize,
}

impl TrainedAngles {
    /// Counts the angles of each pair of `inv_freq` at the positions `0..context`, in `intervals`
    /// intervals of the circle.
    pub fn new(inv_freq: &[f64], context: usize, intervals: usize) -> TrainedAngles {
        let histograms =
            inv_freq.iter().map(|theta| Histogram::new(*theta, context, intervals)).collect();
        TrainedAngles { histograms, intervals }
    }

    /// Returns the disturbance of each pair by the frequencies `inv_freq` at the positions
    /// `0..context`. The disturbance of a model is the mean over its pairs.
    pub fn disturbances(&self, inv_freq: &[f64], context: usize, direction: Direction) -> Vec<f64> {
        let pairs = inv_freq.iter().zip(&self.histograms);
        pairs
            .map(|(theta, trained)| {
                Histogram::new(*theta, context, self.intervals).disturbance(trained, direction)
            })
            .collect()
    }
}
