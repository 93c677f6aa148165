//! `/v1/chat/completions`: answers conversations.

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    response::{IntoResponse, Response},
};
use rope_cpu::{generate::End, sample::Probabilities};
use serde_json::{Value, json};

use super::tools::custom_input;
use crate::server::{
    answers::{Collected, Form, Framing, collect, stream},
    app::{App, Loaded},
    blocks::{Block, Change, Kind, Reader, Step, calls, text},
    chat::{Request, require_messages},
    error::ApiError,
    fields::Fields,
    identifier,
    job::{Update, Wanted},
    native::completion::Completion,
    probabilities::to_json,
    prompts::copies,
    request_fields,
    timings::{progress, timings, usage, while_reading},
};

/// Answers `POST /v1/chat/completions`.
pub async fn chat(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
    let fields = Fields::parse(&body)?;
    request_fields::CHAT.check(&fields)?;
    require_messages(&fields)?;
    let mut request = Request::read(&fields, &app).await?;
    if fields.switch("logprobs", false)? {
        let top = fields.count("top_logprobs", 20)?.unwrap_or(0);
        request.parameters.probabilities =
            Some(Wanted { top, after_sampling: false, of_prompt: false, of_end: false });
    } else if fields.get("top_logprobs").is_some() {
        return Err(ApiError::invalid("top_logprobs requires logprobs to be set to true"));
    }
    let count = usize::try_from(fields.whole("n", 1, 64)?.unwrap_or(1)).unwrap_or(1);
    let prompt_tokens = request.prompt.len();
    let prompts = copies("n", vec![std::mem::take(&mut request.prompt)], count)?;
    let form = Chat {
        id: identifier("chatcmpl-"),
        verbose: match fields.switch("verbose", app.options.verbose)? {
            true => {
                Some(Completion::new(&fields, &request.parameters, prompts.clone(), app.clone())?)
            }
            false => None,
        },
        usage: stream_options(&fields)?,
        reports_progress: fields.switch("return_progress", false)?,
        reports_timings: fields.switch("timings_per_token", false)?,
        prompt_tokens,
        readers: (0..count).map(|_| request.reader()).collect(),
        custom: custom_tools(&fields)?,
        cached: 0,
        generated: 0,
        times: Value::Null,
        app: app.clone(),
    };
    let updates = app.submit(prompts, &request.parameters)?;
    if fields.switch("stream", false)? {
        return Ok(stream(updates, count, form, Framing::EventsUntilDone));
    }
    let answers = collect(updates, count).await?;
    Ok(Json(form.whole(answers)).into_response())
}

/// Answers `POST /v1/chat/completions/input_tokens`.
pub async fn input_tokens(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    let fields = Fields::parse(&body)?;
    require_messages(&fields)?;
    super::responses::count(app, &fields).await
}

struct Chat {
    app: Arc<App>,
    id: String,
    /// Whether a stream ends with the usage.
    usage: bool,
    reports_progress: bool,
    reports_timings: bool,
    prompt_tokens: usize,
    /// llama-server's form of the answer, if it is wanted too.
    verbose: Option<Completion>,
    readers: Vec<Reader>,
    /// The names of custom tools.
    custom: Vec<String>,
    cached: usize,
    generated: usize,
    /// The timings of the answer that ended last.
    times: Value,
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

    fn whole(mut self, answers: Vec<Collected>) -> Value {
        let mut choices = Vec::new();
        let mut times = Value::Null;
        let readers = std::mem::take(&mut self.readers);
        let prompt_tokens = self.prompt_tokens * answers.len();
        let verbose = self.verbose.as_ref().zip(answers.first());
        let verbose = verbose.map(|(completion, first)| completion.whole(0, first));
        for (index, (answer, reader)) in answers.into_iter().zip(readers).enumerate() {
            let Some(outcome) = &answer.outcome else { continue };
            self.cached += outcome.timings.reused;
            self.generated += outcome.timings.generated;
            times = timings(&outcome.timings);
            let blocks = reader.read(&answer.text);
            let mut choice = json!({
                "index": index,
                "message": self.message(&blocks),
                "finish_reason": chat_finish_reason(&outcome.end, &blocks),
            });
            if !answer.probabilities.is_empty() {
                choice["logprobs"] = self.logprobs(&answer.probabilities);
            }
            choices.push(choice);
        }
        let mut body = self.body("chat.completion", choices);
        body["usage"] = usage(prompt_tokens, self.cached, self.generated);
        body["timings"] = times;
        if let Some(verbose) = verbose {
            body["__verbose"] = verbose;
        }
        body
    }

    fn logprobs(&self, probabilities: &[Probabilities]) -> Value {
        json!({ "content": probabilities.iter().map(|one| to_json(one, &self.app)).collect::<Vec<_>>() })
    }

    fn is_custom(&self, name: &str) -> bool {
        self.custom.iter().any(|custom| custom == name)
    }

