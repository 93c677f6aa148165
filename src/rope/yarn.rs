//! YaRN: frequencies that turn often within the original context are kept, those that turn less
//! than about once are interpolated, with a ramp between. An attention scale makes attention
//! slightly sharper.
//!
//! Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models"
//! (arXiv:2309.00071): the ramp is equation 18 with 11, the blend definition 2, the attention scale
//! equation 22. In the code of YaRN, Hugging Face and ggml the ramp is linear in the index of the pair;
//! in the paper it is linear in the number of turns. [`Ramp`] has both forms.

use std::{f64::consts::TAU, fmt, str::FromStr};

use super::{Error, Origin, Scaling, Sourced, error, linear, rule_inputs::RuleInputs};

/// The settings of YaRN, all but the factor.
#[derive(Clone, Debug, PartialEq)]
pub struct Yarn {
    /// The context before any extension, in tokens.
    pub original_context: Sourced<usize>,
    /// The extrapolation factor: the share of a high frequency that is kept. 1 is YaRN, 0 interpolates
    /// all frequencies.
    pub ext_factor: Sourced<f64>,
    /// The number of turns within the original context above which a frequency is kept.
    pub beta_fast: Sourced<f64>,
    /// The number of turns below which a frequency is interpolated.
    pub beta_slow: Sourced<f64>,
    /// The form of the ramp between the two.
    pub ramp: Sourced<Ramp>,
}

/// The form of YaRN's ramp between kept and interpolated frequencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ramp {
    /// Linear in the pair index, with ends rounded to whole pairs.
    Whole,
    /// Linear in the pair index, with exact ends (`truncate: false` of Hugging Face; gpt-oss).
    Exact,
    /// Linear in the number of turns, as in the paper.
    Turns,
}

impl Ramp {
    /// All forms.
    pub const ALL: [Ramp; 3] = [Ramp::Whole, Ramp::Exact, Ramp::Turns];

    /// Returns the name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Ramp::Whole => "whole",
            Ramp::Exact => "exact",
            Ramp::Turns => "turns",
        }
    }
}

impl FromStr for Ramp {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        error::one_of("ramp of YaRN", name, &Ramp::ALL, Ramp::name)
    }
}

impl Yarn {
    /// Returns the extrapolation factor: that of the flag, otherwise 1 for YaRN and 0 for other
    /// scalings.
    pub(super) fn ext_factor(inputs: &RuleInputs) -> Result<Sourced<f64>, Error> {
        match inputs.flags.yarn_ext_factor {
            Some(ext_factor) => Sourced::number("--yarn-ext-factor", ext_factor).share(),
            None if matches!(inputs.scaling.value, Scaling::Yarn | Scaling::DynamicYarn) => {
                Ok(Sourced::default(1.0))
            }
            None => Ok(Sourced::default(0.0)),
        }
    }

    pub(super) fn resolve(inputs: &RuleInputs, ext_factor: Sourced<f64>) -> Result<Self, Error> {
        let flags = inputs.flags;
        let beta = |flag, value: Option<f64>, default| match value {
            Some(beta) => Sourced::number(flag, beta).factor(),
            None => Ok(Sourced::default(default)),
        };
        Ok(Yarn {
            original_context: inputs.original_context()?,
            ext_factor,
            beta_fast: beta("--yarn-beta-fast", flags.yarn_beta_fast, 32.0)?,
            beta_slow: beta("--yarn-beta-slow", flags.yarn_beta_slow, 1.0)?,
            ramp: match flags.yarn_ramp {
                Some(ramp) => Sourced::flag(ramp, format!("--yarn-ramp {}", ramp.name())),
                None => Sourced::default(Ramp::Whole),
            },
        })
    }

    pub(super) fn scale(&self, inv_freq: &mut [f64], base: f64, factor: f64) {
        let freq_scale = 1.0 / factor;
        let kept = self.kept(2 * inv_freq.len(), base);
        for (theta, kept) in inv_freq.iter_mut().zip(kept) {
            *theta = freq_scale * *theta * (1.0 - kept) + *theta * kept;
        }
    }

