//! `/rope`: the RoPE plan, with its numbers for a length. Not in llama-server.

use std::collections::HashMap;

use axum::{Json, extract::Query};
use rope_cpu::rope::Distance;
use serde_json::{Value, json};

use crate::server::{error::ApiError, models::Loaded};

/// Maximum tokens of a prompt that options are proposed for.
const PROMPT_MAX: usize = 1 << 30;

/// Number of distances in the answer.
const POINTS: usize = 129;

/// Answers `GET /rope?tokens=N`, by default for a full context. With `prompt=N`, it also proposes
/// options with which a prompt of N tokens fits.
pub async fn rope(
    Loaded(app): Loaded,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Value>, ApiError> {
    let plan = &app.plan;
    let tokens = match query.get("tokens") {
        None => app.context,
        Some(given) => {
            let tokens = given.parse().ok().filter(|tokens| (1..=app.context).contains(tokens));
            tokens.ok_or_else(|| {
                let range = format_args!("a whole number from 1 to {}, not {given:?}", app.context);
                ApiError::field("tokens", range)
            })?
        }
    };
    let prompt = match query.get("prompt") {
        None => None,
        Some(given) => Some(given.parse().ok().filter(|n| *n <= PROMPT_MAX).ok_or_else(|| {
            let range = format_args!("a whole number from 0 to {PROMPT_MAX}, not {given:?}");
            ApiError::field("prompt", range)
        })?),
    };
    let longer = prompt.map(|prompt| (app.longer)(prompt));
    let effect = plan.effect(tokens, POINTS);
    let [position, frequency] = plan.formulas();
    let distance = |distance: &Distance| json!([distance.tokens, distance.least, distance.most]);
    Ok(Json(json!({
        "plan": app.rope,
        "warnings": app.warnings,
        "method": plan.effective_scaling().name,
        "factor": plan.factor.value,
        "base": plan.base.value,
        "base_trained": plan.base_train.value,
        "context_trained": plan.context_train.value,
        "context_original": plan.original_context.value,
        "context": plan.context.value,
        "position_formula": position,
        "frequency_formula": frequency,
        "distance_formula": plan.method.as_ref().map(|method| method.distance_formula()),
        "attention_scale": effect.attention_scale,
        "depends_on_length": plan.policy.is_some(),
        "tokens": tokens,
        "prompt_options": longer.as_ref().map(|longer| &longer.options),
        "prompt_options_text": longer.as_ref().map(|longer| &longer.text),
        "trained_wavelengths": effect.trained_wavelengths,
        "wavelengths": effect.wavelengths,
        "distances": effect.distances.iter().map(distance).collect::<Vec<_>>(),
    })))
}
