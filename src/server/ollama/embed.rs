//! `/api/embed` and `/api/embeddings`.

use std::time::Instant;

use axum::{Json, body::Bytes, response::Response};
use serde_json::{Value, json};

use crate::server::{
    embeddings::{EmbeddingFields, Embeddings, embed, require_pooling},
    error::ApiError,
    lazy::Lazy,
    models::Loaded,
    read::{Failure, Treatment, parse},
    request_fields::{LOADED, WHOLE_TEXTS},
};

crate::object! {
    /// A request of `/api/embed` or `/api/embeddings`.
    pub struct Embed {
        /// A text or a list of texts, of `/api/embed`.
        input: Option<Value>,
        /// A text, of `/api/embeddings`.
        prompt: Option<String>,
        ..fields: EmbeddingFields,
    }
    others {
        "keep_alive": LOADED,
        "options": Treatment::Ignored("embeddings have no options"),
        "truncate": WHOLE_TEXTS,
    }
}

/// Answers `POST /api/embed` with embeddings of length 1. A text that is too long is an error,
/// whatever `truncate` is.
pub async fn texts(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
    let started = Instant::now();
    let Embed { input, fields, .. } = parse(&body)?;
    require_pooling(&app)?;
    let expected = "a text or a list of texts";
    let input = input.ok_or_else(|| Failure::missing("input", expected))?;
    let Embeddings { texts, tokens, held } = embed(&app, &fields, &input).await?;
    let embeddings = Lazy::list(texts.into_iter().flatten().map(Lazy::from));
    let body = json!({
        "model": app.alias,
        "embeddings": [],
        "total_duration": u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        "load_duration": 0,
        "prompt_eval_count": tokens,
    });
    Ok(Lazy::object(body, vec![("embeddings", embeddings)]).response(held))
}

/// Answers `POST /api/embeddings`, the older form for one text. The embedding keeps its length.
pub async fn text(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    let Embed { prompt, mut fields, .. } = parse(&body)?;
    let prompt = prompt.ok_or_else(|| Failure::missing("prompt", "a string"))?;
    require_pooling(&app)?;
    fields.embd_normalize = Some((-1).into());
    let Embeddings { texts, .. } = embed(&app, &fields, &prompt.into()).await?;
    Ok(Json(json!({ "embedding": texts.into_iter().flatten().next() })))
}
