//! Temperature, fixed or by the entropy of the distribution.

use super::{Settings, candidates::Candidates};

#[derive(Debug)]
pub(super) struct Temperature {
    value: f32,
    /// Dynamic temperature, above 0: it lies within `value` plus or minus this,
    range: f32,
    /// by this power of the entropy, as a share of the largest possible.
    exponent: f32,
}

impl Temperature {
    /// `None` if the settings leave logits as they are.
    pub fn new(settings: &Settings) -> Option<Self> {
        let Settings { temperature, dynatemp_range, dynatemp_exponent, .. } = *settings;
        (temperature != 1.0 || dynatemp_range > 0.0).then_some(Self {
            value: temperature,
            range: dynatemp_range,
            exponent: dynatemp_exponent,
        })
    }

    /// One that is the same for every distribution.
    pub fn fixed(value: f32) -> Self {
        Self { value, range: 0.0, exponent: 1.0 }
    }

    /// Divides the logits; at 0 or below, the likeliest token alone is left.
    pub fn apply(&self, candidates: &mut Candidates) {
        let temperature = if self.range > 0.0 { self.dynamic(candidates) } else { self.value };
        if temperature <= 0.0 {
            candidates.keep_best(1);
        } else {
            candidates.divide(temperature);
        }
    }

    fn dynamic(&self, candidates: &mut Candidates) -> f32 {
        let len = candidates.as_slice().len();
        if len < 2 {
            return 1.0;
        }
        candidates.softmax();
        let possible = candidates.as_slice().iter().filter(|c| c.probability > 0.0);
        let entropy: f32 = possible.map(|c| -c.probability * c.probability.ln()).sum();
        let least = (self.value - self.range).max(0.0);
        let most = self.value + self.range;
        least + (most - least) * (entropy / (len as f32).ln()).powf(self.exponent)
    }
}
