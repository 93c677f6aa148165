//! `/v1/responses`: answers conversations made of items.

mod echoed;
mod items;
pub mod request;

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    extract::Path,
    response::{IntoResponse, Response},
};
use rope_cpu::{
    batch::{Outcome, Update},
    generate::End,
    tokenizer::{Ends, Special},
};
use serde_json::{Map, Value, json};

use self::echoed::Echoed;
use crate::server::{
    answers::{Form, stream},
    app::App,
    blocks::{Block, Change, Kind, Reader, Step},
    chat::ChatRequest,
    error::ApiError,
    framing::Framing,
    identifier,
    models::Loaded,
    openai::tools::{self, Declared},
    read::parse,
    timings::{Streamed, progress, timings},
};

/// Answers `POST /v1/responses`.
pub async fn responses(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
    let fields: request::Responses = parse(&body)?;
    let echoed = parse::<Echoed>(&body)?.fields();
    let streamed = fields.streamed.clone();
    let streams = fields.chat.shared.stream.unwrap_or(false);
    let (request, declared) = fields.into_request()?;
    let request = request.prepare(&app)?;
    let form = Responses {
        id: identifier("resp_"),
        created: crate::server::now(),
        items: Vec::new(),
        events: 0,
        streamed,
        prompt_tokens: request.prompt.len(),
        reader: request.reader(),
        declared,
        echoed,
        is_cut: false,
        app: app.clone(),
    };
    if streams {
        let updates = app.submit(vec![request.prompt], &request.parameters)?;
        return Ok(stream(updates, 1, form, Framing::NamedEvents));
    }
    let (text, outcome) = app.collect_one(request.prompt, &request.parameters).await?;
    Ok(Json(form.whole(&text, &outcome)).into_response())
}

/// Answers `GET /v1/responses/{id}`: no response is stored.
pub async fn stored(Path(id): Path<String>) -> ApiError {
    ApiError::not_found(format_args!(
        "the response {id:?} does not exist: responses are not stored; send the whole conversation"
    ))
}

/// Answers `POST /v1/responses/input_tokens`.
pub async fn input_tokens(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    count(&app, parse::<request::Responses>(&body)?.into_request()?.0)
}

/// Returns the number of tokens of a conversation.
pub fn count(app: &App, request: ChatRequest) -> Result<Json<Value>, ApiError> {
    let tokens = request.render(app)?.tokens(app)?.len();
    Ok(Json(json!({ "object": "response.input_tokens", "input_tokens": tokens })))
}

struct Responses {
    app: Arc<App>,
    id: String,
    created: u64,
    /// Identifiers of the items, one per block of the answer.
    items: Vec<String>,
    /// The number of events sent.
    events: usize,
    streamed: Streamed,
    prompt_tokens: usize,
    reader: Reader,
    /// The tools as the client declared them.
    declared: Declared,
    /// Fields of the request that the response repeats.
    echoed: Map<String, Value>,
    /// Whether the answer ended at a limit.
    is_cut: bool,
}

