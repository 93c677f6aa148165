//! `/v1/models`: the list with the one model.

use axum::Json;
use serde_json::{Value, json};

use crate::server::{app::Loaded, error::ApiError};

/// Answers `GET /v1/models`.
pub async fn models(Loaded(app): Loaded) -> Result<Json<Value>, ApiError> {
    let config = app.model.config();
    Ok(Json(json!({
        "object": "list",
        "data": [{
            "id": app.alias,
            "object": "model",
            "created": app.created(),
            "owned_by": "rope-cpu",
            "aliases": app.options.aliases,
            "tags": app.options.tags,
            "meta": {
                "n_vocab": config.vocabulary,
                "n_ctx": app.context,
                "n_ctx_train": config.context_train,
                "n_embd": config.embedding,
                "n_params": app.parameters(),
                "size": app.model.weights_bytes(),
                "rope": app.rope,
            },
        }],
    })))
}
