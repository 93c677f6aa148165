//! `/metrics`: counters and gauges in the text format of Prometheus, under llama-server's names.

use std::{fmt::Write, sync::atomic::Ordering::Relaxed, time::Duration};

use axum::{
    http::{HeaderName, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};

use crate::server::{error::ApiError, models::Loaded};

/// Answers `GET /metrics`.
pub async fn metrics(Loaded(app): Loaded) -> Result<Response, ApiError> {
    if !app.options.listen.metrics {
        return Err(ApiError::unsupported("start the server with --metrics to see its metrics"));
    }
    let state = app.scheduler.status().state();
    let sum = &state.timings;
    let busy = state.slots.iter().filter(|slot| slot.busy).count();
    let rate = |tokens: usize, time: Duration| match time.as_secs_f64() {
        0.0 => 0.0,
        seconds => tokens as f64 / seconds,
    };
    let mut text = String::new();
    let mut metric = |kind: &str, name: &str, help: &str, value: f64| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    };
    for (name, help, value) in [
        ("prompt_tokens_total", "Prompt tokens processed.", sum.read as f64),
        ("prompt_tokens_cached_total", "Prompt tokens that were in the cache.", sum.reused as f64),
        ("prompt_seconds_total", "Seconds of prompt processing.", sum.reading.as_secs_f64()),
        ("tokens_predicted_total", "Tokens generated.", sum.generated as f64),
        ("tokens_predicted_seconds_total", "Seconds of generation.", sum.generating.as_secs_f64()),
        ("n_decode_total", "Steps of the model.", state.steps as f64),
        ("requests_total", "Answers that ended.", state.answers as f64),
        ("prefix_hits_total", "Answers with cached prompt tokens.", state.reusing as f64),
        ("n_tokens_max", "Most tokens of a sequence.", state.tokens_max as f64),
        ("spec_decode_num_draft_tokens_total", "Tokens drafted.", sum.drafted as f64),
        ("spec_decode_num_accepted_tokens_total", "Drafted tokens used.", sum.accepted as f64),
        ("spec_decode_num_drafts_total", "Steps with drafts.", sum.steps_with_drafts as f64),
    ] {
        metric("counter", &format!("llamacpp:{name}"), help, value);
    }
    for (name, help, value) in [
        ("prompt_tokens_seconds", "Prompt tokens per second.", rate(sum.read, sum.reading)),
        ("predicted_tokens_seconds", "Tokens per second.", rate(sum.generated, sum.generating)),
        ("requests_processing", "Requests in a slot.", busy as f64),
        (
            "requests_deferred",
            "Requests without a slot.",
            app.scheduler.status().waiting.load(Relaxed) as f64,
        ),
        (
            "n_busy_slots_per_decode",
            "Busy slots per step.",
            state.slot_steps as f64 / state.steps.max(1) as f64,
        ),
        ("requests_deferred_max", "Requests that may wait.", app.options.requests.max_queue as f64),
        ("slots", "Requests answered at a time.", state.slots.len() as f64),
        ("kv_cache_bytes", "Bytes of keys and values in use.", state.cache_bytes as f64),
        ("kv_pages", "Pages of keys and values in use.", state.pages as f64),
        ("kv_pages_max", "Pages of keys and values that memory permits.", state.pages_max as f64),
    ] {
        metric("gauge", &format!("llamacpp:{name}"), help, value);
    }
    let [first_token, next_token] = app.latency.times();
    first_token.write(
        "llamacpp:time_to_first_token_seconds",
        "Time from the arrival of a request to the first token of an answer.",
        &app.alias,
        &mut text,
    );
    next_token.write(
        "llamacpp:inter_token_seconds",
        "Time between two tokens of an answer.",
        &app.alias,
        &mut text,
    );
    let _ = writeln!(
        text,
        "# HELP llamacpp:build_info The version of rope-cpu.\n# TYPE llamacpp:build_info gauge\n\
         llamacpp:build_info{{version=\"{}\"}} 1",
        env!("CARGO_PKG_VERSION"),
    );
    let started = HeaderName::from_static("process-start-time-unix");
    let headers = [
        (CONTENT_TYPE, "text/plain; version=0.0.4".to_string()),
        (started, app.created().to_string()),
    ];
    Ok((headers, text).into_response())
}
