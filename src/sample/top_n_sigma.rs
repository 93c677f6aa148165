//! Top-n-sigma (arXiv:2411.07641): keeps logits within a number of standard deviations of the
//! largest.

use super::{SamplerSetting, StageKind, candidates::Candidates, setting::Range, stage::Stage};

/// The number of standard deviations; 0 or less keeps all tokens.
pub static TOP_N_SIGMA: SamplerSetting =
    SamplerSetting::new("top_n_sigma", -1.0, Range::FINITE, "Keep logits N sigmas from the top")
        .aliases(&["top_nsigma"])
        .details(
            "Keeps tokens with a logit within N standard deviations of the largest one; 0 or less \
             keeps all.",
        );

pub(super) static SAMPLER: StageKind = StageKind {
    name: "top_n_sigma",
    other_names: &["top-n-sigma", "topnsigma"],
    letter: 's',
    settings: &[&TOP_N_SIGMA],
    stage: |settings| {
        let n = TOP_N_SIGMA.real(&settings.values);
        if n > 0.0 { Some(Box::new(TopNSigma(n))) } else { None }
    },
};

#[derive(Debug)]
struct TopNSigma(f32);

impl Stage for TopNSigma {
    fn apply(&mut self, candidates: &mut Candidates, _uniform: &mut dyn FnMut() -> f64) {
        let len = candidates.as_slice().len() as f32;
        let sum_of = |f: &dyn Fn(f32) -> f32| -> f32 {
            candidates.as_slice().iter().map(|c| f(c.logit)).sum()
        };
        let mean = sum_of(&|logit| logit) / len;
        let deviation = (sum_of(&|logit| (logit - mean) * (logit - mean)) / len).sqrt();
        let least = candidates.largest_logit() - self.0 * deviation;
        candidates.retain(|c| c.logit >= least);
    }
}
