//! Timings and token counts in the forms of llama-server and OpenAI.

use std::time::Duration;

use rope_cpu::{Token, batch::Reading, generate::Timings};
use serde_json::{Value, json};

crate::object! {
    /// Options for progress and timings in a stream.
    pub struct Streamed {
        /// Whether a stream reports the progress of prompt processing.
        return_progress: Option<bool>,
        /// Whether each part of a stream has timings.
        timings_per_token: Option<bool>,
    }
}

impl Streamed {
    /// Returns whether a stream reports the progress of prompt processing.
    pub fn progress(&self) -> bool {
        self.return_progress.unwrap_or(false)
    }

    /// Returns whether each part of a stream has timings.
    pub fn timings(&self) -> bool {
        self.timings_per_token.unwrap_or(false)
    }
}

/// Returns llama-server's `timings`.
pub fn timings(timings: &Timings) -> Value {
    let Timings { reused, omitted, read, reading, generated, .. } = *timings;
    let Timings { drafted, accepted, generating, .. } = *timings;
    // The prompt's last step already produces the first token.
    let later = generated.saturating_sub(1);
    let mut timings = json!({
        "cache_n": reused,
        "prompt_n": read,
        "prompt_ms": milliseconds(reading),
        "prompt_per_token_ms": per_token(reading, read),
        "prompt_per_second": per_second(reading, read),
        "predicted_n": generated,
        "predicted_ms": milliseconds(generating),
        "predicted_per_token_ms": per_token(generating, later),
        "predicted_per_second": per_second(generating, later),
    });
    if omitted > 0 {
        timings["omitted_n"] = omitted.into();
    }
    if drafted > 0 {
        timings["draft_n"] = drafted.into();
        timings["draft_n_accepted"] = accepted.into();
    }
    timings
}

/// Returns the timings during prompt processing.
pub fn while_reading(progress: &Reading) -> Timings {
    let read = progress.processed.saturating_sub(progress.cached);
    let reading = if read == 0 { Duration::ZERO } else { progress.elapsed };
    Timings { reused: progress.cached, read, reading, ..Timings::default() }
}

/// Returns llama-server's `prompt_progress`.
pub fn progress(reading: &Reading) -> Value {
    json!({
        "total": reading.total,
        "cache": reading.cached,
        "processed": reading.processed,
        "time_ms": reading.elapsed.as_millis() as u64,
    })
}

/// Counts the tokens of a request. A prompt and its cached tokens count once, even if it has
/// several answers.
#[derive(Clone, Debug)]
pub struct Usage {
    prompt: usize,
    /// The number of answers to each prompt.
    copies: usize,
    /// Minimum number of reused tokens over the answers to each prompt. Later answers also reuse
    /// tokens that the first one computed.
    cached: Vec<Option<usize>>,
    generated: usize,
}

impl Usage {
    /// Starts to count for the prompts of all answers. Each `copies` consecutive answers share a
    /// prompt.
    pub fn new(prompts: &[Vec<Token>], copies: usize) -> Self {
        let different = prompts.iter().step_by(copies);
        let prompt = different.clone().map(Vec::len).sum();
        Usage { prompt, copies, cached: vec![None; different.len()], generated: 0 }
    }

    /// Adds a finished answer.
    pub fn add(&mut self, index: usize, timings: &Timings) {
        self.generated += timings.generated;
        let cached = &mut self.cached[index / self.copies];
        *cached = Some(cached.map_or(timings.reused, |before| before.min(timings.reused)));
    }

    /// Returns OpenAI's `usage`.
    pub fn to_json(&self) -> Value {
        json!({
            "completion_tokens": self.generated,
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + self.generated,
            "prompt_tokens_details": { "cached_tokens": self.cached.iter().flatten().sum::<usize>() },
        })
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn per_token(time: Duration, tokens: usize) -> f64 {
    if tokens == 0 { 0.0 } else { milliseconds(time) / tokens as f64 }
}

fn per_second(time: Duration, tokens: usize) -> f64 {
    if time.is_zero() { 0.0 } else { tokens as f64 / time.as_secs_f64() }
}
