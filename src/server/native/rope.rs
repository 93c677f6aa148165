//! `/rope`: the RoPE plan, with its numbers for a length. Not in llama-server.

use std::collections::HashMap;

use axum::{Json, extract::Query};
use rope_cpu::rope::Distance;
use serde_json::{Value, json};

use crate::server::{app::Loaded, error::ApiError};

/// Number of distances in the answer.
const POINTS: usize = 129;

/// Answers `GET /rope?tokens=N`, by default for a full context.
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
        "trained_wavelengths": effect.trained_wavelengths,
        "wavelengths": effect.wavelengths,
        "distances": effect.distances.iter().map(distance).collect::<Vec<_>>(),
    })))
}
