//! OpenAI's interface.

mod chat;
mod completions;
mod models;
mod responses;
pub mod tools;

use std::sync::Arc;

use axum::{
    Router,
    routing::{get, post},
};

use super::app::Server;

/// Returns the routes.
pub fn routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/v1/models", get(models::models))
        .route("/models", get(models::models))
        .route("/v1/models/{id}", get(models::model))
        .route("/models/{id}", get(models::model))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/chat/completions", post(chat::chat))
        .route("/chat/completions", post(chat::chat))
        .route("/v1/chat/completions/input_tokens", post(chat::input_tokens))
        .route("/chat/completions/input_tokens", post(chat::input_tokens))
        .route("/v1/responses", post(responses::responses))
        .route("/responses", post(responses::responses))
        .route("/v1/responses/input_tokens", post(responses::input_tokens))
        .route("/responses/input_tokens", post(responses::input_tokens))
}
