//! `/v1/chat/completions`: answers conversations.

mod messages;
pub mod request;
pub mod tools;

use std::sync::Arc;

use axum::{Json, body::Bytes, response::Response};
use rope_cpu::{
    batch::{Update, Wanted},
    {generate::End, sample::Probabilities},
};
use serde_json::{Value, json};

use self::request::{Completions, StreamOptions};
use super::message::Calls;
use crate::server::{
    answers::{Collected, Form, stream},
    app::App,
    blocks::{Change, Reader},
    error::ApiError,
    framing::Framing,
    identifier,
    lazy::Lazy,
    models::Loaded,
    native::completion::Completion,
    probabilities::{self, to_json},
    prompts::copies,
    read::{Whole, parse},
    timings::{Streamed, Usage, progress, timings, while_reading},
};

/// Answers `POST /v1/chat/completions`.
pub async fn chat(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
    let fields: Completions = parse(&body)?;
    let report = fields.report.clone();
    let streams = fields.chat.shared.stream.unwrap_or(false);
    let reports_usage = StreamOptions::reports_usage(fields.stream_options.as_ref());
    let is_verbose = fields.verbose.unwrap_or(app.options.listen.verbose);
    let calls = Calls { custom: fields.custom_tools(), of_functions: !fields.functions.is_empty() };
    let count = fields.n.and_then(Whole::count).unwrap_or(1);
    let probabilities = match (fields.logprobs.unwrap_or(false), fields.top_logprobs) {
        (true, top) => {
            let top = top.and_then(Whole::count).unwrap_or(0);
            Some(Wanted { top, after_sampling: false, of_prompt: false, of_end: false })
        }
        (false, Some(_)) => {
            return Err(ApiError::invalid("top_logprobs requires logprobs to be set to true"));
        }
        (false, None) => None,
    };
    let mut request = fields.into_request()?.prepare(&app)?;
    let answer = &mut request.parameters.request;
    answer.probabilities = probabilities.or(answer.probabilities);
    let prompts = copies("n", vec![std::mem::take(&mut request.prompt)], count)?;
    let form = Chat {
        id: identifier("chatcmpl-"),
        verbose: match is_verbose {
            true => {
                Some(Completion::new(&report, &request.parameters, prompts.clone(), app.clone())?)
            }
            false => None,
        },
        reports_usage,
        streamed: report.streamed.clone(),
        usage: Usage::new(&prompts, count),
        readers: (0..count).map(|_| request.reader()).collect(),
        calls,
        times: Value::Null,
        app: app.clone(),
    };
    if streams {
        let updates = app.submit(prompts, &request.parameters)?;
        return Ok(stream(updates, count, form, Framing::EventsUntilDone));
    }
    let (answers, held) = app.collect(prompts, &request.parameters).await?;
    Ok(form.whole(answers).response(held))
}

/// Answers `POST /v1/chat/completions/input_tokens`.
pub async fn input_tokens(Loaded(app): Loaded, body: Bytes) -> Result<Json<Value>, ApiError> {
    super::responses::count(&app, parse::<Completions>(&body)?.into_request()?)
}

struct Chat {
    app: Arc<App>,
    id: String,
    /// Whether the last event of a stream has the usage.
    reports_usage: bool,
    streamed: Streamed,
    usage: Usage,
    /// llama-server's form of the answer, if the request asks for it.
    verbose: Option<Completion>,
    readers: Vec<Reader>,
    calls: Calls,
    /// Timings of the answer that ended last.
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

    fn whole(mut self, answers: Vec<Arc<Collected>>) -> Lazy {
        let mut times = Value::Null;
        for (index, answer) in answers.iter().enumerate() {
            let Some(outcome) = &answer.outcome else { continue };
            self.usage.add(index, &outcome.timings);
            times = timings(&outcome.timings);
        }
        let mut body = self.body("chat.completion", Vec::new());
        body["usage"] = self.usage.to_json();
        body["timings"] = times;
        let verbose = self.verbose.take().zip(answers.first());
        let verbose = verbose.map(|(form, first)| ("__verbose", form.whole(0, first)));
        let readers = std::mem::take(&mut self.readers);
        let choices = answers.into_iter().zip(readers).enumerate();
        let choices =
            choices.map(move |(index, (answer, reader))| self.choice(index, &answer, reader));
        let large = [("choices", Lazy::list(choices))].into_iter().chain(verbose);
        Lazy::object(body, large.collect())
    }

    fn choice(&self, index: usize, answer: &Arc<Collected>, reader: Reader) -> Lazy {
        let blocks = reader.read(&answer.text);
        let end = answer.outcome.as_ref().map(|outcome| &outcome.end);
        let choice = json!({
            "index": index,
            "message": self.calls.message(&blocks),
            "finish_reason": end.map(|end| self.calls.finish_reason(end, &blocks)),
        });
        let mut large = Vec::new();
        if !answer.probabilities.is_empty() {
            let content = probabilities::list(answer.clone(), self.app.clone());
            large.push(("logprobs", Lazy::object(json!({}), vec![("content", content)])));
        }
        Lazy::object(choice, large)
    }

    fn logprobs(&self, probabilities: &Probabilities) -> Value {
        json!({ "content": [to_json(probabilities, &self.app)] })
    }

    fn chunks(&self, index: usize, changes: Vec<Change>) -> Vec<Value> {
        let blocks = self.readers[index].blocks();
        let deltas = changes.into_iter().filter_map(|change| self.calls.delta(blocks, change));
        deltas.map(|delta| self.chunk(index, delta)).collect()
    }
}

impl Form for Chat {
    fn begin(&mut self, index: usize) -> Vec<Value> {
        vec![self.chunk(index, json!({ "role": "assistant", "content": null }))]
    }

    fn update(&mut self, index: usize, update: Update) -> Vec<Value> {
        if let Some(completion) = &mut self.verbose {
            completion.record(index, &update);
        }
        match update {
            Update::Read(reading) if self.streamed.progress() => {
                let mut body = self.chunk(index, json!({}));
                body["prompt_progress"] = progress(&reading);
                if self.streamed.timings() {
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
                    let logprobs = self.logprobs(probabilities);
                    chunks[0]["choices"][0]["logprobs"] = logprobs;
                }
                if self.streamed.timings() {
                    for chunk in &mut chunks {
                        chunk["timings"] = timings(&generated.timings);
                    }
                }
                chunks
            }
            Update::Ended(outcome) => {
                self.usage.add(index, &outcome.timings);
                let changes = self.readers[index].finish();
                let mut chunks = self.chunks(index, changes);
                let mut last = self.chunk(index, json!({}));
                let reason = self.calls.finish_reason(&outcome.end, self.readers[index].blocks());
                last["choices"][0]["finish_reason"] = reason.into();
                self.times = timings(&outcome.timings);
                if !self.reports_usage {
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
        if !self.reports_usage {
            return Vec::new();
        }
        let mut body = self.body("chat.completion.chunk", Vec::new());
        body["usage"] = self.usage.to_json();
        body["timings"] = self.times.take();
        vec![body]
    }
}

/// Returns OpenAI's name for how an answer ended.
pub fn finish_reason(end: &End) -> &'static str {
    match end {
        End::Model | End::Complete | End::Stop(_) | End::Caller => "stop",
        End::TokensMax | End::ContextFull => "length",
    }
}
