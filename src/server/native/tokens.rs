//! `/tokenize`, `/detokenize`, `/tokenizer_info` and `/apply-template`.
//!
//! vLLM also has the first three, with other names for fields. lm-evaluation-harness counts tokens
//! with them.

use axum::{
    Json,
    body::Bytes,
    response::{IntoResponse, Response},
};
use rope_cpu::{
    Token,
    tokenizer::{Ends, Special},
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::server::{
    app::{App, Loaded},
    chat::Rendered,
    error::ApiError,
    fields::whole_number,
    openai::chat::request::Completions,
    read::{Failure, parse},
};

crate::object! {
    struct Tokenize {
        /// Whether to add the special tokens at the start and end of a text.
        add_special: Option<bool>,
        /// Alias of `add_special` for `prompt`; true by default.
        add_special_tokens: Option<bool>,
        /// The text.
        content: Option<String>,
        /// The messages of a conversation, in vLLM's form, as for `/apply-template`.
        messages: Option<Value>,
        /// Whether the name of a control token becomes the token; true by default.
        parse_special: Option<bool>,
        /// The text, in vLLM's form.
        prompt: Option<String>,
        /// Whether each token comes with its text.
        with_pieces: Option<bool>,
    }
}

crate::object! {
    struct Detokenize {
        /// The tokens.
        tokens: Option<Value>,
    }
}

/// The answer of `/tokenize`. Millions of tokens as JSON values would take much memory.
#[derive(Serialize)]
struct Tokens<T> {
    tokens: Vec<T>,
}

/// A token with its text.
#[derive(Serialize)]
struct Piece {
    id: Token,
    piece: PieceText,
}

/// The text of a token, or its bytes if they are not UTF-8 alone.
#[derive(Serialize)]
#[serde(untagged)]
enum PieceText {
    Text(String),
    Bytes(Vec<u8>),
}

/// Answers `POST /tokenize`.
pub async fn tokenize(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
    let fields: Tokenize = parse(&body)?;
    let tokenizer = app.tokenizer()?;
    let encode = |text: &str, adds_ends| {
        let special =
            if fields.parse_special.unwrap_or(true) { Special::Parse } else { Special::AsText };
        tokenizer.encode(text, special, if adds_ends { Ends::Add } else { Ends::Omit })
    };
    let tokens = match (&fields.messages, &fields.prompt, &fields.content) {
        (Some(_), ..) => render(&app, &body)?.tokens(&app)?,
        (_, Some(prompt), _) => encode(prompt, fields.add_special_tokens.unwrap_or(true)),
        (.., content) => {
            encode(content.as_deref().unwrap_or_default(), fields.add_special.unwrap_or(false))
        }
    };
    if !fields.with_pieces.unwrap_or(false) {
        return Ok(Json(Tokens { tokens }).into_response());
    }
    let with_piece = |id: Token| {
        let piece = String::from_utf8(tokenizer.piece(id, true).into_owned());
        let piece = piece.map_or_else(|e| PieceText::Bytes(e.into_bytes()), PieceText::Text);
        Piece { id, piece }
    };
    let tokens = tokens.into_iter().map(with_piece).collect();
    Ok(Json(Tokens { tokens }).into_response())
}

/// Answers `POST /detokenize`.
pub async fn detokenize(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    let tokens = parse::<Detokenize>(&body)?.tokens.unwrap_or_else(|| json!([]));
    let tokenizer = app.tokenizer()?;
    let known = |value: &Value| {
        let token = whole_number(value).and_then(|token| usize::try_from(token).ok());
        token.filter(|token| *token < tokenizer.len()).map(|token| token as Token)
    };
    let list = tokens.as_array().and_then(|list| list.iter().map(known).collect());
    let list: Vec<Token> = list.ok_or_else(|| {
        let last = tokenizer.len().saturating_sub(1);
        Failure::wrong("tokens", format_args!("a list of tokens from 0 to {last}"), &tokens)
    })?;
    let bytes = tokenizer.decode(&list, true);
    let text = String::from_utf8_lossy(&bytes);
    Ok(Json(json!({ "content": text, "prompt": text })))
}

/// Answers `GET /tokenizer_info`.
pub async fn info(Loaded(app): Loaded) -> Result<Json<Value>, ApiError> {
    let tokenizer = app.tokenizer()?;
    let text = |token: Option<Token>| token.and_then(|token| tokenizer.text(token));
    Ok(Json(json!({
        "bos_token": text(tokenizer.bos()),
        "eos_token": text(tokenizer.eos()),
        "chat_template": app.template_source,
    })))
}

/// Answers `POST /apply-template`.
pub async fn apply_template(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    Ok(Json(json!({ "prompt": render(&app, &body)?.text })))
}

fn render(app: &App, body: &Bytes) -> Result<Rendered, ApiError> {
    parse::<Completions>(body)?.into_request()?.render(app)
}
