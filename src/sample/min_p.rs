//! Min-p (arXiv:2407.01082): keeps tokens with at least a share of the largest probability.

use super::{SamplerSetting, StageKind, candidates::Candidates, setting::Range, stage::Stage};

/// Minimum share of the largest probability; 0 keeps all tokens.
pub static MIN_P: SamplerSetting =
    SamplerSetting::new("min_p", 0.05, Range::SHARE, "Drop tokens below N x top token")
        .details("Drops tokens that are less likely than N times the likeliest token; 0 keeps all.")
        .llama_cpp(&["LLAMA_ARG_MIN_P"])
        .key("min_p");

pub(super) static SAMPLER: StageKind = StageKind {
    name: "min_p",
    other_names: &["min-p", "minp"],
    letter: 'm',
    settings: &[&MIN_P],
    stage: |settings| {
        let p = MIN_P.real(&settings.values);
        if p > 0.0 { Some(Box::new(MinP(p))) } else { None }
    },
};

#[derive(Debug)]
struct MinP(f32);

impl Stage for MinP {
    fn apply(&mut self, candidates: &mut Candidates, _uniform: &mut dyn FnMut() -> f64) {
        let least = candidates.largest_logit() + self.0.ln();
        candidates.retain(|c| c.logit >= least);
    }
}
