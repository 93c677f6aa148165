//! Timings and token counts in the forms of llama-server and OpenAI.

use std::time::Duration;

use rope_cpu::generate::Timings;
use serde_json::{Value, json};

use super::job::Reading;

/// Returns llama-server's `timings`.
pub fn timings(timings: &Timings) -> Value {
    let Timings { reused, read, reading, generated, drafted, accepted, generating, .. } = *timings;
    // The first token follows from the prompt, without a step of its own.
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
    if drafted > 0 {
        timings["draft_n"] = drafted.into();
        timings["draft_n_accepted"] = accepted.into();
    }
    timings
}

/// Returns the timings while a prompt is being read.
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

/// Returns OpenAI's `usage` of a prompt and its answers.
pub fn usage(prompt: usize, cached: usize, generated: usize) -> Value {
    json!({
        "completion_tokens": generated,
        "prompt_tokens": prompt,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": { "cached_tokens": cached },
    })
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
