//! Chooses the number of tokens in a step, so that answers continue while prompts are processed.

use std::time::Duration;

/// Minimum prompt tokens in a step.
const LEAST: usize = 16;

/// Chooses the number of tokens in a step from the times of earlier steps.
pub struct Pace {
    step_max: Duration,
    micro_batch: usize,
    /// Seconds per prompt token, averaged over recent steps.
    token: Option<f64>,
}

impl Pace {
    /// Creates a pace for steps of at most `step_max` while answers are generated, and of at most
    /// `micro_batch` tokens.
    pub fn new(step_max: Duration, micro_batch: usize) -> Self {
        Pace { step_max, micro_batch, token: None }
    }

    /// Returns the number of tokens in the next step, including `answers` tokens of answers. If
    /// `others` compute as well, they wait for the step as answers do.
    pub fn step_tokens(&self, answers: usize, others: bool) -> usize {
        let short = answers > 0 || others;
        match self.token {
            Some(token) if short => {
                let tokens = (self.step_max.as_secs_f64() / token) as usize;
                answers + tokens.clamp(LEAST, self.micro_batch)
            }
            None if short => answers + LEAST,
            _ => self.micro_batch,
        }
    }

    /// Records the time of a step with `tokens` tokens, including `answers` tokens of answers.
    pub fn observe(&mut self, tokens: usize, answers: usize, time: Duration) {
        let prompt = tokens.saturating_sub(answers);
        if prompt >= LEAST {
            let now = time.as_secs_f64() / prompt as f64;
            self.token = Some(self.token.map_or(now, |before| 0.5 * (before + now)));
        }
    }
}
