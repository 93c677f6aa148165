//! `/api/tags`, `/api/ps` and `/api/show` describe the server's model.

use std::fmt::Write;

use axum::{Json, body::Bytes};
use jiff::Timestamp;
use rope_cpu::gguf::Value as MetadataValue;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::server::{
    app::{App, Loaded},
    error::ApiError,
    read::parse,
};

/// Answers `GET /api/tags`.
pub async fn tags(Loaded(app): Loaded) -> Json<Value> {
    let mut model = model(&app);
    model["modified_at"] = modified(&app).into();
    Json(json!({ "models": [model] }))
}

/// Answers `GET /api/ps`.
pub async fn running(Loaded(app): Loaded) -> Json<Value> {
    let mut model = model(&app);
    // The model stays loaded.
    model["expires_at"] = Timestamp::MAX.to_string().into();
    model["size_vram"] = 0.into();
    model["context_length"] = app.context.into();
    Json(json!({ "models": [model] }))
}

crate::object! {
    struct Show {
        /// Ignored: the server serves one model.
        model: Option<String>,
    }
}

/// Answers `POST /api/show`.
pub async fn show(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    parse::<Show>(&body)?;
    let entries = app.model.metadata().iter();
    let info: Map<String, Value> =
        entries.map(|(key, value)| (key.to_string(), plain(value))).collect();
    let generates = app.model.config().causal;
    let mut capabilities = vec![if generates { "completion" } else { "embedding" }];
    if app.template_source.contains("tools") {
        capabilities.push("tools");
    }
    if app.tokenizer()?.fill_in_middle().is_some() {
        capabilities.push("insert");
    }
    if app.template.as_ref().is_ok_and(|template| template.format().reasons()) {
        capabilities.push("thinking");
    }
    Ok(Json(json!({
        "modelfile": "",
        "parameters": format!("num_ctx {}", app.context),
        "template": app.template_source,
        "details": details(&app),
        "model_info": info,
        "capabilities": capabilities,
        "modified_at": modified(&app),
    })))
}

fn model(app: &App) -> Value {
    json!({
        "name": app.alias,
        "model": app.alias,
        "size": app.model.weights_bytes(),
        "digest": digest(app),
        "details": details(app),
    })
}

fn details(app: &App) -> Value {
    let family = app.model.config().architecture.name;
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": parameter_size(app.parameters()),
        "quantization_level": quantization(app),
    })
}

/// Returns an identifier of the model that looks like a digest. It is a hash of the name and size:
/// reading the whole file would take too long.
fn digest(app: &App) -> String {
    let name = format!("{} {}", app.alias, app.model.weights_bytes());
    Sha256::digest(name).iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns when the file was modified.
fn modified(app: &App) -> String {
    let modified = app.model.path().metadata().and_then(|metadata| metadata.modified());
    let time = Timestamp::try_from(modified.unwrap_or(app.loaded));
    time.unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// Returns the type of most weights.
fn quantization(app: &App) -> &'static str {
    let mut types: Vec<(&'static str, u64)> = Vec::new();
    for tensor in app.model.gguf().tensors() {
        match types.iter_mut().find(|(name, _)| *name == tensor.ggml_type.name) {
            Some((_, elements)) => *elements += tensor.elements(),
            None => types.push((tensor.ggml_type.name, tensor.elements())),
        }
    }
    types.into_iter().max_by_key(|(_, elements)| *elements).map_or("unknown", |(name, _)| name)
}

fn parameter_size(parameters: u64) -> String {
    let parameters = parameters as f64;
    match parameters {
        1e9.. => format!("{:.1}B", parameters / 1e9),
        1e6.. => format!("{:.2}M", parameters / 1e6),
        _ => format!("{:.2}K", parameters / 1e3),
    }
}

/// Returns a metadata value as JSON. Arrays are null, as in ollama's short form.
fn plain(value: MetadataValue<'_>) -> Value {
    match value {
        MetadataValue::Array(_) => Value::Null,
        MetadataValue::String(text) => String::from_utf8_lossy(text).into(),
        MetadataValue::Bool(value) => value.into(),
        MetadataValue::F32(value) => json!(value),
        MetadataValue::F64(value) => json!(value),
        MetadataValue::U64(value) => value.into(),
        value => value.integer().and_then(|value| i64::try_from(value).ok()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_unit_of_their_magnitude() {
        for (parameters, expected) in
            [(1_543_714_304, "1.5B"), (134_515_008, "134.52M"), (52_000, "52.00K")]
        {
            assert_eq!(parameter_size(parameters), expected);
        }
    }
}
