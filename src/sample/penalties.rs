//! Penalties for tokens that occurred recently.

use std::collections::{HashMap, VecDeque};

use super::{Settings, clamp_finite, stage::AdjustLogits};
use crate::Token;

/// The last tokens with their numbers of occurrences.
#[derive(Debug)]
pub(super) struct Penalties {
    last_n: usize,
    repeat: f32,
    presence: f32,
    frequency: f32,
    recent: VecDeque<Token>,
    counts: HashMap<Token, u32>,
}

impl Penalties {
    /// Creates the stage; `None` if the settings penalize nothing.
    pub fn new(settings: &Settings) -> Option<Self> {
        let Settings { repeat_penalty, presence_penalty, frequency_penalty, .. } = *settings;
        let off = repeat_penalty == 1.0 && presence_penalty == 0.0 && frequency_penalty == 0.0;
        (!off && settings.repeat_last_n > 0).then(|| Penalties {
            last_n: settings.repeat_last_n,
            repeat: repeat_penalty,
            presence: presence_penalty,
            frequency: frequency_penalty,
            recent: VecDeque::new(),
            counts: HashMap::new(),
        })
    }

    pub fn accept(&mut self, token: Token) {
        if self.recent.len() == self.last_n
            && let Some(oldest) = self.recent.pop_front()
            && let Some(count) = self.counts.get_mut(&oldest)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&oldest);
            }
        }
        self.recent.push_back(token);
        *self.counts.entry(token).or_default() += 1;
    }

    pub fn forget(&mut self) {
        self.recent.clear();
        self.counts.clear();
    }
}

impl AdjustLogits for Penalties {
    fn tokens(&self) -> impl Iterator<Item = Token> {
        self.counts.keys().copied()
    }

    fn adjust(&self, token: Token, logit: f32) -> f32 {
        let Some(&count) = self.counts.get(&token) else { return logit };
        // Dividing a negative logit would make it likelier.
        let repeated = if logit <= 0.0 { logit * self.repeat } else { logit / self.repeat };
        // Huge penalties of opposite signs could both be infinite, and their sum would be NaN.
        let subtracted = (count as f32 * self.frequency).clamp(f32::MIN, f32::MAX) + self.presence;
        clamp_finite(logit, repeated - subtracted.clamp(f32::MIN, f32::MAX))
    }
}
