//! Mirostat (Basu et al. 2021, arXiv:2007.14966): keeps the surprise of the tokens, in bits, near a
//! target by moving a bound after each draw.

use super::{
    SamplerSetting, Settings, candidates::Candidates, setting::Range, temperature::TEMPERATURE,
};
use crate::settings::Values;

/// The version that replaces the chain, 1 or 2; 0 for none.
pub static VERSION: SamplerSetting = SamplerSetting::new(
    "mirostat",
    0.0,
    Range::Whole { least: 0, most: 2, expected: "a whole number from 0 to 2" },
    "Mirostat version 1 or 2; 0: off",
)
.details("Replaces all other samplers except the temperature.")
.key("mirostat");

/// The target surprise in bits, tau.
pub static TARGET: SamplerSetting = SamplerSetting::new(
    "mirostat_ent",
    5.0,
    Range::FINITE,
    "Mirostat: target entropy (tau) in bits",
)
.rare()
.key("mirostat_tau")
.no_effect(unless_on);

/// The learning rate, eta.
pub static RATE: SamplerSetting =
    SamplerSetting::new("mirostat_lr", 0.1, Range::FINITE, "Mirostat: learning rate (eta)")
        .rare()
        .key("mirostat_eta")
        .no_effect(unless_on);

/// The settings of Mirostat.
pub(super) static SETTINGS: [&SamplerSetting; 3] = [&VERSION, &TARGET, &RATE];

/// Returns whether Mirostat replaces the chain.
pub(super) fn is_on(values: &Values) -> bool {
    VERSION.whole(values) != 0
}

/// Returns whether a sampler's setting has an effect if Mirostat replaces the chain.
pub(super) fn uses(setting: &SamplerSetting) -> bool {
    setting.name() == TEMPERATURE.name()
}

fn unless_on(values: &Values) -> Option<&'static str> {
    (!is_on(values)).then_some("without `mirostat`")
}

/// The number of tokens from which version 1 estimates Zipf's exponent.
const ESTIMATED: usize = 100;

#[derive(Debug)]
pub(super) struct Mirostat {
    version: i64,
    /// The target surprise in bits, tau.
    target: f32,
    /// The learning rate, eta: how much of an error moves the bound.
    rate: f32,
    /// The bound of the surprise in bits, mu.
    bound: f32,
}

impl Mirostat {
    /// Creates the initial state; `None` if Mirostat is off.
    pub fn new(settings: &Settings) -> Option<Self> {
        let values = &settings.values;
        let (target, rate) = (TARGET.real(values), RATE.real(values));
        is_on(values).then(|| Self {
            version: VERSION.whole(values),
            target,
            rate,
            bound: 2.0 * target,
        })
    }

    /// Drops the candidates that are too unlikely; `vocabulary` is the number of tokens.
    pub fn truncate(&self, candidates: &mut Candidates, vocabulary: usize) {
        candidates.softmax();
        candidates.sort(candidates.as_slice().len());
        let kept = match self.version {
            1 => self.count_by_zipf(candidates, vocabulary),
            _ => {
                let list = candidates.as_slice().iter();
                list.take_while(|c| -c.probability.log2() <= self.bound).count()
            }
        };
        candidates.truncate(kept.max(1));
    }

    /// Returns the number of tokens of a Zipf distribution with the estimated exponent that stay
    /// below the bound (equations 27 and 30, and algorithm 1).
    fn count_by_zipf(&self, candidates: &Candidates, vocabulary: usize) -> usize {
        let (mut products, mut squares) = (0.0f32, 0.0f32);
        for (i, pair) in candidates.as_slice().windows(2).take(ESTIMATED - 1).enumerate() {
            let rank = ((i + 2) as f32 / (i + 1) as f32).ln();
            products += rank * (pair[0].probability / pair[1].probability).ln();
            squares += rank * rank;
        }
        let exponent = products / squares;
        let epsilon = exponent - 1.0;
        let share = epsilon * self.bound.exp2() / (1.0 - (vocabulary as f32).powf(-epsilon));
        // NaN, as for a single candidate, becomes 0.
        share.powf(exponent.recip()) as usize
    }

    /// Moves the bound after a token of this probability was drawn.
    pub fn observe(&mut self, probability: f32) {
        self.bound -= self.rate * (-probability.log2() - self.target);
    }
}
