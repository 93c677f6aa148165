//! `/props`: describes the server, its model and its defaults.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde_json::{Value, json};

use super::completion::generation_settings;
use crate::server::{
    app::App,
    error::ApiError,
    models::Loaded,
    parameters::{Parameters, Shared},
    state::Server,
};

const BUILD: &str = concat!("rope-cpu ", env!("CARGO_PKG_VERSION"));

/// Answers `GET /props`. Without an open model, a server of many models describes only itself.
pub async fn properties(
    State(server): State<Arc<Server>>,
    loaded: Result<Loaded, ApiError>,
) -> Result<Json<Value>, ApiError> {
    if !server.models.is_shelf() {
        return Ok(Json(of_model(&loaded?.0)?));
    }
    let mut properties = loaded.map_or(Ok(json!({})), |Loaded(app)| of_model(&app))?;
    let options = server.models.options();
    for (name, value) in [
        ("role", "router".into()),
        ("max_instances", json!(options.models_max)),
        ("models_autoload", (!options.no_models_autoload).into()),
        ("build_info", BUILD.into()),
    ] {
        properties[name] = value;
    }
    Ok(Json(properties))
}

fn of_model(app: &Arc<App>) -> Result<Value, ApiError> {
    let parameters = Parameters::new(&Shared::default(), None, app)?;
    let tokenizer = app.tokenizer()?;
    let text = |token: Option<_>| token.and_then(|token| tokenizer.text(token)).unwrap_or_default();
    Ok(json!({
        "default_generation_settings": {
            "id": 0,
            "n_ctx": app.context,
            "params": generation_settings(&parameters, app)?,
        },
        "total_slots": app.options.requests.slots(),
        "model_alias": app.alias,
        "model_path": app.model.path().file_name().map(|name| name.to_string_lossy()),
        "modalities": { "vision": false, "audio": false, "video": false },
        "endpoint_slots": !app.options.listen.no_slots,
        "endpoint_props": false,
        "endpoint_metrics": app.options.listen.metrics,
        "chat_template": app.template_source,
        "bos_token": text(tokenizer.bos()),
        "eos_token": text(tokenizer.eos()),
        "build_info": BUILD,
        "is_sleeping": false,
        "context_rolls": app.capacity > app.context,
        "n_ctx_train": app.model.config().context_train,
        "rope": app.rope,
        "memory": {
            "weights_bytes": app.memory.weights,
            "buffers_bytes": app.memory.buffers,
            "context_bytes": app.memory.keys.saturating_add(app.memory.values),
            "cache_bytes": app.scheduler.status().state().cache_bytes,
        },
    }))
}
