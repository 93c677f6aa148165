//! Reranking: orders documents by their relevance to a query, at `/v1/rerank`.

use std::sync::Arc;

use axum::{Json, Router, body::Bytes, routing::post};
use rope_cpu::model::Pooling;
use serde_json::{Value, json};

use super::{
    app::App,
    embeddings::{TEXTS_MAX, parameters},
    error::ApiError,
    models::Loaded,
    parameters::Shared,
    read::{Failure, Whole, parse},
    state::Server,
};

/// Returns the routes.
pub fn routes() -> Router<Arc<Server>> {
    ["/v1/rerank", "/v1/reranking", "/v2/rerank", "/rerank", "/reranking"]
        .into_iter()
        .fold(Router::new(), |router, path| router.route(path, post(rerank)))
}

crate::object! {
    /// A request of `/v1/rerank`.
    pub struct Rerank {
        /// The documents: strings, or objects with a `text`.
        documents: Vec<Value>,
        /// The query.
        query: Option<String>,
        /// Whether the answer repeats the documents, as in Jina's interface.
        return_documents: Option<bool>,
        /// Whether the answer repeats the documents, as in TEI's interface.
        return_text: Option<bool>,
        /// Another name of `documents`. The answer is then in TEI's form: a list.
        texts: Vec<Value>,
        /// Maximum documents in the answer.
        top_n: Option<Whole<1, { i32::MAX as i64 }>>,
        ..shared: Shared,
    }
}

/// A document with its place in the request.
struct Ranked {
    index: usize,
    score: f32,
    text: String,
}

async fn rerank(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    require_ranking(&app)?;
    let request: Rerank = parse(&body)?;
    let query = request.query.as_deref().ok_or_else(|| Failure::missing("query", "a string"))?;
    let (name, documents) = match request.texts.is_empty() {
        true => ("documents", &request.documents),
        false => ("texts", &request.texts),
    };
    let documents = documents.iter().enumerate().map(|(i, value)| text(name, i, value));
    let documents: Vec<_> = documents.collect::<Result<_, _>>()?;
    if documents.is_empty() || documents.len() > TEXTS_MAX {
        let expected = format_args!("from 1 to {TEXTS_MAX} documents, not {}", documents.len());
        return Err(ApiError::field(name, expected));
    }
    let prompts = documents.iter().map(|document| app.model.pair(query, document));
    let prompts: Vec<_> = prompts.collect::<Result<_, _>>().map_err(ApiError::internal)?;
    let tokens: usize = prompts.iter().map(Vec::len).sum();
    let parameters = parameters(&app, &request.shared)?;
    let (answers, _held) = app.collect(prompts, &parameters).await?;
    let ranked = answers.iter().zip(documents).enumerate().map(|(index, (answer, text))| {
        let score = answer.embeddings.first().and_then(|scores| scores.first());
        Ranked { index, score: score.copied().unwrap_or(f32::NAN), text }
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
    ranked.truncate(request.top_n.and_then(Whole::count).unwrap_or(usize::MAX));
    let returns = |wanted: Option<bool>| wanted.unwrap_or(false);
    if !request.texts.is_empty() {
        let result = |Ranked { index, score, text }| match returns(request.return_text) {
            true => json!({ "index": index, "score": score, "text": text }),
            false => json!({ "index": index, "score": score }),
        };
        return Ok(Json(ranked.into_iter().map(result).collect()));
    }
    let result = |Ranked { index, score, text }| {
        let mut result = json!({ "index": index, "relevance_score": score });
        if returns(request.return_documents) {
            result["document"] = json!({ "text": text });
        }
        result
    };
    Ok(Json(json!({
        "model": app.alias,
        "object": "list",
        "usage": { "prompt_tokens": tokens, "total_tokens": tokens },
        "results": ranked.into_iter().map(result).collect::<Vec<_>>(),
    })))
}

/// Checks that the server ranks documents.
fn require_ranking(app: &App) -> Result<(), ApiError> {
    match app.pooling {
        Pooling::Rank => Ok(()),
        _ => Err(ApiError::unsupported(
            "this server computes embeddings, and no ranks of documents: start it with a reranker and \
             --reranking",
        )),
    }
}

fn text(name: &str, index: usize, value: &Value) -> Result<String, Failure> {
    let text = value.as_str().or_else(|| value.get("text")?.as_str());
    let place = format!("{name}[{index}]");
    let expected = "a string, or an object with the string \"text\"";
    text.map(str::to_string).ok_or_else(|| Failure::wrong(&place, expected, value))
}
