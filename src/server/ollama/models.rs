//! `/api/tags`, `/api/ps` and `/api/show` describe the models.

use std::{
    fmt::Write,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{Json, extract::State};
use jiff::Timestamp;
use rope_cpu::{
    gguf::{File, Gguf, Value as MetadataValue},
    shelf::{Entry, presets::parameter_of_ollama},
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::server::{
    app::App,
    error::ApiError,
    manage::Named,
    models::{self, Listed},
    read::Parsed,
    state::Server,
};

/// Answers `GET /api/tags`.
pub async fn tags(State(server): State<Arc<Server>>) -> Result<Json<Value>, ApiError> {
    let models = models::blocking(move || {
        let list = server.models.list()?;
        let tag = |listed: &Listed| {
            let mut model = model(listed);
            model["modified_at"] = modified(listed).into();
            model
        };
        Ok(list.iter().map(tag).collect::<Vec<_>>())
    });
    Ok(Json(json!({ "models": models.await? })))
}

/// Answers `GET /api/ps`.
pub async fn running(State(server): State<Arc<Server>>) -> Result<Json<Value>, ApiError> {
    let models = models::blocking(move || {
        let list = server.models.list()?;
        let running = list.iter().filter_map(|listed| {
            let mut model = model(listed);
            model["expires_at"] = expiry(listed.expires).into();
            model["size_vram"] = 0.into();
            model["context_length"] = listed.app.as_ref()?.context.into();
            Some(model)
        });
        Ok(running.collect::<Vec<_>>())
    });
    Ok(Json(json!({ "models": models.await? })))
}

/// Returns when a model closes, in ollama's form.
fn expiry(left: Option<Duration>) -> String {
    let end = left.and_then(|left| Timestamp::now().checked_add(left).ok());
    end.unwrap_or(Timestamp::MAX).to_string()
}

/// Answers `POST /api/show`. With `-m` the name has no effect.
pub async fn show(
    State(server): State<Arc<Server>>,
    Parsed(named): Parsed<Named>,
) -> Result<Json<Value>, ApiError> {
    let name = named.optional();
    let (name, entry) = server.models.resolve(name.as_deref(), &server.options.listen.alias)?;
    match (server.models.loaded(Some(&name)), entry) {
        (Ok(app), entry) => shown_app(&app, entry.as_ref()),
        (Err(_), Some(entry)) => shown_entry(&entry),
        (Err(error), None) => Err(error),
    }
}

/// Returns the parameters of a model as ollama shows them, a line each, and its system message.
fn parameters(entry: Option<&Entry>) -> (Vec<String>, String) {
    let (mut lines, mut system) = (Vec::new(), String::new());
    let mut known = Vec::new();
    for choice in entry.into_iter().flat_map(|entry| entry.options()).flat_map(|p| p.choices) {
        if known.contains(&choice.key) {
            continue;
        }
        match parameter_of_ollama(&choice.key) {
            Some(name) => lines.extend(choice.values.iter().map(|value| match name {
                "stop" => format!("{name} {value:?}"),
                _ => format!("{name} {value}"),
            })),
            None if choice.key == "system-prompt" => {
                system = choice.values.concat().replace("\\\\", "\\");
            }
            None => {}
        }
        known.push(choice.key);
    }
    (lines, system)
}

/// Shows an open model.
fn shown_app(app: &App, entry: Option<&Entry>) -> Result<Json<Value>, ApiError> {
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
    let (mut lines, _) = parameters(entry);
    lines.retain(|line| !line.starts_with("num_ctx "));
    lines.insert(0, format!("num_ctx {}", app.context));
    Ok(Json(json!({
        "modelfile": "",
        "parameters": lines.join("\n"),
        "system": app.options.requests.system_prompt.as_deref().unwrap_or_default(),
        "template": app.template_source,
        "details": details(app.model.gguf()),
        "model_info": info(app.model.gguf()),
        "capabilities": capabilities,
        "modified_at": time(app.model.path().metadata().and_then(|m| m.modified()).ok()),
    })))
}

/// Shows a model of the shelf that is not open, from its header.
fn shown_entry(entry: &Entry) -> Result<Json<Value>, ApiError> {
    let header = entry.details().map_err(ApiError::internal)?;
    let file = File::open(&entry.path).map_err(ApiError::internal)?;
    let gguf = file.parse(&[]).map_err(ApiError::internal)?;
    let template = header.template.unwrap_or_default();
    let mut capabilities = vec![if header.embedding { "embedding" } else { "completion" }];
    if template.contains("tools") {
        capabilities.push("tools");
    }
    let (lines, system) = parameters(Some(entry));
    Ok(Json(json!({
        "modelfile": "",
        "parameters": lines.join("\n"),
        "system": system,
        "template": template,
        "details": details(&gguf),
        "model_info": info(&gguf),
        "capabilities": capabilities,
        "modified_at": time(entry.modified),
    })))
}

/// Returns the metadata of a model.
fn info(gguf: &Gguf) -> Map<String, Value> {
    gguf.metadata().iter().map(|(key, value)| (key.to_string(), plain(value))).collect()
}

fn model(listed: &Listed) -> Value {
    let name = &listed.name;
    let (size, details) = match (&listed.app, &listed.entry) {
        (Some(app), _) => (app.model.weights_bytes(), details(app.model.gguf())),
        (None, Some(entry)) => (entry.bytes, details_of_header(entry)),
        (None, None) => (0, Value::Null),
    };
    let digest = listed.entry.as_ref().and_then(|entry| entry.digest.clone());
    json!({
        "name": name,
        "model": name,
        "size": size,
        "digest": digest.unwrap_or_else(|| hash(name, size)),
        "details": details,
    })
}

fn details(gguf: &Gguf) -> Value {
    let family = gguf.metadata().string("general.architecture").ok().flatten().unwrap_or_default();
    let parameters = gguf.tensors().iter().map(|tensor| tensor.elements()).sum();
    described("", family, parameters, quantization(gguf))
}

/// Returns the details in the header of a model. Unreadable ones are empty.
fn details_of_header(entry: &Entry) -> Value {
    let parent = entry.alias_of().unwrap_or_default();
    match entry.details() {
        Ok(header) => described(parent, &header.architecture, header.parameters, &header.format),
        Err(_) => described(parent, "", 0, "unknown"),
    }
}

fn described(parent: &str, family: &str, parameters: u64, format: &str) -> Value {
    json!({
        "parent_model": parent,
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": parameter_size(parameters),
        "quantization_level": format,
    })
}

/// Returns an identifier of the model that looks like a digest. It is a hash of the name and size:
/// reading the whole file would take too long.
fn hash(name: &str, size: u64) -> String {
    Sha256::digest(format!("{name} {size}")).iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns when the file was modified.
fn modified(listed: &Listed) -> String {
    let of_app = |app: &Arc<App>| {
        let modified = app.model.path().metadata().and_then(|metadata| metadata.modified());
        modified.unwrap_or(app.loaded)
    };
    time(match &listed.entry {
        Some(entry) => entry.modified,
        None => listed.app.as_ref().map(of_app),
    })
}

fn time(time: Option<SystemTime>) -> String {
    let time = time.and_then(|time| Timestamp::try_from(time).ok());
    time.unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// Returns the type of most weights.
pub fn quantization(gguf: &Gguf) -> &'static str {
    let mut types: Vec<(&'static str, u64)> = Vec::new();
    for tensor in gguf.tensors() {
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
