//! `/tokenize`, `/detokenize` and `/apply-template`.

use axum::{Json, body::Bytes};
use rope_cpu::{
    Token,
    tokenizer::{Ends, Special},
};
use serde_json::{Value, json};

use crate::server::{
    app::Loaded,
    chat::{Conversation, require_messages},
    error::ApiError,
    fields::{Fields, whole_number},
};

/// Answers `POST /tokenize`.
pub async fn tokenize(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    let fields = Fields::parse(&body)?;
    let tokenizer = app.tokenizer()?;
    let special = match fields.switch("parse_special", true)? {
        true => Special::Parse,
        false => Special::AsText,
    };
    let ends = if fields.switch("add_special", false)? { Ends::Add } else { Ends::Omit };
    let tokens = tokenizer.encode(fields.text("content")?.unwrap_or_default(), special, ends);
    if !fields.switch("with_pieces", false)? {
        return Ok(Json(json!({ "tokens": tokens })));
    }
    let with_piece = |token: &Token| {
        let piece = tokenizer.piece(*token, true);
        let piece = match std::str::from_utf8(&piece) {
            Ok(text) => json!(text),
            Err(_) => json!(&piece[..]),
        };
        json!({ "id": token, "piece": piece })
    };
    Ok(Json(json!({ "tokens": tokens.iter().map(with_piece).collect::<Vec<_>>() })))
}

/// Answers `POST /detokenize`.
pub async fn detokenize(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    let fields = Fields::parse(&body)?;
    let tokenizer = app.tokenizer()?;
    let known = |value: &Value| {
        let token = whole_number(value).and_then(|token| usize::try_from(token).ok());
        token.filter(|token| *token < tokenizer.len()).map(|token| token as Token)
    };
    let tokens = fields.list("tokens")?.unwrap_or_default();
    let tokens: Option<Vec<Token>> = tokens.iter().map(known).collect();
    let tokens = tokens.ok_or_else(|| {
        let last = tokenizer.len().saturating_sub(1);
        fields.error("tokens", format_args!("a list of tokens from 0 to {last}"))
    })?;
    let bytes = tokenizer.decode(&tokens, true);
    Ok(Json(json!({ "content": String::from_utf8_lossy(&bytes) })))
}

/// Answers `POST /apply-template`.
pub async fn apply_template(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    let fields = Fields::parse(&body)?;
    require_messages(&fields)?;
    let prompt = Conversation::read(&fields)?.render(app).await?.text;
    Ok(Json(json!({ "prompt": prompt })))
}
