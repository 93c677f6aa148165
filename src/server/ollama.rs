//! Ollama's interface.

mod answer;
pub mod embed;
mod models;
pub mod request;

use std::sync::Arc;

use axum::{
    Json, Router,
    routing::{delete, get, post},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{app::Server, error::ApiError};

/// Version of ollama that this interface matches. Clients refuse older ones.
const VERSION: &str = "0.12.0";

/// Returns the routes.
pub fn routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/api/chat", post(answer::chat))
        .route("/api/generate", post(answer::generate))
        .route("/api/tags", get(models::tags))
        .route("/api/ps", get(models::running))
        .route("/api/show", post(models::show))
        .route("/api/embed", post(embed::texts))
        .route("/api/embeddings", post(embed::text))
        .route("/api/pull", post(one_model))
        .route("/api/push", post(one_model))
        .route("/api/create", post(one_model))
        .route("/api/copy", post(one_model))
        .route("/api/delete", delete(one_model).post(one_model))
        .route("/api/version", get(|| async { Json(json!({ "version": VERSION })) }))
}

/// Refuses requests to pull, push, create, copy or delete models.
async fn one_model() -> ApiError {
    ApiError::unsupported(
        "this server has one model, which requests cannot change: start another server with rope-cpu \
         serve -m FILE or -hf REPOSITORY",
    )
}

/// Returns an error in ollama's form.
pub fn error(error: &ApiError) -> Value {
    json!({ "error": error.message })
}

/// Returns the time in ollama's form.
fn now() -> String {
    Timestamp::now().to_string()
}
