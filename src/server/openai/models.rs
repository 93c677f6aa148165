//! `/v1/models` and `/models`: the models, in the forms of OpenAI and llama-server.

use std::{collections::HashMap, sync::Arc, time::UNIX_EPOCH};

use axum::{
    Json,
    extract::{Path, Query, State},
};
use rope_cpu::{
    platform::memory,
    shelf::{Entry, Suggestion, suggestions},
};
use serde_json::{Value, json};

use crate::server::{
    app::App,
    error::ApiError,
    models::{self, Listed, Status},
    state::Server,
};

/// Answers `GET /v1/models`. `?reload=1` reads the stores again, and `?fit=1` says with which context
/// a model fits in memory, and which models of the hub do.
pub async fn models(
    State(server): State<Arc<Server>>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Value>, ApiError> {
    if query.contains_key("reload") {
        server.models.refresh();
    }
    let fit = query.contains_key("fit");
    let suggests = fit && server.models.is_shelf();
    let data = models::blocking(move || {
        let listed = server.models.list()?;
        Ok(listed.iter().map(|listed| entry(listed, &server, fit)).collect::<Vec<_>>())
    });
    // Codex reads `models` in a special format. If the list is empty, Codex keeps its settings.
    let mut list = json!({ "object": "list", "data": data.await?, "models": [] });
    if suggests {
        list["suggestions"] = suggested();
    }
    Ok(Json(list))
}

/// Returns models of the hub that fit in the available memory, for users who have none.
fn suggested() -> Value {
    let memory = memory::available().map_or(0, |available| available.bytes);
    let models = suggestions(memory).into_iter();
    models.map(|Suggestion { name, bytes }| json!({ "name": name, "bytes": bytes })).collect()
}

/// Answers `GET /v1/models/{id}`. An id may have slashes, as `org/name`.
pub async fn model(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let found = models::blocking(move || {
        let listed = server.models.listed(&id, &server.options.listen.alias)?;
        Ok(entry(&listed, &server, true))
    });
    Ok(Json(found.await?))
}

/// Returns a model in a list.
fn entry(listed: &Listed, server: &Server, fit: bool) -> Value {
    let aliases =
        if listed.entry.is_some() { json!([]) } else { json!(server.options.listen.aliases()) };
    let created = match (&listed.app, &listed.entry) {
        (Some(app), _) => app.created(),
        (None, Some(entry)) => modified(entry),
        (None, None) => 0,
    };
    let mut model = json!({
        "id": listed.name,
        "object": "model",
        "created": created,
        "owned_by": "rope-cpu",
        "aliases": aliases,
        "tags": server.options.listen.tags,
        "status": status(listed),
        "meta": meta(listed),
    });
    if let Some(entry) = &listed.entry {
        model["in_cache"] = true.into();
        model["store"] = entry.store.name().into();
        if fit {
            model["fit"] = match entry.fit() {
                Ok(fit) => json!({ "fits": fit.fits, "context": fit.context, "bytes": fit.bytes }),
                Err(error) => json!({ "fits": false, "error": error.to_string() }),
            };
        }
    }
    model
}

/// Returns whether a model is open, in llama-server's form.
fn status(listed: &Listed) -> Value {
    let mut status = json!({ "value": listed.status.name() });
    if let Some(failure) = &listed.failure {
        status["failed"] = true.into();
        status["message"] = failure.as_str().into();
    }
    status
}

/// Returns the sizes of a model, from its header if it is not open.
fn meta(listed: &Listed) -> Value {
    match (&listed.app, &listed.entry) {
        (Some(app), _) => of_app(app),
        (None, Some(entry)) => match entry.details() {
            Ok(details) => json!({
                "n_ctx_train": details.context,
                "n_params": details.parameters,
                "size": entry.bytes,
                "architecture": details.architecture,
                "format": details.format,
                "embedding": details.embedding,
            }),
            Err(error) => json!({ "size": entry.bytes, "error": error.to_string() }),
        },
        (None, None) => Value::Null,
    }
}

fn of_app(app: &App) -> Value {
    let config = app.model.config();
    json!({
        "n_vocab": config.vocabulary,
        "n_ctx": app.context,
        "n_ctx_train": config.context_train,
        "n_embd": config.embedding,
        "n_params": app.parameters(),
        "size": app.model.weights_bytes(),
        "rope": app.rope,
    })
}

/// Returns when a model was last written, in seconds since 1970.
fn modified(entry: &Entry) -> u64 {
    let since = entry.modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_secs())
}

/// Answers `GET /api/v0/models`, LM Studio's list.
pub async fn lm_studio(State(server): State<Arc<Server>>) -> Result<Json<Value>, ApiError> {
    let data = models::blocking(move || {
        Ok(server.models.list()?.iter().map(of_lm_studio).collect::<Vec<_>>())
    });
    Ok(Json(json!({ "object": "list", "data": data.await? })))
}

/// Answers `GET /api/v0/models/{model}`.
pub async fn one_of_lm_studio(
    State(server): State<Arc<Server>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let found = models::blocking(move || {
        Ok(of_lm_studio(&server.models.listed(&id, &server.options.listen.alias)?))
    });
    Ok(Json(found.await?))
}

/// Returns a model in LM Studio's form.
fn of_lm_studio(listed: &Listed) -> Value {
    let details = listed.entry.as_ref().and_then(|entry| entry.details().ok());
    let (arch, format, context, embedding) = match (&listed.app, &details) {
        (Some(app), _) => {
            let config = app.model.config();
            let format = crate::server::ollama::quantization(app.model.gguf());
            (
                config.architecture.name.to_string(),
                format.into(),
                Some(config.context_train as u64),
                !config.causal,
            )
        }
        (None, Some(details)) => {
            let format = details.format.clone();
            (details.architecture.clone(), format, details.context, details.embedding)
        }
        (None, None) => Default::default(),
    };
    let publisher = listed.name.split_once('/').map(|(publisher, _)| publisher);
    let mut model = json!({
        "id": listed.name,
        "object": "model",
        "type": if embedding { "embeddings" } else { "llm" },
        "publisher": publisher.unwrap_or_default(),
        "arch": arch,
        "compatibility_type": "gguf",
        "quantization": format,
        "state": if listed.status == Status::Loaded { "loaded" } else { "not-loaded" },
        "max_context_length": context,
    });
    if let Some(app) = &listed.app {
        model["loaded_context_length"] = app.context.into();
    }
    model
}
