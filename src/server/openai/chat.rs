//! `/v1/chat/completions`: answers conversations.

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    response::{IntoResponse, Response, sse::Event},
};
use rope_cpu::generate::End;
use serde_json::{Value, json};

use crate::server::{
    answers::{Collected, Form, collect, json_event, stream},
    app::{App, Loaded},
    chat::{Conversation, Piece, Reader},
    error::ApiError,
    fields::Fields,
    identifier,
    job::{Update, Wanted},
    parameters::Parameters,
    probabilities::Probabilities,
    timings::{progress, timings, usage},
};

/// The names of the largest number of tokens of an answer.
pub const NAMES_OF_MAX: [&str; 3] = ["max_completion_tokens", "max_tokens", "n_predict"];

/// Answers `POST /v1/chat/completions`.
pub async fn chat(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
    let fields = Fields::parse(&body)?;
    let mut parameters = Parameters::read(&fields, &app, &NAMES_OF_MAX)?;
    if fields.switch("logprobs", false)? {
        let top = fields.count("top_logprobs", 20)?.unwrap_or(0);
        parameters.probabilities = Some(Wanted { top, after_sampling: false });
    } else if fields.get("top_logprobs").is_some() {
        return Err(ApiError::invalid("top_logprobs requires logprobs to be set to true"));
    }
    let copies = usize::try_from(fields.whole("n", 1, 64)?.unwrap_or(1)).unwrap_or(1);
    let prompt = Conversation::read(&fields)?.prompt(app.clone()).await?;
    let form = Chat {
        id: identifier("chatcmpl-"),
        usage: stream_options(&fields)?,
        reports_progress: fields.switch("return_progress", false)?,
        reports_timings: fields.switch("timings_per_token", false)?,
        prompt_tokens: prompt.len(),
        readers: (0..copies).map(|_| Reader::default()).collect(),
        cached: 0,
        generated: 0,
        app: app.clone(),
    };
    let updates = app.submit(vec![prompt; copies], &parameters)?;
    if fields.switch("stream", false)? {
        return Ok(stream(updates, copies, form));
    }
    let answers = collect(updates, copies).await?;
    Ok(Json(form.whole(&answers)).into_response())
}

struct Chat {
    app: Arc<App>,
    id: String,
    /// Whether a stream ends with the usage.
    usage: bool,
    reports_progress: bool,
    reports_timings: bool,
    prompt_tokens: usize,
    readers: Vec<Reader>,
    cached: usize,
    generated: usize,
}

impl Chat {
    fn body(&self, object: &str, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": crate::server::now(),
            "model": self.app.alias,
            "system_fingerprint": crate::server::FINGERPRINT,
            "choices": choices,
        })
    }

    fn chunk(&self, index: usize, delta: Value) -> Value {
        let choice = json!({ "index": index, "delta": delta, "finish_reason": null });
        self.body("chat.completion.chunk", vec![choice])
    }

    fn whole(&self, answers: &[Collected]) -> Value {
        let mut choices = Vec::new();
        let (mut cached, mut generated, mut times) = (0, 0, Value::Null);
        for (index, answer) in answers.iter().enumerate() {
            let Some(outcome) = &answer.outcome else { continue };
            cached += outcome.timings.reused;
            generated += outcome.timings.generated;
            times = timings(&outcome.timings);
            let mut reader = Reader::default();
            let mut pieces = reader.push(&answer.text);
            pieces.extend(reader.finish());
            let mut choice = json!({
                "index": index,
                "message": message(&pieces),
                "finish_reason": finish_reason(&outcome.end),
            });
            if !answer.probabilities.is_empty() {
                choice["logprobs"] = self.logprobs(&answer.probabilities);
            }
            choices.push(choice);
        }
        let mut body = self.body("chat.completion", choices);
        body["usage"] = usage(self.prompt_tokens * answers.len(), cached, generated);
        body["timings"] = times;
        body
    }

    fn logprobs(&self, probabilities: &[Probabilities]) -> Value {
        json!({ "content": probabilities.iter().map(|one| one.to_json(&self.app)).collect::<Vec<_>>() })
    }

    fn deltas(&self, index: usize, pieces: Vec<Piece>) -> Vec<Value> {
        let delta = |piece| match piece {
            Piece::Text(text) => json!({ "content": text }),
        };
        pieces.into_iter().map(|piece| self.chunk(index, delta(piece))).collect()
    }
}

impl Form for Chat {
    fn begin(&mut self) -> Vec<Event> {
        let first = json!({ "role": "assistant", "content": null });
        (0..self.readers.len()).map(|index| json_event(&self.chunk(index, first.clone()))).collect()
    }

    fn update(&mut self, index: usize, update: Update) -> Vec<Event> {
        let mut chunks = match update {
            Update::Read(reading) if self.reports_progress => {
                let mut body = self.chunk(index, json!({}));
                body["prompt_progress"] = progress(&reading);
                vec![body]
            }
            Update::Generated(generated) => {
                let pieces = self.readers[index].push(&generated.text);
                let mut chunks = self.deltas(index, pieces);
                if let Some(probabilities) = &generated.probabilities {
                    if chunks.is_empty() {
                        chunks.push(self.chunk(index, json!({ "content": "" })));
                    }
                    let logprobs = self.logprobs(std::slice::from_ref(probabilities));
                    chunks[0]["choices"][0]["logprobs"] = logprobs;
                }
                if self.reports_timings {
                    for chunk in &mut chunks {
                        chunk["timings"] = timings(&generated.timings);
                    }
                }
                chunks
            }
            Update::Ended(outcome) => {
                self.cached += outcome.timings.reused;
                self.generated += outcome.timings.generated;
                let pieces = self.readers[index].finish();
                let mut chunks = self.deltas(index, pieces);
                let mut last = self.chunk(index, json!({}));
                last["choices"][0]["finish_reason"] = finish_reason(&outcome.end).into();
                last["timings"] = timings(&outcome.timings);
                chunks.push(last);
                chunks
            }
            Update::Started { .. } | Update::Read(_) | Update::Failed(_) => Vec::new(),
        };
        chunks.drain(..).map(|chunk| json_event(&chunk)).collect()
    }

    fn end(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        if self.usage {
            let mut body = self.body("chat.completion.chunk", Vec::new());
            let prompt = self.prompt_tokens * self.readers.len();
            body["usage"] = usage(prompt, self.cached, self.generated);
            events.push(json_event(&body));
        }
        events.push(Event::default().data("[DONE]"));
        events
    }
}

/// Returns the message of a whole answer.
fn message(pieces: &[Piece]) -> Value {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(more) => text += more,
        }
    }
    json!({ "role": "assistant", "content": text })
}

/// Returns OpenAI's name for the end of an answer.
pub fn finish_reason(end: &End) -> &'static str {
    match end {
        End::Model | End::Stop(_) | End::Caller => "stop",
        End::TokensMax | End::ContextFull => "length",
    }
}

/// Returns whether a stream ends with the usage.
pub fn stream_options(fields: &Fields) -> Result<bool, ApiError> {
    let options = fields.object("stream_options")?.cloned().map(Fields::of);
    options.map_or(Ok(false), |options| options.switch("include_usage", false))
}
