//! Embeddings of texts: OpenAI's `/v1/embeddings` and llama-server's `/embeddings`.

use std::sync::Arc;

use axum::{Router, body::Bytes, response::Response, routing::post};
use base64::{Engine, prelude::BASE64_STANDARD};
use rope_cpu::{
    Token,
    model::{Pooling, normalized},
};
use serde_json::{Value, json};

use super::{
    adapters,
    app::App,
    error::ApiError,
    fields::whole_number,
    lazy::Lazy,
    memory::Held,
    models::Loaded,
    parameters::{Parameters, Shared},
    prompts::prompts,
    read::{Failure, parse, whole},
    request_fields::ABOUT_USER,
    state::Server,
};

/// Maximum texts of a request, as in OpenAI's API.
pub const TEXTS_MAX: usize = 2048;

/// Returns the routes.
pub fn routes() -> Router<Arc<Server>> {
    Router::new()
        .route("/v1/embeddings", post(openai))
        .route("/embeddings", post(native))
        .route("/embedding", post(native))
}

/// The embeddings of some texts.
pub struct Embeddings {
    /// Embeddings of each text: one, or one per token without pooling.
    pub texts: Vec<Vec<Vec<f32>>>,
    /// The number of tokens of all texts.
    pub tokens: usize,
    /// Their memory.
    pub held: Held,
}

crate::object! {
    /// The fields of all requests for embeddings.
    pub struct EmbeddingFields {
        /// The length of the embeddings: their first numbers, up to the model's length.
        dimensions: Option<Value>,
        /// 2 for embeddings of length 1, -1 for their own length.
        embd_normalize: Option<Value>,
        ..shared: Shared,
    }
}

crate::object! {
    /// A request of `/v1/embeddings` or `/embeddings`.
    pub struct Embed {
        /// Another name of `input`, in `/embeddings`.
        content: Option<Value>,
        /// `float` or `base64`, in `/v1/embeddings`.
        encoding_format: Option<String>,
        /// A text, a list of texts or tokens, or messages with parts.
        input: Option<Value>,
        ..fields: EmbeddingFields,
    }
    others {
        "user": ABOUT_USER,
    }
}

async fn openai(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
    require_pooling(&app)?;
    let request: Embed = parse(&body)?;
    let base64 = match request.encoding_format.as_deref().unwrap_or("float") {
        "float" => false,
        "base64" => true,
        other => {
            let expected = "\"float\" or \"base64\"";
            return Err(Failure::unless_one_of("encoding_format", expected, Some(other)).into());
        }
    };
    let input = request.input.as_ref().ok_or_else(|| ApiError::field("input", "given"))?;
    let Embeddings { texts, tokens, held } = embed(&app, &request.fields, input).await?;
    let data = texts.into_iter().flatten().enumerate().map(move |(index, embedding)| {
        let embedding = match base64 {
            true => {
                let bytes: Vec<_> = embedding.iter().flat_map(|x| x.to_le_bytes()).collect();
                BASE64_STANDARD.encode(bytes).into()
            }
            false => json!(embedding),
        };
        json!({ "object": "embedding", "index": index, "embedding": embedding }).into()
    });
    let body = json!({
        "object": "list",
        "model": app.alias,
        "data": [],
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
    });
    Ok(Lazy::object(body, vec![("data", Lazy::list(data))]).response(held))
}

async fn native(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
    let request: Embed = parse(&body)?;
    let input = request.input.or(request.content);
    let input = input.ok_or_else(|| ApiError::field("input", "given"))?;
    let Embeddings { texts, held, .. } = embed(&app, &request.fields, &input).await?;
    let texts = texts.into_iter().enumerate().map(|(index, text)| {
        let text = Lazy::list(text.into_iter().map(Lazy::from));
        Lazy::object(json!({ "index": index }), vec![("embedding", text)])
    });
    Ok(Lazy::list(texts).response(held))
}

