//! `/api/embed` and `/api/embeddings`.

use std::time::Instant;

use axum::{Json, body::Bytes};
use serde_json::{Value, json};

use crate::server::{
    app::{App, Loaded},
    embeddings::{Embeddings, embed, require_pooling},
    error::ApiError,
    fields::Fields,
};

/// Answers `POST /api/embed`: embeddings of length 1. A text that is too long is an error, whatever
/// `truncate` is.
pub async fn texts(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    let started = Instant::now();
    let fields = Fields::parse(&body)?;
    let Embeddings { texts, tokens } = of_field(&app, &fields, "input").await?;
    let embeddings: Vec<_> = texts.into_iter().flatten().collect();
    Ok(Json(json!({
        "model": app.alias,
        "embeddings": embeddings,
        "total_duration": u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        "load_duration": 0,
        "prompt_eval_count": tokens,
    })))
}

/// Answers `POST /api/embeddings`, the older form for one text, whose embedding keeps its length.
pub async fn text(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    let mut fields = Fields::parse(&body)?;
    fields.required_text("prompt")?;
    fields.set("embd_normalize", -1);
    let Embeddings { texts, .. } = of_field(&app, &fields, "prompt").await?;
    Ok(Json(json!({ "embedding": texts.into_iter().flatten().next() })))
}

async fn of_field(app: &App, fields: &Fields, name: &str) -> Result<Embeddings, ApiError> {
    require_pooling(app)?;
    let input = fields.get(name);
    let input = input.ok_or_else(|| fields.error(name, "a text or a list of texts"))?;
    embed(app, fields, input).await
}
