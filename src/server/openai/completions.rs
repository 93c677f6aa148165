//! `/v1/completions`: continues prompts.

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    response::{IntoResponse, Response},
};
use rope_cpu::sample::Probabilities;
use serde_json::{Value, json};

use super::chat::{finish_reason, stream_options};
use crate::server::{
    answers::{Form, Framing, collect, stream},
    app::{App, Loaded},
    error::ApiError,
    fields::Fields,
    identifier,
    job::{Update, Wanted},
    parameters::Parameters,
    probabilities::to_json,
    prompts::prompts,
    timings::{timings, usage},
};

/// Answers `POST /v1/completions`.
pub async fn completions(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
    let fields = Fields::parse(&body)?;
    let prompt = fields.get("prompt").ok_or_else(|| ApiError::field("prompt", "given"))?;
    let copies = usize::try_from(fields.whole("n", 1, 64)?.unwrap_or(1)).unwrap_or(1);
    let prompts = prompts("prompt", prompt, app.tokenizer()?)?;
    let prompt_tokens = prompts.iter().map(Vec::len).sum();
    let prompts: Vec<_> = prompts.into_iter().flat_map(|prompt| vec![prompt; copies]).collect();
    let mut parameters = Parameters::read(&fields, &app, &["max_tokens", "n_predict"])?;
    if let Some(top) = fields.count("logprobs", 20)? {
        parameters.probabilities = Some(Wanted { top, after_sampling: false });
    }
    let form = Completions {
        id: identifier("cmpl-"),
        usage: stream_options(&fields)?,
        prompt_tokens,
        cached: 0,
        generated: 0,
        app: app.clone(),
    };
    let count = prompts.len();
    let updates = app.submit(prompts, &parameters)?;
    if fields.switch("stream", false)? {
        return Ok(stream(updates, count, form, Framing::EventsUntilDone));
    }
    let answers = collect(updates, count).await?;
    let mut choices = Vec::new();
    let (mut cached, mut generated, mut times) = (0, 0, Value::Null);
    for (index, answer) in answers.iter().enumerate() {
        let Some(outcome) = &answer.outcome else { continue };
        cached += outcome.timings.reused;
        generated += outcome.timings.generated;
        times = timings(&outcome.timings);
        choices.push(json!({
            "text": answer.text,
            "index": index,
            "logprobs": form.logprobs(&answer.probabilities),
            "finish_reason": finish_reason(&outcome.end),
        }));
    }
    let mut body = form.body(choices);
    body["usage"] = usage(prompt_tokens, cached, generated);
    body["timings"] = times;
    Ok(Json(body).into_response())
}

struct Completions {
    app: Arc<App>,
    id: String,
    /// Whether a stream ends with the usage.
    usage: bool,
    prompt_tokens: usize,
    cached: usize,
    generated: usize,
}

impl Completions {
    fn body(&self, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": crate::server::now(),
            "model": self.app.alias,
            "system_fingerprint": crate::server::FINGERPRINT,
            "choices": choices,
        })
    }

    /// Returns the probabilities in llama-server's form; null if there are none.
    fn logprobs(&self, probabilities: &[Probabilities]) -> Value {
        if probabilities.is_empty() {
            return Value::Null;
        }
        json!({ "content": probabilities.iter().map(|one| to_json(one, &self.app)).collect::<Vec<_>>() })
    }
}

impl Form for Completions {
    fn update(&mut self, index: usize, update: Update) -> Vec<Value> {
        match update {
            Update::Generated(generated) => {
                let logprobs = self.logprobs(generated.probabilities.as_slice());
                let choice = json!({
                    "text": generated.text, "index": index, "logprobs": logprobs,
                    "finish_reason": null,
                });
                vec![self.body(vec![choice])]
            }
            Update::Ended(outcome) => {
                self.cached += outcome.timings.reused;
                self.generated += outcome.timings.generated;
                let mut body = self.body(vec![json!({
                    "text": "", "index": index, "logprobs": null,
                    "finish_reason": finish_reason(&outcome.end),
                })]);
                body["timings"] = timings(&outcome.timings);
                vec![body]
            }
            _ => Vec::new(),
        }
    }

    fn error(&mut self, error: &ApiError) -> Value {
        crate::server::openai::error(error)
    }

    fn end(&mut self) -> Vec<Value> {
        if !self.usage {
            return Vec::new();
        }
        let mut body = self.body(Vec::new());
        body["usage"] = usage(self.prompt_tokens, self.cached, self.generated);
        vec![body]
    }
}
