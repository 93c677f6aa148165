//! Top-k: keeps a number of the likeliest tokens.

use super::{SamplerSetting, StageKind, candidates::Candidates, setting::Range, stage::Stage};

/// The number of tokens that are kept; 0 or less keeps all.
pub static TOP_K: SamplerSetting =
    SamplerSetting::new("top_k", 40.0, Range::WHOLE, "Keep N most likely tokens; 0: all")
        .llama_cpp(&["LLAMA_ARG_TOP_K"])
        .key("top_k");

pub(super) static SAMPLER: StageKind = StageKind {
    name: "top_k",
    other_names: &["top-k", "topk"],
    letter: 'k',
    settings: &[&TOP_K],
    stage: |settings| {
        let k = TOP_K.count(&settings.values);
        if k > 0 { Some(Box::new(TopK(k))) } else { None }
    },
};

#[derive(Debug)]
struct TopK(usize);

impl Stage for TopK {
    fn apply(&mut self, candidates: &mut Candidates, _uniform: &mut dyn FnMut() -> f64) {
        candidates.keep_best(self.0);
    }

    fn only_keeps(&self) -> Option<usize> {
        Some(self.0)
    }
}
