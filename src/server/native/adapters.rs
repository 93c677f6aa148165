//! `/lora-adapters`: the adapters and their default scales.

use axum::{Json, body::Bytes};
use serde::de::SeqAccess;
use serde_json::{Value, json};

use crate::server::{
    adapters::{Scale, of_list},
    error::ApiError,
    models::Loaded,
    read::{Shape, elements, parse},
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

/// The body of `POST /lora-adapters`.
struct List(Vec<Scale>);

impl Shape for List {
    fn expected() -> String {
        r#"a list of adapters: [{"id": 0, "scale": 0.5}]"#.into()
    }

    fn list<'de, A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        elements(list).map(List)
    }
}

/// Answers `POST /lora-adapters`. The body has the form of `lora` in requests.
pub async fn set(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    let list: List = parse(&body)?;
    app.set_adapter_scales(of_list("", &list.0, app.model.adapters().len())?);
    Ok(Json(json!({ "success": true })))
}
