//! Top-a (by BlinkDL, <https://github.com/BlinkDL/RWKV-LM>): keeps tokens with a probability of at
//! least a share of the square of the largest.

use super::{SamplerSetting, StageKind, candidates::Candidates, setting::Range, stage::Stage};

/// The share of the square of the largest probability; 0 keeps all tokens.
pub static TOP_A: SamplerSetting =
    SamplerSetting::new("top_a", 0.0, Range::SHARE, "Drop tokens below N x top^2; 0: off").details(
        "Drops tokens with a probability below N times the square of the largest: few of them if \
         the model is uncertain, nearly all others if it is certain.",
    );

pub(super) static SAMPLER: StageKind = StageKind {
    name: "top_a",
    other_names: &["top-a", "topa"],
    letter: 'a',
    settings: &[&TOP_A],
    stage: |settings| {
        let share = TOP_A.real(&settings.values);
        if share > 0.0 { Some(Box::new(TopA(share))) } else { None }
    },
};

#[derive(Debug)]
struct TopA(f32);

impl Stage for TopA {
    fn apply(&mut self, candidates: &mut Candidates, _uniform: &mut dyn FnMut() -> f64) {
        candidates.softmax();
        let largest = candidates.as_slice().iter().map(|c| c.probability).fold(0.0, f32::max);
        let least = self.0 * largest * largest;
        candidates.retain(|c| c.probability >= least);
    }
}
