//! The stages of the sampler chain.

use super::{
    Settings, StageKind, candidates::Candidates, dry::Dry, penalties::Penalties,
    temperature::Temperature, truncation,
};
use crate::Token;

/// A stage that has an effect, with its state.
#[derive(Debug)]
pub(super) enum Stage {
    Penalties(Penalties),
    Dry(Dry),
    TopNSigma(f32),
    TopK(usize),
    TypicalP(f32),
    TopP(f32),
    MinP(f32),
    Xtc { probability: f32, threshold: f32 },
    Temperature(Temperature),
}

/// A stage that changes the logits of a few tokens.
pub(super) trait AdjustLogits {
    /// Returns the tokens whose logits change, each once.
    fn tokens(&self) -> impl Iterator<Item = Token>;

    /// Returns the changed logit of a token.
    fn adjust(&self, token: Token, logit: f32) -> f32;

    /// Changes the logits of a whole vocabulary.
    fn adjust_all(&self, logits: &mut [f32]) {
        for token in self.tokens() {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit = self.adjust(token, *logit);
            }
        }
    }
}

impl Stage {
    /// Creates a stage; `None` if it has no effect with these settings.
    pub fn new(kind: StageKind, settings: &Settings) -> Option<Self> {
        let share = |p: f32| Some(p).filter(|p| *p < 1.0);
        match kind {
            StageKind::Penalties => Penalties::new(settings).map(Self::Penalties),
            StageKind::Dry => Dry::new(settings).map(Self::Dry),
            StageKind::TopNSigma => {
                Some(settings.top_n_sigma).filter(|n| *n > 0.0).map(Self::TopNSigma)
            }
            StageKind::TopK => {
                usize::try_from(settings.top_k).ok().filter(|k| *k > 0).map(Self::TopK)
            }
            StageKind::TypicalP => share(settings.typical_p).map(Self::TypicalP),
            StageKind::TopP => share(settings.top_p).map(Self::TopP),
            StageKind::MinP => Some(settings.min_p).filter(|p| *p > 0.0).map(Self::MinP),
            StageKind::Xtc => {
                let Settings { xtc_probability: probability, xtc_threshold: threshold, .. } =
                    *settings;
                // At most one token has a probability above 0.5.
                (probability > 0.0 && threshold <= 0.5)
                    .then_some(Self::Xtc { probability, threshold })
            }
            StageKind::Temperature => Temperature::new(settings).map(Self::Temperature),
        }
    }

    /// Adds a token of the text.
    pub fn accept(&mut self, token: Token) {
        match self {
            Self::Penalties(penalties) => penalties.accept(token),
            Self::Dry(dry) => dry.accept(token),
            _ => {}
        }
    }

    /// Removes all tokens of the text.
    pub fn forget(&mut self) {
        match self {
            Self::Penalties(penalties) => penalties.forget(),
            Self::Dry(dry) => dry.forget(),
            _ => {}
        }
    }

    /// Changes the logits of a vocabulary, if the stage [only adjusts
    /// logits](Self::only_adjusts_logits).
    pub fn adjust(&mut self, logits: &mut [f32]) {
        match self {
            Self::Penalties(penalties) => penalties.adjust_all(logits),
            Self::Dry(dry) => dry.look_back().adjust_all(logits),
            _ => {}
        }
    }

    /// Returns whether the stage only changes the logits of tokens.
    pub fn only_adjusts_logits(&self) -> bool {
        matches!(self, Self::Penalties(_) | Self::Dry(_))
    }

    /// Narrows or changes the candidates left by the previous stages. `uniform` draws a number from
    /// 0 to 1.
    pub fn apply(&mut self, candidates: &mut Candidates, uniform: impl FnOnce() -> f64) {
        match self {
            Self::Penalties(penalties) => candidates.adjust(penalties),
            Self::Dry(dry) => candidates.adjust(dry.look_back()),
            Self::TopNSigma(n) => truncation::top_n_sigma(candidates, *n),
            Self::TopK(k) => candidates.keep_best(*k),
            Self::TypicalP(p) => truncation::typical_p(candidates, *p),
            Self::TopP(p) => truncation::top_p(candidates, *p),
            Self::MinP(p) => truncation::min_p(candidates, *p),
            Self::Xtc { probability, threshold } => {
                if uniform() < f64::from(*probability) {
                    truncation::exclude_top(candidates, *threshold);
                }
            }
            Self::Temperature(temperature) => temperature.apply(candidates),
        }
    }
}
