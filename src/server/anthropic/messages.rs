//! `/v1/messages`: answers conversations.

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    response::{IntoResponse, Response},
};
use rope_cpu::{
    batch::{Outcome, Update},
    {generate::End, json},
};
use serde_json::{Map, Value, json};

use super::request;
use crate::server::{
    answers::{Form, stream},
    app::App,
    blocks::{Block, Change, Kind, Reader, Step, calls},
    error::ApiError,
    framing::Framing,
    identifier,
    models::Loaded,
    read::parse,
};

/// Answers `POST /v1/messages`.
pub async fn messages(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
    let fields: request::Messages = parse(&body)?;
    let streams = fields.chat.shared.stream.unwrap_or(false);
    let writes_cache = fields.writes_cache();
    let request = fields.into_request()?.prepare(&app)?;
    let form = Messages {
        id: identifier("msg_"),
        writes_cache,
        prompt_tokens: request.prompt.len(),
        reader: request.reader(),
        cached: None,
        app: app.clone(),
    };
    if streams {
        let updates = app.submit(vec![request.prompt], &request.parameters)?;
        return Ok(stream(updates, 1, form, Framing::NamedEvents));
    }
    let (text, outcome) = app.collect_one(request.prompt, &request.parameters).await?;
    Ok(Json(form.whole(&text, &outcome)).into_response())
}

/// Answers `POST /v1/messages/count_tokens`.
pub async fn count_tokens(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    let request = parse::<request::Messages>(&body)?.into_request()?;
    let prompt = request.render(&app)?.tokens(&app)?;
    Ok(Json(json!({ "input_tokens": prompt.len() })))
}

struct Messages {
    app: Arc<App>,
    id: String,
    /// Whether the request has a `cache_control`.
    writes_cache: bool,
    prompt_tokens: usize,
    reader: Reader,
    /// Number of cached tokens of the prompt; `None` before prompt processing.
    cached: Option<usize>,
}

impl Messages {
    /// Returns a message without its end.
    fn message(&self, cached: usize, content: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.app.alias,
            "content": content,
            "stop_reason": null,
            "stop_sequence": null,
            "usage": self.usage(cached, 0),
        })
    }

    fn usage(&self, cached: usize, generated: usize) -> Value {
        let read = self.prompt_tokens - cached;
        // The cache keeps every token, whether or not the request asks for it.
        let (written, other) = if self.writes_cache { (read, 0) } else { (0, read) };
        json!({
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": cached,
            "input_tokens": other,
            "output_tokens": generated,
        })
    }

    fn whole(self, text: &str, outcome: &Outcome) -> Value {
        let mut message = self.message(outcome.timings.reused, Vec::new());
        message["usage"] = self.usage(outcome.timings.reused, outcome.timings.generated);
        let blocks = self.reader.read(text);
        message["content"] = blocks.iter().map(|block| content(block, true)).collect();
        (message["stop_reason"], message["stop_sequence"]) = stop(&outcome.end, &blocks);
        message
    }

    fn events(&self, changes: Vec<Change>) -> Vec<Value> {
        let mut events = Vec::new();
        for Change { block: index, step } in changes {
            let block = &self.reader.blocks()[index];
            let mut event = |kind: &str, name: &str, value| {
                events.push(json!({ "type": kind, "index": index, name: value }));
            };
            match (step, &block.kind) {
                (Step::Begin, _) => {
                    event("content_block_start", "content_block", content(block, false));
                }
                (Step::More(text), kind) => {
                    let delta = match kind {
                        Kind::Text => json!({ "type": "text_delta", "text": text }),
                        Kind::Reasoning => json!({ "type": "thinking_delta", "thinking": text }),
                        Kind::Call { .. } => {
                            json!({ "type": "input_json_delta", "partial_json": text })
                        }
                    };
                    event("content_block_delta", "delta", delta);
                }
                (Step::End, kind) => {
                    if *kind == Kind::Reasoning {
                        // Clients expect a signature, and return it.
                        let signature = json!({ "type": "signature_delta", "signature": "" });
                        event("content_block_delta", "delta", signature);
                    }
                    events.push(json!({ "type": "content_block_stop", "index": index }));
                }
            }
        }
        events
    }
}

impl Form for Messages {
    fn update(&mut self, _: usize, update: Update) -> Vec<Value> {
        match update {
            Update::Read(reading) if self.cached.is_none() => {
                self.cached = Some(reading.cached);
                let message = self.message(reading.cached, Vec::new());
                vec![json!({ "type": "message_start", "message": message })]
            }
            Update::Generated(generated) => {
                let changes = self.reader.push(&generated.text);
                self.events(changes)
            }
            Update::Ended(outcome) => {
                let changes = self.reader.finish();
                let mut events = self.events(changes);
                let (stop_reason, stop_sequence) = stop(&outcome.end, self.reader.blocks());
                events.push(json!({
                    "type": "message_delta",
                    "delta": { "stop_reason": stop_reason, "stop_sequence": stop_sequence },
                    // All counts, since LangChain reads them here.
                    "usage": self.usage(outcome.timings.reused, outcome.timings.generated),
                }));
                events.push(json!({ "type": "message_stop" }));
                events
            }
            _ => Vec::new(),
        }
    }

    fn alive(&mut self) -> Value {
        json!({ "type": "ping" })
    }

    fn error(&mut self, error: &ApiError) -> Value {
        super::error(error)
    }
}

/// Returns a block. Without `whole`, its text is empty.
fn content(block: &Block, whole: bool) -> Value {
    let text = if whole { block.text.as_str() } else { "" };
    match &block.kind {
        Kind::Text => json!({ "type": "text", "text": text }),
        Kind::Reasoning => json!({ "type": "thinking", "thinking": text, "signature": "" }),
        Kind::Call { id, name } => {
            // The arguments of a truncated call are not JSON.
            let input: Map<String, Value> = json::parse(text).unwrap_or_default();
            json!({ "type": "tool_use", "id": id, "name": name, "input": input })
        }
    }
}

/// Returns why an answer with these blocks ended, and the stop string.
fn stop(end: &End, blocks: &[Block]) -> (Value, Value) {
    match end {
        End::Stop(text) => ("stop_sequence".into(), text.as_str().into()),
        End::Model | End::Complete | End::Caller if calls(blocks).next().is_some() => {
            ("tool_use".into(), Value::Null)
        }
        End::Model | End::Complete | End::Caller => ("end_turn".into(), Value::Null),
        End::TokensMax | End::ContextFull => ("max_tokens".into(), Value::Null),
    }
}
