//! Locally typical sampling (arXiv:2202.00666): keeps tokens of typical surprise.

use super::{
    SamplerSetting, StageKind,
    candidates::{Candidate, Candidates},
    setting::Range,
    stage::Stage,
};

/// The sum of probabilities that the kept tokens exceed; 1 keeps all tokens.
pub static TYPICAL_P: SamplerSetting =
    SamplerSetting::new("typical", 1.0, Range::SHARE, "Locally typical sampling; 1: off")
        .aliases(&["typical_p"])
        .details("Keeps the most typical tokens until their probabilities sum to N.");

pub(super) static SAMPLER: StageKind = StageKind {
    name: "typ_p",
    other_names: &["typ-p", "typp", "typ"],
    letter: 'y',
    settings: &[&TYPICAL_P],
    stage: |settings| {
        let p = TYPICAL_P.real(&settings.values);
        if p < 1.0 { Some(Box::new(TypicalP(p))) } else { None }
    },
};

#[derive(Debug)]
struct TypicalP(f32);

impl Stage for TypicalP {
    /// Keeps the tokens with a surprise, -ln p, nearest to the expected one (the entropy), until
    /// the sum of their probabilities exceeds p.
    fn apply(&mut self, candidates: &mut Candidates, _uniform: &mut dyn FnMut() -> f64) {
        candidates.softmax();
        let surprise = |c: &Candidate| -c.probability.ln();
        let list = candidates.as_slice();
        let possible = list.iter().filter(|c| c.probability > 0.0);
        let entropy: f32 = possible.map(|c| c.probability * surprise(c)).sum();
        candidates.sort_by_key(|c| (surprise(c) - entropy).abs());
        if let Some(kept) = candidates.prefix(candidates.as_slice().len(), |sum| sum > self.0) {
            candidates.truncate(kept);
        }
    }
}
