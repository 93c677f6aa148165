//! The number of tokens of a step, so that answers go on while prompts are read.

use std::time::Duration;

/// The fewest tokens of a prompt that are read in a step.
const LEAST: usize = 16;

/// Chooses the number of tokens of steps by the times of earlier ones.
pub struct Pace {
    step_max: Duration,
    micro_batch: usize,
    /// The time for a token of a prompt in seconds, averaged over recent steps.
    token: Option<f64>,
}

impl Pace {
    /// Creates a pace by which steps take at most `step_max` while answers are generated, and have at
    /// most `micro_batch` tokens.
    pub fn new(step_max: Duration, micro_batch: usize) -> Self {
        Pace { step_max, micro_batch, token: None }
    }

    /// Returns the number of tokens of the next step, of which `answers` are those of answers.
    pub fn step_tokens(&self, answers: usize) -> usize {
        match self.token {
            Some(token) if answers > 0 => {
                let tokens = (self.step_max.as_secs_f64() / token) as usize;
                answers + tokens.clamp(LEAST, self.micro_batch)
            }
            None if answers > 0 => answers + LEAST,
            _ => self.micro_batch,
        }
    }

    /// Records the time of a step of `tokens` tokens, of which `answers` are those of answers.
    pub fn observe(&mut self, tokens: usize, answers: usize, time: Duration) {
        let prompt = tokens.saturating_sub(answers);
        if prompt >= LEAST {
            let now = time.as_secs_f64() / prompt as f64;
            self.token = Some(self.token.map_or(now, |before| 0.5 * (before + now)));
        }
    }
}
