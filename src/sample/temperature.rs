//! The temperature, fixed or dependent on the entropy of the distribution.

use super::{Settings, candidates::Candidates};

#[derive(Debug)]
pub(super) struct Temperature {
    value: f32,
    /// If above 0, the temperature varies within `value` plus or minus this range.
    range: f32,
    /// The exponent of the entropy, as a share of the largest possible, for a varying temperature.
    exponent: f32,
}

impl Temperature {
    /// Creates the stage; `None` if the settings leave logits unchanged.
    pub fn new(settings: &Settings) -> Option<Self> {
        let Settings { temperature, dynatemp_range, dynatemp_exponent, .. } = *settings;
        (temperature != 1.0 || dynatemp_range > 0.0).then_some(Self {
            value: temperature,
            range: dynatemp_range,
            exponent: dynatemp_exponent,
        })
    }

    /// Creates a stage with a fixed temperature.
    pub fn fixed(value: f32) -> Self {
        Self { value, range: 0.0, exponent: 1.0 }
    }

    /// Divides the logits by the temperature; at 0 or below, only the likeliest token is kept.
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