    /// Returns the message of a whole answer.
    fn message(&self, blocks: &[Block]) -> Value {
        let mut message = json!({ "role": "assistant", "content": text(blocks, &Kind::Text) });
        let reasoning = text(blocks, &Kind::Reasoning);
        if !reasoning.is_empty() {
            message["reasoning_content"] = reasoning.into();
        }
        let calls = calls(blocks).map(|(id, name, text)| self.call(id, name, text));
        let calls: Vec<_> = calls.collect();
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        message
    }

    fn call(&self, id: &str, name: &str, arguments: &str) -> Value {
        if self.is_custom(name) {
            let custom = json!({ "name": name, "input": custom_input(arguments) });
            return json!({ "id": id, "type": "custom", "custom": custom });
        }
        json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
    }

    fn chunks(&self, index: usize, changes: Vec<Change>) -> Vec<Value> {
        let blocks = self.readers[index].blocks();
        let delta = |change: Change| {
            let block = &blocks[change.block];
            let begun = |mut call: Value| {
                call["index"] = calls(&blocks[..change.block]).count().into();
                json!({ "tool_calls": [call] })
            };
            match (&block.kind, change.step) {
                (Kind::Text, Step::More(text)) => Some(json!({ "content": text })),
                (Kind::Reasoning, Step::More(text)) => Some(json!({ "reasoning_content": text })),
                // The text of a custom tool is known at the end of its arguments.
                (Kind::Call { name, .. }, Step::Begin | Step::More(_)) if self.is_custom(name) => {
                    None
                }
                (Kind::Call { id, name }, Step::End) if self.is_custom(name) => {
                    Some(begun(self.call(id, name, &block.text)))
                }
                (Kind::Call { id, name }, Step::Begin) => Some(begun(self.call(id, name, ""))),
                (Kind::Call { .. }, Step::More(text)) => {
                    let call = calls(&blocks[..change.block]).count();
                    let call = json!({ "index": call, "function": { "arguments": text } });
                    Some(json!({ "tool_calls": [call] }))
                }
                (_, Step::Begin | Step::End) => None,
            }
        };
        changes.into_iter().filter_map(delta).map(|delta| self.chunk(index, delta)).collect()
    }
}

impl Form for Chat {
    fn begin(&mut self) -> Vec<Value> {
        let first = json!({ "role": "assistant", "content": null });
        (0..self.readers.len()).map(|index| self.chunk(index, first.clone())).collect()
    }

    fn update(&mut self, index: usize, update: Update) -> Vec<Value> {
        if let Some(completion) = &mut self.verbose {
            completion.record(index, &update);
        }
        match update {
            Update::Read(reading) if self.reports_progress => {
                let mut body = self.chunk(index, json!({}));
                body["prompt_progress"] = progress(&reading);
                if self.reports_timings {
                    body["timings"] = timings(&while_reading(&reading));
                }
                vec![body]
            }
            Update::Generated(generated) => {
                let changes = self.readers[index].push(&generated.text);
                let mut chunks = self.chunks(index, changes);
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
                let changes = self.readers[index].finish();
                let mut chunks = self.chunks(index, changes);
                let mut last = self.chunk(index, json!({}));
                let reason = chat_finish_reason(&outcome.end, self.readers[index].blocks());
                last["choices"][0]["finish_reason"] = reason.into();
                self.times = timings(&outcome.timings);
                if !self.usage {
                    last["timings"] = self.times.clone();
                }
                if let Some(completion) = &self.verbose {
                    last["__verbose"] = completion.end_of(index);
                }
                chunks.push(last);
                chunks
            }
            _ => Vec::new(),
        }
    }

    fn error(&mut self, error: &ApiError) -> Value {
        crate::server::openai::error(error)
    }

    fn alive(&mut self) -> Value {
        self.chunk(0, json!({}))
    }

    fn end(&mut self) -> Vec<Value> {
        if !self.usage {
            return Vec::new();
        }
        let mut body = self.body("chat.completion.chunk", Vec::new());
        let prompt = self.prompt_tokens * self.readers.len();
        body["usage"] = usage(prompt, self.cached, self.generated);
        body["timings"] = self.times.take();
        vec![body]
    }
}

/// Returns OpenAI's name for the end of an answer with these blocks.
fn chat_finish_reason(end: &End, blocks: &[Block]) -> &'static str {
    match finish_reason(end) {
        "stop" if calls(blocks).next().is_some() => "tool_calls",
        reason => reason,
    }
}

/// Returns OpenAI's name for the end of an answer.
pub fn finish_reason(end: &End) -> &'static str {
    match end {
        End::Model | End::Complete | End::Stop(_) | End::Caller => "stop",
        End::TokensMax | End::ContextFull => "length",
    }
}

/// Returns whether a stream ends with the usage.
pub fn stream_options(fields: &Fields) -> Result<bool, ApiError> {
    let options = fields.within("stream_options")?;
    options.map_or(Ok(false), |options| options.switch("include_usage", false))
}

/// Returns the names of the custom tools of a request.
fn custom_tools(fields: &Fields) -> Result<Vec<String>, ApiError> {
    let mut names = Vec::new();
    for tool in fields.objects("tools")?.unwrap_or_default() {
        if let Some(custom) = tool.within("custom")? {
            names.push(custom.required_text("name")?.to_string());
        }
    }
    Ok(names)
}
