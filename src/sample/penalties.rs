//! Penalties on tokens that occurred among the last ones.

use std::collections::VecDeque;

use super::Settings;
use crate::Token;

/// The last tokens, and how often each of them occurs.
#[derive(Debug)]
pub(super) struct Penalties {
    last_n: usize,
    repeat: f32,
    presence: f32,
    frequency: f32,
    recent: VecDeque<Token>,
    counts: Vec<u32>, // by token, as long as the largest seen
}

impl Penalties {
    pub fn new(settings: &Settings) -> Self {
        let Settings { repeat_penalty, presence_penalty, frequency_penalty, .. } = *settings;
        let off = repeat_penalty == 1.0 && presence_penalty == 0.0 && frequency_penalty == 0.0;
        Penalties {
            last_n: if off { 0 } else { settings.repeat_last_n },
            repeat: repeat_penalty,
            presence: presence_penalty,
            frequency: frequency_penalty,
            recent: VecDeque::new(),
            counts: Vec::new(),
        }
    }

    pub fn accept(&mut self, token: Token) {
        if self.last_n == 0 {
            return;
        }
        if self.recent.len() == self.last_n
            && let Some(oldest) = self.recent.pop_front()
        {
            self.counts[oldest as usize] -= 1;
        }
        self.recent.push_back(token);
        let index = token as usize;
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
    }

    pub fn forget(&mut self) {
        self.recent.clear();
        self.counts.fill(0);
    }

    /// The logit of a token after penalties.
    pub fn apply(&self, token: usize, logit: f32) -> f32 {
        match self.counts.get(token) {
            None | Some(0) => logit,
            Some(&count) => {
                // Dividing a negative logit would make it likelier.
                let repeated = if logit <= 0.0 { logit * self.repeat } else { logit / self.repeat };
                repeated - (count as f32 * self.frequency + self.presence)
            }
        }
    }
}
