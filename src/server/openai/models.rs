//! `/v1/models`: lists the server's model.

use axum::{Json, extract::Path};
use serde_json::{Value, json};

use crate::server::{
    app::{App, Loaded},
    error::ApiError,
};

/// Answers `GET /v1/models`.
pub async fn models(Loaded(app): Loaded) -> Result<Json<Value>, ApiError> {
    // Codex reads `models` in a special format. If the list is empty, Codex keeps its settings.
    Ok(Json(json!({ "object": "list", "data": [entry(&app)], "models": [] })))
}

/// Answers `GET /v1/models/{id}`. An id may have slashes, as `org/name`.
pub async fn model(Loaded(app): Loaded, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    if id != app.alias && !app.options.listen.alias.contains(&id) {
        let alias = &app.alias;
        return Err(ApiError::not_found(format_args!(
            "the model {id:?} does not exist: this server has {alias:?}"
        )));
    }
    Ok(Json(entry(&app)))
}

fn entry(app: &App) -> Value {
    let config = app.model.config();
    json!({
        "id": app.alias,
        "object": "model",
        "created": app.created(),
        "owned_by": "rope-cpu",
        "aliases": app.options.listen.aliases(),
        "tags": app.options.listen.tags,
        "meta": {
            "n_vocab": config.vocabulary,
            "n_ctx": app.context,
            "n_ctx_train": config.context_train,
            "n_embd": config.embedding,
            "n_params": app.parameters(),
            "size": app.model.weights_bytes(),
            "rope": app.rope,
        },
    })
}
