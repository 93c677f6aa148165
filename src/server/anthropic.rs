//! Anthropic's interface.

mod blocks;
mod client_tools;
mod messages;
pub mod request;
mod tools;

use std::sync::Arc;

use axum::{Router, routing::post};
use serde_json::{Value, json};

use super::{error::ApiError, state::Server};

/// Returns the routes.
pub fn routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/v1/messages", post(messages::messages))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
}

/// Returns an error in Anthropic's form.
pub fn error(error: &ApiError) -> Value {
    let kind = match error.kind {
        "authentication_error" | "permission_error" | "not_found_error" | "rate_limit_error" => {
            error.kind
        }
        "unavailable_error" => "overloaded_error",
        "server_error" => "api_error",
        _ => "invalid_request_error",
    };
    let message = match &error.details[..] {
        // Clients look for these words to shorten a conversation.
        [("n_prompt_tokens", tokens), ("n_ctx", most)] => {
            format!("prompt is too long: {tokens} tokens > {most} maximum; {}", error.message)
        }
        _ => error.message.clone(),
    };
    json!({ "type": "error", "error": { "type": kind, "message": message } })
}
