//! OpenAI's interface.

pub mod chat;
pub mod completions;
mod legacy_logprobs;
mod message;
mod models;
pub mod responses;
pub mod tools;

use std::sync::Arc;

use axum::{
    Router,
    routing::{get, post},
};

use serde_json::{Value, json};

use super::{error::ApiError, state::Server};

/// Returns the routes of requests to a model.
pub fn routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/v1/completions", post(completions::completions))
        .route("/v1/chat/completions", post(chat::chat))
        .route("/chat/completions", post(chat::chat))
        .route("/v1/chat/completions/input_tokens", post(chat::input_tokens))
        .route("/chat/completions/input_tokens", post(chat::input_tokens))
        .route("/v1/responses", post(responses::responses))
        .route("/responses", post(responses::responses))
        .route("/v1/responses/{id}", get(responses::stored).delete(responses::stored))
        .route("/v1/responses/input_tokens", post(responses::input_tokens))
        .route("/responses/input_tokens", post(responses::input_tokens))
}

/// Returns the routes about models.
pub fn model_routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/v1/models", get(models::models))
        .route("/models", get(models::models))
        .route("/v1/models/{*id}", get(models::model))
        .route("/models/{*id}", get(models::model))
        .route("/api/v0/models", get(models::lm_studio))
        .route("/api/v0/models/{*id}", get(models::one_of_lm_studio))
}

/// Returns an error in OpenAI's form, with llama-server's types and fields about the context.
pub fn error(error: &ApiError) -> Value {
    let code = match error.kind {
        "authentication_error" => "invalid_api_key".into(),
        "exceed_context_size_error" => "context_length_exceeded".into(),
        "rate_limit_error" => "rate_limit_exceeded".into(),
        _ => Value::Null,
    };
    let mut body = error.to_json();
    body["error"]["code"] = code;
    body["error"]["param"] = json!(error.field);
    body
}