impl Responses {
    /// Returns a response in progress.
    fn response(&self) -> Value {
        let mut response = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": "in_progress",
            "error": null,
            "incomplete_details": null,
            "model": self.app.alias,
            "output": [],
            "usage": null,
            "store": false,
            "background": false,
            "previous_response_id": null,
            "truncation": "disabled",
        });
        if let Some(fields) = response.as_object_mut() {
            fields.extend(self.echoed.clone());
        }
        response
    }

    /// Returns the number of tokens of the reasoning in an answer.
    fn reasoning_tokens(&self, blocks: &[Block]) -> usize {
        let reasoning = blocks.iter().filter(|block| block.kind == Kind::Reasoning);
        let Ok(tokenizer) = self.app.tokenizer() else { return 0 };
        let count = |block: &Block| {
            tokenizer.encode(block.text.as_bytes(), Special::AsText, Ends::Omit).len()
        };
        reasoning.map(count).sum()
    }

    fn ended(&self, blocks: &[Block], outcome: &Outcome) -> Value {
        let items = blocks.iter().zip(&self.items);
        let items = items.map(|(block, id)| self.item(block, id, self.status(block)));
        let (cached, generated) = (outcome.timings.reused, outcome.timings.generated);
        let mut response = self.response();
        response["completed_at"] = crate::server::now().into();
        response["output"] = items.collect();
        response["status"] = "completed".into();
        if self.is_cut {
            response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
            response["status"] = "incomplete".into();
        }
        response["usage"] = json!({
            "input_tokens": self.prompt_tokens,
            "input_tokens_details": { "cached_tokens": cached },
            "output_tokens": generated,
            "output_tokens_details": { "reasoning_tokens": self.reasoning_tokens(blocks) },
            "total_tokens": self.prompt_tokens + generated,
        });
        response
    }

    fn whole(mut self, text: &str, outcome: &Outcome) -> Value {
        self.is_cut = is_cut(&outcome.end);
        let blocks = std::mem::take(&mut self.reader).read(text);
        self.items = blocks.iter().map(|block| identifier(self.prefix(&block.kind))).collect();
        self.ended(&blocks, outcome)
    }

    /// Returns the events of changes of blocks.
    fn changed(&mut self, changes: Vec<Change>) -> Vec<Value> {
        let mut events = Vec::new();
        for Change { block: index, step } in changes {
            let block = &self.reader.blocks()[index];
            if step == Step::Begin {
                let prefix = self.prefix(&block.kind);
                self.items.push(identifier(prefix));
            }
            let id = &self.items[index];
            let mut event = |kind: &str, name: &str, value: Value| {
                let mut event =
                    json!({ "type": format!("response.{kind}"), "output_index": index });
                if !kind.starts_with("output_item") {
                    event["item_id"] = id.as_str().into();
                }
                if matches!(block.kind, Kind::Text | Kind::Reasoning) {
                    event["content_index"] = 0.into();
                }
                event[name] = value;
                events.push(event);
            };
            let text = block.text.as_str();
            match (step, &block.kind) {
                (Step::Begin, kind) => {
                    let empty = Block::new(kind.clone());
                    event("output_item.added", "item", self.item(&empty, id, "in_progress"));
                    if *kind == Kind::Text {
                        event("content_part.added", "part", part(""));
                    }
                }
                (Step::More(text), Kind::Text) => {
                    event("output_text.delta", "delta", text.into());
                }
                (Step::More(text), Kind::Reasoning) => {
                    event("reasoning_text.delta", "delta", text.into());
                }
                (Step::More(text), Kind::Call { name, .. }) => {
                    // Another tool's text is known only once its arguments are complete.
                    if self.declared.origin(name).kind == tools::Kind::Function {
                        event("function_call_arguments.delta", "delta", text.into());
                    }
                }
                (Step::End, kind) => {
                    match kind {
                        Kind::Text => {
                            event("output_text.done", "text", text.into());
                            event("content_part.done", "part", part(text));
                        }
                        Kind::Reasoning => event("reasoning_text.done", "text", text.into()),
                        Kind::Call { name, .. } => match self.declared.origin(name).kind {
                            tools::Kind::Function => {
                                event("function_call_arguments.done", "arguments", text.into());
                            }
                            tools::Kind::Custom => {
                                let input = tools::custom_input(text, block.is_open);
                                event(
                                    "custom_tool_call_input.delta",
                                    "delta",
                                    input.clone().into(),
                                );
                                event("custom_tool_call_input.done", "input", input.into());
                            }
                            tools::Kind::LocalShell => {}
                        },
                    }
                    event("output_item.done", "item", self.item(block, id, self.status(block)));
                }
            }
        }
        events
    }

    /// Returns the prefix of the identifier of an item.
    fn prefix(&self, kind: &Kind) -> &'static str {
        match kind {
            Kind::Text => "msg_",
            Kind::Reasoning => "rs_",
            Kind::Call { name, .. } => match self.declared.origin(name).kind {
                tools::Kind::Function => "fc_",
                tools::Kind::Custom => "ctc_",
                tools::Kind::LocalShell => "lsh_",
            },
        }
    }

    /// Returns the status of the item of a block that has ended.
    fn status(&self, block: &Block) -> &'static str {
        if self.is_cut && block.is_open { "incomplete" } else { "completed" }
    }

    /// Returns a block as an item.
    fn item(&self, block: &Block, id: &str, status: &str) -> Value {
        let text = block.text.as_str();
        let parts = |part: Value| if text.is_empty() { json!([]) } else { json!([part]) };
        let (call, name) = match &block.kind {
            Kind::Text => {
                return json!({
                    "id": id, "type": "message", "status": status, "role": "assistant",
                    "content": parts(part(text)),
                });
            }
            Kind::Reasoning => {
                return json!({
                    "id": id, "type": "reasoning", "status": status, "summary": [],
                    "content": parts(json!({ "type": "reasoning_text", "text": text })),
                });
            }
            Kind::Call { id, name } => (id, name),
        };
        let origin = self.declared.origin(name);
        let mut item = json!({ "id": id, "type": "", "status": status, "call_id": call });
        match origin.kind {
            tools::Kind::Function => {
                item["type"] = "function_call".into();
                item["name"] = origin.name.into();
                item["arguments"] = text.into();
            }
            tools::Kind::Custom => {
                item["type"] = "custom_tool_call".into();
                item["name"] = origin.name.into();
                item["input"] = tools::custom_input(text, block.is_open).into();
            }
            tools::Kind::LocalShell => {
                item["type"] = "local_shell_call".into();
                item["action"] = tools::shell_action(text);
            }
        }
        if let Some(namespace) = origin.namespace {
            item["namespace"] = namespace.into();
        }
        item
    }

    /// Numbers events.
    fn numbered(&mut self, mut events: Vec<Value>) -> Vec<Value> {
        for event in &mut events {
            event["sequence_number"] = self.events.into();
            self.events += 1;
        }
        events
    }
}

