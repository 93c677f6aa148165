//! One step of the chain.

use super::{
    Kind, Settings, candidates::Candidates, dry::Dry, penalties::Penalties,
    temperature::Temperature, truncation,
};
use crate::Token;

/// A sampler that has an effect, with what it remembers.
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

/// A sampler that changes the logits of a few tokens.
pub(super) trait Adjust {
    /// The tokens, each once.
    fn tokens(&self) -> impl Iterator<Item = Token>;

    /// The logit that a token has after it.
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
    /// `None` if the settings leave it without effect.
    pub fn new(kind: Kind, settings: &Settings) -> Option<Self> {
        let share = |p: f32| Some(p).filter(|p| *p < 1.0);
        match kind {
            Kind::Penalties => Penalties::new(settings).map(Self::Penalties),
            Kind::Dry => Dry::new(settings).map(Self::Dry),
            Kind::TopNSigma => Some(settings.top_n_sigma).filter(|n| *n > 0.0).map(Self::TopNSigma),
            Kind::TopK => usize::try_from(settings.top_k).ok().filter(|k| *k > 0).map(Self::TopK),
            Kind::TypicalP => share(settings.typical_p).map(Self::TypicalP),
            Kind::TopP => share(settings.top_p).map(Self::TopP),
            Kind::MinP => Some(settings.min_p).filter(|p| *p > 0.0).map(Self::MinP),
            Kind::Xtc => {
                let Settings { xtc_probability: probability, xtc_threshold: threshold, .. } =
                    *settings;
                // Above a half, no two tokens can be so likely.
                (probability > 0.0 && threshold <= 0.5)
                    .then_some(Self::Xtc { probability, threshold })
            }
            Kind::Temperature => Temperature::new(settings).map(Self::Temperature),
        }
    }

    /// Tells it of a token of the text.
    pub fn accept(&mut self, token: Token) {
        match self {
            Self::Penalties(penalties) => penalties.accept(token),
            Self::Dry(dry) => dry.accept(token),
            _ => {}
        }
    }

    /// Makes it forget the text.
    pub fn forget(&mut self) {
        match self {
            Self::Penalties(penalties) => penalties.forget(),
            Self::Dry(dry) => dry.forget(),
            _ => {}
        }
    }

    /// Changes the logits of a vocabulary, if it is one that does.
    pub fn adjust(&mut self, logits: &mut [f32]) {
        match self {
            Self::Penalties(penalties) => penalties.adjust_all(logits),
            Self::Dry(dry) => dry.look_back().adjust_all(logits),
            _ => {}
        }
    }

    /// Whether it does nothing but change the logits of tokens.
    pub fn adjusts(&self) -> bool {
        matches!(self, Self::Penalties(_) | Self::Dry(_))
    }

    /// Narrows or changes what the stages before it have left. `uniform` draws a number from 0 to 1.
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
