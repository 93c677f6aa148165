//! `/api/chat` and `/api/generate`: answers conversations and prompts.

use std::{sync::Arc, time::Instant};

use axum::{
    Json,
    body::Bytes,
    response::{IntoResponse, Response},
};
use rope_cpu::{
    batch::{Outcome, Update},
    generate::End,
    tokenizer::{Ends, Special},
};
use serde_json::{Value, json};

use super::{
    now,
    request::{Ollama, arguments},
};
use crate::server::{
    answers::{Form, stream},
    app::App,
    blocks::{Change, Kind, Reader, Step, calls, text},
    chat::Request,
    error::ApiError,
    framing::Framing,
    models::Loaded,
    native::infill,
    read::parse,
};

/// Answers `POST /api/chat`.
pub async fn chat(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
    let mut request: Ollama = parse(&body)?;
    request.fields.prompt = None;
    if request.fields.messages.is_empty() {
        return Ok(loaded(&app, Place::Message, &request));
    }
    let streams = request.streams();
    let request = request.into_request(&app)?.prepare(&app)?;
    answer(app, streams, request, Place::Message).await
}

/// Answers `POST /api/generate`.
pub async fn generate(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
    let request: Ollama = parse(&body)?;
    let prompt = request.fields.prompt.clone().unwrap_or_default();
    if prompt.is_empty() {
        return Ok(loaded(&app, Place::Response, &request));
    }
    let streams = request.streams();
    let suffix = request.fields.suffix.clone().unwrap_or_default();
    let is_raw = request.fields.raw.unwrap_or(false);
    let chat = request.into_request(&app)?;
    let request = match is_raw {
        _ if !suffix.is_empty() => {
            let prompt = infill::before_suffix(app.tokenizer()?, &prompt, &suffix)?;
            Request::of_prompt(prompt, chat.parameters(&app)?)
        }
        true => {
            let prompt = app.tokenizer()?.encode(&prompt, Special::Parse, Ends::Add);
            Request::of_prompt(prompt, chat.parameters(&app)?)
        }
        false => chat.prepare(&app)?,
    };
    answer(app, streams, request, Place::Response).await
}

async fn answer(
    app: Arc<App>,
    streams: bool,
    request: Request,
    place: Place,
) -> Result<Response, ApiError> {
    let mut form = Lines {
        place,
        started: Instant::now(),
        prompt_tokens: request.prompt.len(),
        reader: request.reader(),
        app: app.clone(),
    };
    if streams {
        let updates = app.submit(vec![request.prompt], &request.parameters)?;
        return Ok(stream(updates, 1, form, Framing::Lines));
    }
    let (answer, outcome) = app.collect_one(request.prompt, &request.parameters).await?;
    form.reader.push(&answer);
    form.reader.finish();
    let blocks = form.reader.blocks();
    let mut body = form.last(&outcome);
    place.set(&mut body, "content", text(blocks, &Kind::Text).into());
    let reasoning = text(blocks, &Kind::Reasoning);
    if !reasoning.is_empty() {
        place.set(&mut body, "thinking", reasoning.into());
    }
    let calls: Vec<_> =
        calls(blocks).map(|(id, name, block)| call(id, name, &block.text)).collect();
    if !calls.is_empty() {
        place.set(&mut body, "tool_calls", calls.into());
    }
    Ok(Json(body).into_response())
}

/// The field with the text of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In `message`.
    Message,
    /// In `response`.
    Response,
}

impl Place {
    /// Returns the place in the answers of a path.
    fn of(path: &str) -> Self {
        if path == "/api/generate" { Place::Response } else { Place::Message }
    }

    /// Sets a field of the message of a line.
    fn set(self, line: &mut Value, name: &str, value: Value) {
        match self {
            Place::Message => line["message"][name] = value,
            Place::Response if name == "content" => line["response"] = value,
            Place::Response => line[name] = value,
        }
    }
}

struct Lines {
    app: Arc<App>,
    place: Place,
    started: Instant,
    prompt_tokens: usize,
    reader: Reader,
}

impl Lines {
    /// Returns the last line, without text.
    fn last(&self, outcome: &Outcome) -> Value {
        let timings = &outcome.timings;
        let mut line = line(&self.app.alias, self.place, true);
        line["done_reason"] = match outcome.end {
            End::Model | End::Complete | End::Stop(_) | End::Caller => "stop".into(),
            End::TokensMax | End::ContextFull => "length".into(),
        };
        for (name, time) in [
            ("total_duration", self.started.elapsed()),
            ("prompt_eval_duration", timings.reading),
            ("eval_duration", timings.generating),
        ] {
            line[name] = (time.as_nanos() as u64).into();
        }
        line["load_duration"] = 0.into();
        line["prompt_eval_count"] = self.prompt_tokens.into();
        line["eval_count"] = timings.generated.into();
        line
    }

    fn changed(&self, changes: Vec<Change>) -> Vec<Value> {
        let lines = changes.into_iter().filter_map(|change| {
            let block = &self.reader.blocks()[change.block];
            let (name, value) = match (change.step, &block.kind) {
                (Step::More(text), Kind::Text) => ("content", text.into()),
                (Step::More(text), Kind::Reasoning) => ("thinking", text.into()),
                (Step::End, Kind::Call { id, name }) => {
                    ("tool_calls", json!([call(id, name, &block.text)]))
                }
                _ => return None,
            };
            let mut line = line(&self.app.alias, self.place, false);
            self.place.set(&mut line, name, value);
            Some(line)
        });
        lines.collect()
    }
}

impl Form for Lines {
    fn update(&mut self, _: usize, update: Update) -> Vec<Value> {
        match update {
            Update::Generated(generated) => {
                let changes = self.reader.push(&generated.text);
                self.changed(changes)
            }
            Update::Ended(outcome) => {
                let changes = self.reader.finish();
                let mut lines = self.changed(changes);
                lines.push(self.last(&outcome));
                lines
            }
            _ => Vec::new(),
        }
    }

    fn alive(&mut self) -> Value {
        line(&self.app.alias, self.place, false)
    }

    fn error(&mut self, error: &ApiError) -> Value {
        super::error(error)
    }
}

/// Returns a line without text.
fn line(alias: &str, place: Place, done: bool) -> Value {
    let (name, empty) = match place {
        Place::Message => ("message", json!({ "role": "assistant", "content": "" })),
        Place::Response => ("response", json!("")),
    };
    json!({ "model": alias, "created_at": now(), name: empty, "done": done })
}

/// Answers a request without a prompt. Clients send it to load or unload a model.
fn loaded(app: &App, place: Place, request: &Ollama) -> Response {
    let keep_alive = request.fields.keep_alive.as_ref();
    let unload = keep_alive.and_then(Value::as_f64) == Some(0.0);
    let mut line = line(&app.alias, place, true);
    line["done_reason"] = if unload { "unload" } else { "load" }.into();
    Json(line).into_response()
}

/// Answers a request that unloads a model, at this path.
pub fn unloaded(path: &str, name: &str) -> Response {
    let mut line = line(name, Place::of(path), true);
    line["done_reason"] = "unload".into();
    Json(line).into_response()
}

/// Returns a line of a stream while its model is being loaded.
pub fn waiting(path: &str, name: &str) -> Value {
    line(name, Place::of(path), false)
}

fn call(id: &str, name: &str, text: &str) -> Value {
    json!({ "id": id, "function": { "name": name, "arguments": arguments(text) } })
}
