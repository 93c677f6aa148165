//! Top-p, nucleus sampling (arXiv:1904.09751): keeps the likeliest tokens up to a sum of
//! probabilities.

use super::{SamplerSetting, StageKind, candidates::Candidates, setting::Range, stage::Stage};

/// The sum of probabilities that is reached; 1 keeps all tokens.
pub static TOP_P: SamplerSetting =
    SamplerSetting::new("top_p", 0.95, Range::SHARE, "Keep top tokens that sum to N")
        .details("Keeps the likeliest tokens until their probabilities sum to N; 1 keeps all.")
        .llama_cpp(&["LLAMA_ARG_TOP_P"])
        .key("top_p");

pub(super) static SAMPLER: StageKind = StageKind {
    name: "top_p",
    other_names: &["top-p", "topp", "nucleus"],
    letter: 'p',
    settings: &[&TOP_P],
    stage: |settings| {
        let p = TOP_P.real(&settings.values);
        if p < 1.0 { Some(Box::new(TopP(p))) } else { None }
    },
};

#[derive(Debug)]
struct TopP(f32);

impl Stage for TopP {
    fn apply(&mut self, candidates: &mut Candidates, _uniform: &mut dyn FnMut() -> f64) {
        candidates.softmax();
        // The vocabulary is large and the nucleus small, so only the required prefix is sorted.
        let len = candidates.as_slice().len();
        let mut head = len.min(256);
        loop {
            candidates.sort(head);
            if let Some(kept) = candidates.prefix(head, |sum| sum >= self.0) {
                return candidates.truncate(kept);
            }
            if head == len {
                return;
            }
            head = len.min(head * 8);
        }
    }
}
