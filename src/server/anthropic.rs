//! Anthropic's interface.

mod blocks;
mod client_tools;
mod messages;
pub mod request;
mod tools;

use std::sync::Arc;

use axum::{Router, routing::post};
use serde_json::{Value, json};

use super::{app::Server, error::ApiError};

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
    json!({ "type": "error", "error": { "type": kind, "message": error.message } })
}
