//! XTC ("exclude top choices", by p-e-w, oobabooga/text-generation-webui#6335): with a given
//! probability, drops all likely tokens but the last one.

use super::{SamplerSetting, StageKind, candidates::Candidates, setting::Range, stage::Stage};

/// The probability that the threshold is applied; 0 for never.
pub static PROBABILITY: SamplerSetting = SamplerSetting::new(
    "xtc_probability",
    0.0,
    Range::SHARE,
    "XTC probability; 0: off",
)
.details(
    "The probability with which XTC drops all tokens of at least `xtc_threshold` except the \
             least likely of them.",
)
.key("xtc_probability")
.no_effect(|values| {
    let off = THRESHOLD.real(values) > 0.5 && PROBABILITY.real(values) > 0.0;
    off.then_some("if `xtc_threshold` is above 0.5")
});

/// Tokens of at least this probability are likely ones. Above 0.5 there is no effect, since at most
/// one token has such a probability.
pub static THRESHOLD: SamplerSetting = SamplerSetting::new(
    "xtc_threshold",
    0.1,
    Range::SHARE,
    "XTC: probability from which tokens are dropped",
)
.details("Above 0.5, no token is dropped.")
.rare()
.key("xtc_threshold")
.no_effect(|values| (PROBABILITY.real(values) <= 0.0).then_some("without `xtc_probability`"));

pub(super) static SAMPLER: StageKind = StageKind {
    name: "xtc",
    other_names: &[],
    letter: 'x',
    settings: &[&PROBABILITY, &THRESHOLD],
    stage: |settings| {
        let probability = PROBABILITY.real(&settings.values);
        let threshold = THRESHOLD.real(&settings.values);
        match probability > 0.0 && threshold <= 0.5 {
            true => Some(Box::new(Xtc { probability, threshold })),
            false => None,
        }
    },
};

#[derive(Debug)]
struct Xtc {
    probability: f32,
    threshold: f32,
}

impl Stage for Xtc {
    fn apply(&mut self, candidates: &mut Candidates, uniform: &mut dyn FnMut() -> f64) {
        if uniform() >= f64::from(self.probability) {
            return;
        }
        candidates.softmax();
        candidates.sort(candidates.as_slice().len());
        let likely = candidates.as_slice().iter().take_while(|c| c.probability >= self.threshold);
        let likely = likely.count();
        candidates.drop_first(likely.saturating_sub(1));
    }
}
