//! DPRoPE: each pair is either interpolated or left unchanged (extrapolated), whichever disturbs the
//! distribution of its angles less.
//!
//! Wu et al., "Extending Context Window of Large Language Models from a Distributional Perspective"
//! (arXiv:2410.01490, github.com/1180301012/DPRoPE), equations 5 to 9: pair i has the frequency
//! θ_i / s if D(unchanged) > D(interpolated) + t, and θ_i otherwise, also for a tie. Instead of t,
//! the number n̂ of dimensions to interpolate may be set: those with the largest difference. The
//! pairs are chosen once, when the plan is resolved.

use std::fmt;

use super::{
    Error, Sourced,
    disturbance::{Direction, TrainedAngles},
    rule_inputs::RuleInputs,
};

/// The settings of DPRoPE, and its choice for each pair.
#[derive(Clone, Debug, PartialEq)]
pub struct DpRope {
    /// The context L that the model was trained for before any extension.
    pub original_context: Sourced<usize>,
    /// b: the number of intervals that the circle is cut into.
    pub intervals: Sourced<usize>,
    /// The direction of the divergence that measures the disturbance.
    pub direction: Sourced<Direction>,
    /// The criterion that chooses the pairs to interpolate.
    pub choice: Choice,
    /// The disturbances of each pair and the choice.
    pub pairs: Vec<Pair>,
}

/// The criterion by which DPRoPE chooses the pairs to interpolate.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// Pairs whose disturbance interpolation reduces by more than t.
    Threshold(Sourced<f64>),
    /// n̂ dimensions (two for each pair): those whose disturbance interpolation reduces most.
    Dimensions(Sourced<usize>),
}

/// The choice of DPRoPE for a pair of dimensions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The disturbance if the frequency is unchanged.
    pub extrapolating: f64,
    /// The disturbance if the frequency is divided by the factor.
    pub interpolating: f64,
    /// Whether the pair is interpolated.
    pub interpolated: bool,
}

/// The largest number of positions to count, which takes seconds.
const POSITIONS_MAX: f64 = (1 << 22) as f64;

impl DpRope {
    pub(super) fn resolve(
        inputs: &RuleInputs,
        factor: &Sourced<f64>,
        inv_freq: &[f64],
    ) -> Result<Self, Error> {
        let original_context = inputs.original_context()?;
        let extended = (original_context.value as f64 * factor.value).round();
        if original_context.value == 0 || !(1.0..=POSITIONS_MAX).contains(&extended) {
            let (tokens, factor) = (original_context, factor.clone());
            return Err(Error::TooManyPositions { tokens, factor, most: POSITIONS_MAX as usize });
        }
        let flags = inputs.flags;
        let intervals = match flags.dprope_intervals {
            Some(b) => Sourced::whole("--dprope-intervals", b).between(2, 65536)?,
            None => Sourced::default(360),
        };
        let direction = match flags.dprope_direction {
            Some(way) => Sourced::flag(way, format!("--dprope-direction {}", way.name())),
            None => Sourced::default(Direction::Code),
        };
        let choice = Choice::resolve(inputs, 2 * inv_freq.len())?;

        let trained = TrainedAngles::new(inv_freq, original_context.value, intervals.value);
        let divided: Vec<f64> = inv_freq.iter().map(|theta| theta / factor.value).collect();
        let [alone, divided] = [inv_freq, &divided]
            .map(|inv_freq| trained.disturbances(inv_freq, extended as usize, direction.value));
        let mut pairs: Vec<Pair> = alone
            .into_iter()
            .zip(divided)
            .map(|(extrapolating, interpolating)| Pair {
                extrapolating,
                interpolating,
                interpolated: false,
            })
            .collect();
        choice.apply(&mut pairs);
        Ok(DpRope { original_context, intervals, direction, choice, pairs })
    }

    pub(super) fn scale(&self, inv_freq: &mut [f64], factor: f64) {
        let interpolated =
            inv_freq.iter_mut().zip(&self.pairs).filter(|(_, pair)| pair.interpolated);
        interpolated.for_each(|(theta, _)| *theta /= factor);
    }

    /// Returns the number of dimensions that are interpolated.
    pub fn dimensions(&self) -> usize {
        2 * self.pairs.iter().filter(|pair| pair.interpolated).count()
    }
}

impl Choice {
    fn resolve(inputs: &RuleInputs, n_rot: usize) -> Result<Choice, Error> {
        match (inputs.flags.dprope_threshold, inputs.flags.dprope_dims) {
            (None, None) => Ok(Choice::Threshold(Sourced::default(0.0))),
            (Some(t), None) => {
                let t = Sourced::number("--dprope-threshold", t);
                Ok(Choice::Threshold(t.within(-1000.0, 1000.0)?))
            }
            (None, Some(dims)) => {
                let dims = Sourced::whole("--dprope-dims", dims).between(0, n_rot)?;
                match dims.value.is_multiple_of(2) {
                    true => Ok(Choice::Dimensions(dims)),
                    false => Err(Error::OddDimensions { dims }),
                }
            }
            (Some(t), Some(dims)) => Err(Error::Both {
                one: format!("--dprope-threshold {t}"),
                other: format!("--dprope-dims {dims}"),
                setting: "the dimensions that DPRoPE interpolates",
            }),
        }
    }

    fn apply(&self, pairs: &mut [Pair]) {
        let gain = |pair: &Pair| pair.extrapolating - pair.interpolating;
        match self {
            Choice::Threshold(t) => {
                pairs.iter_mut().for_each(|pair| pair.interpolated = gain(pair) > t.value);
            }
            Choice::Dimensions(dims) => {
                let mut order: Vec<&mut Pair> = pairs.iter_mut().rev().collect();
                // The sort is stable: of equal pairs, the one with the lower frequency comes first.
                order.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
                order.into_iter().take(dims.value / 2).for_each(|pair| pair.interpolated = true);
            }
        }
    }
}

impl fmt::Display for DpRope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", {} of {} dimensions interpolated", self.dimensions(), 2 * self.pairs.len())?;
        write!(f, ", original context {}", self.original_context)?;
        match &self.choice {
            Choice::Threshold(t) => write!(f, ", threshold {t}")?,
            Choice::Dimensions(dims) => write!(f, ", dimensions {dims}")?,
        }
        write!(f, ", intervals {}", self.intervals)?;
        write!(f, ", direction {} ({})", self.direction.value.name(), self.direction.origin)
    }
}