    /// Returns the share of the frequency of each pair that is kept; the rest is interpolated.
    fn kept(&self, n_rot: usize, base: f64) -> Vec<f64> {
        let context = self.original_context.value as f64;
        let (fast, slow) = (self.beta_fast.value, self.beta_slow.value);
        let d = n_rot as f64;
        // The fractional index of the pair that makes `turns` turns within the original context.
        let pair = |turns: f64| d * (context / (turns * TAU)).ln() / (2.0 * base.ln());
        let (low, high) = match self.ramp.value {
            Ramp::Whole => (pair(fast).floor(), pair(slow).ceil()),
            _ => (pair(fast), pair(slow)),
        };
        // The limit is d - 1 instead of d/2 - 1, as in all other implementations.
        let (low, high) = (low.max(0.0), high.min(d - 1.0));
        let width = (high - low).max(0.001);
        let by_index = |i: usize| 1.0 - ((i as f64 - low) / width).clamp(0.0, 1.0);
        let by_turns = |theta: f64| {
            ((context * theta / TAU - slow) / (fast - slow).max(0.001)).clamp(0.0, 1.0)
        };
        linear::frequencies(n_rot, base)
            .enumerate()
            .map(|(i, theta)| match self.ramp.value {
                Ramp::Whole | Ramp::Exact => by_index(i) * self.ext_factor.value,
                Ramp::Turns => by_turns(theta) * self.ext_factor.value,
            })
            .collect()
    }

    /// Returns the attention scale for this factor, or `None` if YaRN does not change it.
    pub(super) fn magnitude(
        &self,
        inputs: &RuleInputs,
        factor: f64,
    ) -> Result<Option<Sourced<f64>>, Error> {
        let weights = MagnitudeWeights::resolve(inputs)?;
        let sharper = self.ext_factor.value != 0.0 && factor > 1.0;
        Ok(sharper.then(|| {
            let value = weights.magnitude(factor);
            Sourced { value, origin: weights.origin }
        }))
    }
}

/// The weights of YaRN's attention scale, which is m(s) of one weight divided by m(s) of another.
#[derive(Clone, Debug, PartialEq)]
pub struct MagnitudeWeights {
    /// The weight in the numerator: Hugging Face's `mscale`.
    pub numerator: f64,
    /// The weight in the denominator: Hugging Face's `mscale_all_dim`.
    pub denominator: f64,
    /// The origin of the weights.
    pub origin: Origin,
}

impl MagnitudeWeights {
    /// Returns the weights of the flags, otherwise those of the file (DeepSeek and Mistral), otherwise
    /// 1 and 0.
    pub(super) fn resolve(inputs: &RuleInputs) -> Result<Self, Error> {
        let typed = match (inputs.flags.yarn_mscale, inputs.flags.yarn_mscale_all_dim) {
            (None, None) => inputs.keys.magnitude_weights()?,
            (Some(numerator), Some(denominator)) => {
                let numerator = Sourced::number("--yarn-mscale", numerator).share()?;
                let denominator = Sourced::number("--yarn-mscale-all-dim", denominator).share()?;
                let origin = Origin::Flag(format!("{}, {}", numerator.origin, denominator.origin));
                // A weight of 0 means that none is set, as in Hugging Face.
                let both = numerator.value != 0.0 && denominator.value != 0.0;
                both.then_some((numerator.value, denominator.value, origin))
            }
            (Some(_), None) => {
                return Err(Error::NeedsBoth("--yarn-mscale", "--yarn-mscale-all-dim"));
            }
            (None, Some(_)) => {
                return Err(Error::NeedsBoth("--yarn-mscale-all-dim", "--yarn-mscale"));
            }
        };
        let (numerator, denominator, origin) =
            typed.unwrap_or((1.0, 0.0, Origin::Computed("1 + 0.1 ln factor")));
        Ok(MagnitudeWeights { numerator, denominator, origin })
    }

    /// Returns the attention scale for `factor`.
    pub(super) fn magnitude(&self, factor: f64) -> f64 {
        magnitude(factor, self.numerator) / magnitude(factor, self.denominator)
    }
}

impl fmt::Display for Yarn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", original context {}", self.original_context)?;
        write!(f, ", ext factor {}", self.ext_factor)?;
        write!(f, ", beta fast {}", self.beta_fast)?;
        write!(f, ", beta slow {}", self.beta_slow)?;
        match &self.ramp.origin {
            Origin::Default => Ok(()),
            origin => write!(f, ", ramp {} ({origin})", self.ramp.value.name()),
        }
    }
}

/// Returns m(s) = 1 + 0.1 · weight · ln s for the factor s, and 1 for factors up to 1.
fn magnitude(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 1.0 + 0.1 * weight * factor.ln() }
}
