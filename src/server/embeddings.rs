//! Embeddings of texts: `/v1/embeddings` of OpenAI, `/embeddings` of llama-server.

use std::sync::Arc;

use axum::{Json, Router, body::Bytes, routing::post};
use base64::{Engine, prelude::BASE64_STANDARD};
use rope_cpu::{
    Token,
    model::{Pooling, normalized},
};
use serde_json::{Value, json};

use super::{
    adapters,
    answers::collect,
    app::{App, Loaded, Server},
    error::ApiError,
    fields::{Fields, whole_number},
    parameters::Parameters,
    prompts::prompts,
};

/// The most texts of a request, as of OpenAI's.
const TEXTS_MAX: usize = 2048;

/// Returns the routes.
pub fn routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/v1/embeddings", post(openai))
        .route("/embeddings", post(native))
        .route("/embedding", post(native))
}

/// The embeddings of some texts.
pub struct Embeddings {
    /// The embeddings of each text: one, or one for each token without pooling.
    pub texts: Vec<Vec<Vec<f32>>>,
    /// The number of tokens of all texts.
    pub tokens: usize,
}

async fn openai(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    require_pooling(&app)?;
    let fields = Fields::parse(&body)?;
    let base64 = match fields.text("encoding_format")?.unwrap_or("float") {
        "float" => false,
        "base64" => true,
        _ => {
            return Err(fields.error("encoding_format", "\"float\" or \"base64\""));
        }
    };
    let input = fields.get("input").ok_or_else(|| ApiError::field("input", "given"))?;
    let Embeddings { texts, tokens } = embed(&app, &fields, input).await?;
    let data = texts.iter().flatten().enumerate().map(|(index, embedding)| {
        let embedding = match base64 {
            true => {
                let bytes: Vec<_> = embedding.iter().flat_map(|x| x.to_le_bytes()).collect();
                BASE64_STANDARD.encode(bytes).into()
            }
            false => json!(embedding),
        };
        json!({ "object": "embedding", "index": index, "embedding": embedding })
    });
    Ok(Json(json!({
        "object": "list",
        "model": app.alias,
        "data": data.collect::<Vec<_>>(),
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    })))
}

async fn native(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    let fields = Fields::parse(&body)?;
    let input = fields.first(&["input", "content"]);
    let (_, input) = input.ok_or_else(|| ApiError::field("input", "given"))?;
    let Embeddings { texts, .. } = embed(&app, &fields, input).await?;
    let texts = texts.iter().enumerate();
    Ok(Json(texts.map(|(index, text)| json!({ "index": index, "embedding": text })).collect()))
}

/// Refuses a request for embeddings of whole texts if there are none.
///
/// # Errors
/// If the server has no pooling.
pub fn require_pooling(app: &App) -> Result<(), ApiError> {
    match app.pooling {
        Pooling::None => Err(ApiError::invalid(
            "without pooling there is no embedding of a text: start the server with --pooling mean, \
             or use /embeddings for those of the tokens",
        )),
        _ => Ok(()),
    }
}

/// Computes the embeddings of one or more texts.
///
/// # Errors
/// If a text is empty or too large, or a field is of the wrong type.
pub async fn embed(app: &App, fields: &Fields, input: &Value) -> Result<Embeddings, ApiError> {
    let length = app.model.config().embedding;
    let whole = |name| fields.get(name).map(whole_number);
    if whole("dimensions").is_some_and(|wanted| wanted != i64::try_from(length).ok()) {
        return Err(fields.error("dimensions", format_args!("{length}, those of the model")));
    }
    let normalizes = match whole("embd_normalize").unwrap_or(Some(app.options.normalization)) {
        Some(-1) => false,
        Some(2) => app.pooling != Pooling::None,
        _ => return Err(fields.error("embd_normalize", "2 for unit length, or -1 for none")),
    };
    let prompts = tokens(app, input)?;
    let tokens = prompts.iter().map(Vec::len).sum();
    let parameters = Parameters {
        reuse: false,
        pooling: Some(app.pooling),
        adapter_scales: adapters::of_fields(fields, app)?,
        ..Parameters::read(&Fields::default(), app, &[])?
    };
    let count = prompts.len();
    let answers = collect(app.submit(prompts, &parameters)?, count).await?;
    let mut texts: Vec<_> = answers.into_iter().map(|answer| answer.embeddings).collect();
    if normalizes {
        texts.iter_mut().flatten().for_each(|embedding| *embedding = normalized(embedding));
    }
    Ok(Embeddings { texts, tokens })
}

/// Returns the tokens of each text.
fn tokens(app: &App, input: &Value) -> Result<Vec<Vec<Token>>, ApiError> {
    let input = match input {
        Value::Array(texts) => texts.iter().map(text).collect::<Result<_, _>>()?,
        input => text(input)?,
    };
    let prompts = prompts("input", &input, TEXTS_MAX, app.tokenizer()?)?;
    // The last position is not used: prompts of answers are limited alike.
    match prompts.iter().map(Vec::len).find(|tokens| *tokens >= app.context) {
        Some(tokens) => Err(ApiError::invalid(format_args!(
            "the input is too large: a text has {tokens} tokens, the context {}; divide it, or restart \
             the server with a larger --ctx",
            app.context
        ))),
        None => Ok(prompts),
    }
}

/// Returns a text as a string if it is a message with parts.
fn text(input: &Value) -> Result<Value, ApiError> {
    let Some(parts) = input.get("content") else { return Ok(input.clone()) };
    let text = |part: &Value| match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text"), Some(text)) => Some(text.to_string()),
        _ => None,
    };
    let text: Option<String> = parts.as_array().and_then(|parts| parts.iter().map(text).collect());
    let expected = || ApiError::field("content", "a list of parts of type \"text\"");
    text.map(Value::String).ok_or_else(expected)
}