/// Checks that the server computes embeddings of whole texts.
///
/// # Errors
/// If the server has no pooling, or ranks documents.
pub fn require_pooling(app: &App) -> Result<(), ApiError> {
    match app.pooling {
        Pooling::None => Err(ApiError::invalid(
            "without pooling there is no embedding of a text: start the server with --pooling mean, \
             or use /embeddings for those of the tokens",
        )),
        Pooling::Rank => Err(not_ranks()),
        Pooling::Mean | Pooling::Cls | Pooling::Last => Ok(()),
    }
}

/// Returns the error for a request of embeddings to a server that ranks documents.
fn not_ranks() -> ApiError {
    ApiError::unsupported(
        "this server ranks documents, and computes no embeddings: use /v1/rerank, or start it with an \
         embedding model or --pooling mean",
    )
}

/// Computes the embeddings of one or more texts.
///
/// # Errors
/// If a text is empty or too large, or a field is of the wrong type.
pub async fn embed(
    app: &App,
    fields: &EmbeddingFields,
    input: &Value,
) -> Result<Embeddings, ApiError> {
    if app.pooling == Pooling::Rank {
        return Err(not_ranks());
    }
    let length = i64::try_from(app.model.config().embedding).unwrap_or(i64::MAX);
    let dimensions = fields.dimensions.as_ref().map(|wanted| whole(wanted, 1, length));
    let dimensions = dimensions.transpose().map_err(|failure| failure.within("dimensions"))?;
    let normalization = fields.embd_normalize.clone();
    let normalization = normalization.unwrap_or_else(|| app.options.listen.embd_normalize.into());
    let normalizes = match whole_number(&normalization) {
        Some(-1) => false,
        Some(2) => app.pooling != Pooling::None,
        _ => {
            let expected = "2 for unit length, or -1 for none";
            return Err(Failure::wrong("embd_normalize", expected, &normalization).into());
        }
    };
    let prompts = tokens(app, input)?;
    let tokens = prompts.iter().map(Vec::len).sum();
    let parameters = parameters(app, &fields.shared)?;
    let (answers, held) = app.collect(prompts, &parameters).await?;
    let answers = answers.into_iter().filter_map(Arc::into_inner);
    let mut texts: Vec<_> = answers.map(|answer| answer.embeddings).collect();
    if let Some(dimensions) = dimensions.and_then(|length| usize::try_from(length).ok()) {
        texts.iter_mut().flatten().for_each(|embedding| embedding.truncate(dimensions));
    }
    if normalizes {
        texts.iter_mut().flatten().for_each(|embedding| *embedding = normalized(embedding));
    }
    Ok(Embeddings { texts, tokens, held })
}

/// Returns the parameters of a request for embeddings or ranks.
///
/// # Errors
/// If a field is of the wrong type.
pub fn parameters(app: &App, shared: &Shared) -> Result<Parameters, ApiError> {
    let mut parameters = Parameters::new(&Shared::default(), None, app)?;
    parameters.request.reuse = false;
    parameters.request.pooling = Some(app.pooling);
    parameters.request.adapter_scales = Some(adapters::of_request(shared, app)?);
    Ok(parameters)
}

/// Returns the tokens of each text.
fn tokens(app: &App, input: &Value) -> Result<Vec<Vec<Token>>, ApiError> {
    let input = match input {
        Value::Array(texts) => texts.iter().map(text).collect::<Result<_, _>>()?,
        input => text(input)?,
    };
    let prompts = prompts("input", &input, TEXTS_MAX, app.tokenizer()?)?;
    if let Some(index) = prompts.iter().position(Vec::is_empty) {
        let place = if input.is_array() { format!("input[{index}]") } else { "input".into() };
        return Err(ApiError::field(&place, "a text with at least one token"));
    }
    match prompts.iter().map(Vec::len).find(|tokens| *tokens > app.context) {
        Some(tokens) => Err(ApiError {
            message: format!(
                "the input is too large: a text has {tokens} tokens, the context {}; divide it, or \
                 restart the server with {}",
                app.context,
                (app.longer)(tokens).text
            ),
            ..app.context_exceeded(tokens)
        }),
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