impl Form for Responses {
    fn begin(&mut self, _: usize) -> Vec<Value> {
        let events = ["response.created", "response.in_progress"];
        let events = events.map(|kind| json!({ "type": kind, "response": self.response() }));
        self.numbered(events.into())
    }

    fn update(&mut self, _: usize, update: Update) -> Vec<Value> {
        let events = match update {
            Update::Read(reading) if self.streamed.progress() => vec![json!({
                "type": "response.in_progress",
                "response": self.response(),
                "prompt_progress": progress(&reading),
            })],
            Update::Generated(generated) => {
                let changes = self.reader.push(&generated.text);
                let mut events = self.changed(changes);
                if self.streamed.timings() {
                    for event in &mut events {
                        event["timings"] = timings(&generated.timings);
                    }
                }
                events
            }
            Update::Ended(outcome) => {
                self.is_cut = is_cut(&outcome.end);
                let changes = self.reader.finish();
                let mut events = self.changed(changes);
                events.push(json!({
                    "type": if self.is_cut { "response.incomplete" } else { "response.completed" },
                    "response": self.ended(self.reader.blocks(), &outcome),
                    "timings": timings(&outcome.timings),
                }));
                events
            }
            _ => Vec::new(),
        };
        self.numbered(events)
    }

    fn alive(&mut self) -> Value {
        let event = json!({ "type": "response.in_progress", "response": self.response() });
        self.numbered(vec![event]).pop().unwrap_or_default()
    }

    fn error(&mut self, error: &ApiError) -> Value {
        let mut response = self.response();
        response["status"] = "failed".into();
        response["error"] = json!({ "code": error.kind, "message": error.message });
        json!({
            "type": "response.failed",
            "response": response,
            "sequence_number": self.events,
        })
    }
}

/// Returns whether an answer ended at a limit.
fn is_cut(end: &End) -> bool {
    match end {
        End::Model | End::Complete | End::Stop(_) | End::Caller => false,
        End::TokensMax | End::ContextFull => true,
    }
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}
