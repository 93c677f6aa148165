//! DPRoPE: interpolates each pair or leaves it unchanged (extrapolates), whichever disturbs the
//! distribution of its angles less.
//!
//! Wu et al., "Extending Context Window of Large Language Models from a Distributional Perspective"
//! (arXiv:2410.01490, github.com/1180301012/DPRoPE), equations 5 to 9: pair i has the frequency θ_i
//! / s if D(unchanged) > D(interpolated) + t, and θ_i otherwise, also for a tie. Instead of t, the
//! number n̂ of dimensions to interpolate may be set, with the largest difference first. The pairs
//! are chosen once, when the plan is resolved.

use std::{fmt, sync::Arc};

use rope_cpu_lab::disturbance::{Direction, POSITIONS_MAX, TrainedAngles};

use super::{Error, Rule, Scaling, Sourced, rule_inputs::RuleInputs, sourced::short, yarn};
use crate::settings::Parameter;

/// DPRoPE.
pub(super) static DPROPE: Scaling = Scaling::rule(
    "dprope",
    "each frequency is divided or kept, whichever disturbs the distribution of its angles less",
    |inputs, factor, inv_freq| Ok(Arc::new(DpRope::resolve(inputs, factor, inv_freq)?)),
)
.parameters(&[&INTERVALS, &THRESHOLD, &DIMS, &DIRECTION])
.shares(&[&yarn::ORIG_CTX]);

/// b, the number of intervals of the circle.
pub static INTERVALS: Parameter = Parameter::whole(
    "dprope_intervals",
    "N",
    "from 2 to 65536",
    "dprope: number of intervals of the circle [default: 360]",
)
.details("From 2 to 65536.")
.rare();

/// t; a pair is interpolated if that reduces its disturbance by more than t.
pub static THRESHOLD: Parameter = Parameter::number(
    "dprope_threshold",
    "N",
    "dprope: minimum gain for which a frequency is divided [default: 0]",
)
.details(
    "In nats, from -1000 to 1000. At 0, sampling noise decides for some of the high frequencies; at \
     0.001, mostly low frequencies are divided.",
)
.rare();

/// n̂, the number of dimensions to interpolate.
pub static DIMS: Parameter = Parameter::whole(
    "dprope_dims",
    "N",
    "from 0 to the dimensions that rotate",
    "dprope: number of dimensions that are divided",
)
.details(
    "An even number, at most the number of dimensions that rotate. It replaces the threshold. The \
     paper uses 80 of 128 for twice the context, and 64 for four times.",
)
.rare();

/// The direction of the divergence that measures the disturbance.
pub static DIRECTION: Parameter = Parameter::word(
    "dprope_direction",
    "WAY",
    &["code", "paper"],
    "dprope: direction of the divergence: code or paper [default: code]",
)
.details(
    "code: from the trained distribution to the new one, as in the authors' program. paper: the \
     reverse, as in equation 8 of their paper.",
)
.rare();

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

/// How DPRoPE chooses the pairs to interpolate.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// Pairs with a disturbance that interpolation reduces by more than t.
    Threshold(Sourced<f64>),
    /// n̂ dimensions (two for each pair), where interpolation reduces the disturbance most.
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

impl DpRope {
    fn resolve(
        inputs: &RuleInputs,
        factor: &Sourced<f64>,
        inv_freq: &[f64],
    ) -> Result<Self, Error> {
        let original_context = inputs.original_context()?;
        let extended = (original_context.value as f64 * factor.value).round();
        let counted = 1.0..=POSITIONS_MAX as f64;
        if ![original_context.value as f64, extended].iter().all(|len| counted.contains(len)) {
            let (tokens, factor) = (original_context, factor.clone());
            return Err(Error::TooManyPositions { tokens, factor, most: POSITIONS_MAX });
        }
        let flags = inputs.flags;
        let intervals =
            flags.whole(&INTERVALS).unwrap_or(Sourced::default(360)).between(2, 65536)?;
        let direction = flags.word_or_first(&DIRECTION, &Direction::ALL, Direction::name)?;
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

    /// Returns the number of dimensions that are interpolated.
    pub fn dimensions(&self) -> usize {
        2 * self.pairs.iter().filter(|pair| pair.interpolated).count()
    }
}

impl Rule for DpRope {
    fn scale(&self, inv_freq: &mut [f64], _base: f64, factor: f64, _length: usize) {
        let interpolated =
            inv_freq.iter_mut().zip(&self.pairs).filter(|(_, pair)| pair.interpolated);
        interpolated.for_each(|(theta, _)| *theta /= factor);
    }

    fn frequency_formula(&self, factor: f64) -> String {
        let s = short(factor);
        format!("θ_i / {s} if that reduces the disturbance of the pair, otherwise θ_i")
    }

    fn original_context(&self) -> Option<&Sourced<usize>> {
        Some(&self.original_context)
    }
}

impl Choice {
    fn resolve(inputs: &RuleInputs, n_rot: usize) -> Result<Choice, Error> {
        let flags = inputs.flags;
        match (flags.number(&THRESHOLD), flags.whole(&DIMS)) {
            (None, None) => Ok(Choice::Threshold(Sourced::default(0.0))),
            (Some(t), None) => Ok(Choice::Threshold(t.within(-1000.0, 1000.0)?)),
            (None, Some(dims)) => {
                let dims = dims.between(0, n_rot)?;
                match dims.value.is_multiple_of(2) {
                    true => Ok(Choice::Dimensions(dims)),
                    false => Err(Error::OddDimensions { dims }),
                }
            }
            (Some(t), Some(dims)) => Err(Error::Both {
                one: t.origin.to_string(),
                other: dims.origin.to_string(),
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
