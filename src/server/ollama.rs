//! Ollama's interface.

mod answer;
pub mod embed;
mod manage;
mod models;
pub mod request;

pub use answer::{unloaded, waiting};
pub use models::quantization;

use std::sync::Arc;

use axum::{
    Json, Router,
    extract::State,
    routing::{delete, get, post},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{error::ApiError, state::Server};

/// Version of ollama that this interface matches. Clients refuse older ones.
const VERSION: &str = "0.12.0";

/// Returns the routes of requests to a model.
pub fn routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/api/chat", post(answer::chat))
        .route("/api/generate", post(answer::generate))
        .route("/api/embed", post(embed::texts))
        .route("/api/embeddings", post(embed::text))
}

/// Returns the routes about models.
pub fn model_routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/api/tags", get(models::tags))
        .route("/api/ps", get(models::running))
        .route("/api/show", post(models::show))
        .route("/api/pull", post(manage::pull))
        .route("/api/push", post(no_push))
        .route("/api/create", post(manage::create))
        .route("/api/copy", post(manage::copy))
        .route("/api/delete", delete(manage::delete).post(manage::delete))
        .route("/api/version", get(|| async { Json(json!({ "version": VERSION })) }))
}

/// Refuses requests to push models.
async fn no_push(State(server): State<Arc<Server>>) -> Result<(), ApiError> {
    server.models.shelf()?;
    Err(ApiError::unsupported("this server uploads no models"))
}

/// Returns an error in ollama's form.
pub fn error(error: &ApiError) -> Value {
    json!({ "error": error.message })
}

/// Returns the time in ollama's form.
fn now() -> String {
    Timestamp::now().to_string()
}
