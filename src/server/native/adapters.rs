//! `/lora-adapters`: the adapters, and their scales in requests that give none.

use axum::{Json, body::Bytes};
use serde_json::{Value, json};

use crate::server::{
    adapters::of_list,
    app::Loaded,
    error::ApiError,
    fields::{objects, parse},
};

/// Answers `GET /lora-adapters`.
pub async fn list(Loaded(app): Loaded) -> Json<Value> {
    let scales = app.adapter_scales();
    let adapters = app.model.adapters().iter().zip(&*scales).enumerate();
    let adapters = adapters.map(|(id, (adapter, scale))| {
        let name = adapter.path().file_name().map(|name| name.to_string_lossy());
        json!({ "id": id, "path": name, "scale": scale })
    });
    Json(adapters.collect())
}

/// Answers `POST /lora-adapters`, whose body is a list in the form of the field `lora` of requests.
pub async fn set(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    let body = parse(&body)?;
    let list = body.as_array().ok_or_else(|| {
        ApiError::invalid(r#"the body must be a list of adapters: [{"id": 0, "scale": 0.5}]"#)
    })?;
    app.set_adapter_scales(of_list(&objects("", list)?, app.model.adapters().len())?);
    Ok(Json(json!({ "success": true })))
}
