//! llama-server's interface.

mod adapters;
pub mod completion;
pub mod infill;
mod metrics;
mod properties;
mod rope;
mod router;
mod slots;
mod tokens;

use std::sync::Arc;

use axum::{
    Router,
    routing::{get, post},
};

use super::state::Server;

/// Returns the routes of requests to a model.
pub fn routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/completion", post(completion::completion))
        .route("/completions", post(completion::completion))
        .route("/infill", post(infill::infill))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/tokenizer_info", get(tokens::info))
        .route("/apply-template", post(tokens::apply_template))
        .route("/props", get(properties::properties))
        .route("/rope", get(rope::rope))
        .route("/slots", get(slots::slots))
        .route("/slots/{id}", post(slots::act))
        .route("/lora-adapters", get(adapters::list).post(adapters::set))
        .route("/metrics", get(metrics::metrics))
}

/// Returns the routes about models.
pub fn model_routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/models", post(router::download).delete(router::remove))
        .route("/models/load", post(router::load))
        .route("/models/unload", post(router::unload))
        .route("/models/sse", get(router::watch))
}
