//! `/tokenize`, `/detokenize`, `/tokenizer_info` and `/apply-template`.
//!
//! vLLM has the first three as well, with other field names. lm-evaluation-harness counts tokens
//! with them.

use std::sync::Arc;

use axum::{Json, body::Bytes, response::Response};
use rope_cpu::{
    Token,
    tokenizer::{Ends, Special},
};
use serde_json::{Value, json};

use crate::server::{
    app::App,
    chat::Rendered,
    error::ApiError,
    fields::whole_number,
    lazy::Lazy,
    models::Loaded,
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
    let mut held = app.hold();
    held.add(size_of_val(&tokens[..]))?;
    let tokens = match fields.with_pieces.unwrap_or(false) {
        true => Lazy::list(tokens.into_iter().map(move |token| with_piece(&app, token).into())),
        false => Lazy::list(tokens.into_iter().map(Lazy::from)),
    };
    Ok(Lazy::object(json!({}), vec![("tokens", tokens)]).response(held))
}

/// Returns a token with its text, or with its bytes if they are not UTF-8 alone.
fn with_piece(app: &App, token: Token) -> Value {
    let piece = app.tokenizer().map(|tokenizer| tokenizer.piece(token, true)).unwrap_or_default();
    match str::from_utf8(&piece) {
        Ok(text) => json!({ "id": token, "piece": text }),
        Err(_) => json!({ "id": token, "piece": &piece[..] }),
    }
}

/// Answers `POST /detokenize`.
pub async fn detokenize(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
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
    let mut held = app.hold();
    // The bytes, their text, and its copy.
    let bytes: usize = list.iter().map(|token| tokenizer.piece(*token, true).len()).sum();
    held.add(3 * bytes)?;
    let bytes = tokenizer.decode(&list, true);
    let text: Arc<str> = String::from_utf8_lossy(&bytes).into();
    let [content, prompt] = [text.clone(), text].map(Lazy::Text);
    Ok(Lazy::object(json!({}), vec![("content", content), ("prompt", prompt)]).response(held))
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
    Ok(Json(json!({ "prompt": render(&app, &body)?.answer.text })))
}

fn render(app: &App, body: &Bytes) -> Result<Rendered, ApiError> {
    parse::<Completions>(body)?.into_request()?.render(app)
}
