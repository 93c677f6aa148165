//! The temperature: fixed, or dynamic by the entropy of the distribution.

use super::{SamplerSetting, StageKind, candidates::Candidates, setting::Range, stage::Stage};

/// The temperature: flattens the distribution above 1, sharpens it below; 0 is greedy.
pub static TEMPERATURE: SamplerSetting =
    SamplerSetting::new("temp", 0.8, Range::NOT_NEGATIVE, "Temperature; 0: greedy")
        .aliases(&["temperature"])
        .llama_cpp(&["LLAMA_ARG_TEMPERATURE"])
        .key("temp");

/// The range of the temperature, up or down with the entropy; 0 or less for a fixed one.
pub static DYNAMIC_RANGE: SamplerSetting =
    SamplerSetting::new("dynatemp_range", 0.0, Range::FINITE, "Dynamic temperature range; 0: off")
        .details(
            "The temperature varies by up to N around `temp`: lower when the model is certain, \
             higher when it is not.",
        )
        .no_effect(|values| (DYNAMIC_RANGE.real(values) < 0.0).then_some("below 0"));

/// The exponent of the entropy, as a share of the largest possible, in the dynamic temperature.
pub static DYNAMIC_EXPONENT: SamplerSetting =
    SamplerSetting::new("dynatemp_exp", 1.0, Range::FINITE, "Dynamic temperature exponent")
        .details("The power of the entropy that the temperature follows.")
        .rare()
        .no_effect(|values| {
            (DYNAMIC_RANGE.real(values) <= 0.0).then_some("without `dynatemp_range`")
        });

pub(super) static SAMPLER: StageKind = StageKind {
    name: "temperature",
    other_names: &["temp"],
    letter: 't',
    settings: &[&TEMPERATURE, &DYNAMIC_RANGE, &DYNAMIC_EXPONENT],
    stage: |settings| {
        let value = TEMPERATURE.real(&settings.values);
        let range = DYNAMIC_RANGE.real(&settings.values);
        let exponent = DYNAMIC_EXPONENT.real(&settings.values);
        match value != 1.0 || range > 0.0 {
            true => Some(Box::new(Temperature { value, range, exponent })),
            false => None,
        }
    },
};

#[derive(Debug)]
pub(super) struct Temperature {
    value: f32,
    /// If above 0, the temperature varies within `value` plus or minus this range.
    range: f32,
    /// The exponent of the entropy, as a share of the largest possible, for a varying temperature.
    exponent: f32,
}

impl Temperature {
    /// Creates a stage with a fixed temperature.
    pub fn fixed(value: f32) -> Self {
        Self { value, range: 0.0, exponent: 1.0 }
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

impl Stage for Temperature {
    /// Divides the logits by the temperature. At 0 or below, keeps only the most likely token.
    fn apply(&mut self, candidates: &mut Candidates, _uniform: &mut dyn FnMut() -> f64) {
        let temperature = if self.range > 0.0 { self.dynamic(candidates) } else { self.value };
        if temperature <= 0.0 {
            candidates.keep_best(1);
        } else {
            candidates.divide(temperature);
        }
    }
}
