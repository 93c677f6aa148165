//! The stages of the sampler chain.

use std::fmt;

use super::{SamplerSetting, Settings, candidates::Candidates};
use crate::Token;

/// A sampler: its names, its settings, and a constructor of its stage.
pub struct StageKind {
    /// The name.
    pub name: &'static str,
    /// The other names that are accepted.
    pub other_names: &'static [&'static str],
    /// The letter in a sequence of letters.
    pub letter: char,
    /// The settings.
    pub settings: &'static [&'static SamplerSetting],
    /// Creates the stage; `None` if it has no effect with these settings.
    pub(super) stage: fn(&Settings) -> Option<Box<dyn Stage>>,
}

/// Compares the names.
impl PartialEq for StageKind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for StageKind {}

/// Formats the name.
impl fmt::Debug for StageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A stage of a chain, with its state.
pub(super) trait Stage: fmt::Debug + Send + Sync {
    /// Changes or removes candidates. `uniform` draws a number from 0 to 1.
    fn apply(&mut self, candidates: &mut Candidates, uniform: &mut dyn FnMut() -> f64);

    /// Adds a token to the text.
    fn accept(&mut self, _token: Token) {}

    /// Returns whether the stage only changes the logits of tokens.
    fn only_adjusts_logits(&self) -> bool {
        false
    }

    /// Changes the logits of a vocabulary, if the stage [only adjusts
    /// logits](Self::only_adjusts_logits).
    fn adjust(&mut self, _logits: &mut [f32]) {}

    /// Returns the number of likeliest tokens that the stage keeps, if it does nothing else.
    fn only_keeps(&self) -> Option<usize> {
        None
    }
}

/// A stage that changes the logits of a few tokens.
pub(super) trait AdjustLogits {
    /// Returns each token with a changed logit once.
    fn tokens(&self) -> impl Iterator<Item = Token>;

    /// Returns the changed logit of a token.
    fn adjusted(&self, token: Token, logit: f32) -> f32;

    /// Changes the logits of a whole vocabulary.
    fn adjust_all(&self, logits: &mut [f32]) {
        for token in self.tokens() {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit = self.adjusted(token, *logit);
            }
        }
    }
}
