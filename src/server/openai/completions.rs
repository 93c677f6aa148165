//! `/v1/completions`: continues prompts.

use std::sync::Arc;

use axum::{
    Json,
    body::Bytes,
    response::{IntoResponse, Response},
};
use rope_cpu::{Token, sample::Probabilities};
use serde_json::{Value, json};

use super::{
    chat::{finish_reason, stream_options},
    legacy_logprobs::{Logprobs, text},
};
use crate::server::{
    answers::{Collected, Form, Framing, collect, stream},
    app::{App, Loaded},
    error::ApiError,
    fields::Fields,
    identifier,
    job::{Update, Wanted},
    native::infill,
    parameters::Parameters,
    prompts::{ANSWERS_MAX, copies, prompts},
    request_fields,
    timings::{timings, usage},
};

/// The most answers to one prompt.
const COPIES_MAX: i64 = 64;

/// Answers `POST /v1/completions`.
pub async fn completions(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
    let fields = Fields::parse(&body)?;
    request_fields::COMPLETIONS.check(&fields)?;
    let prompt = fields.get("prompt").ok_or_else(|| ApiError::field("prompt", "given"))?;
    let wanted = fields.whole("n", 1, COPIES_MAX)?.unwrap_or(1);
    let tried = fields.whole("best_of", wanted, COPIES_MAX)?.unwrap_or(wanted);
    let [wanted, tried] = [wanted, tried].map(|count| usize::try_from(count).unwrap_or(1));
    let prompts = match fields.text("suffix")?.filter(|suffix| !suffix.is_empty()) {
        Some(suffix) => {
            let prefix = fields.required_text("prompt")?;
            vec![infill::before_suffix(&fields, app.tokenizer()?, prefix, suffix)?]
        }
        None => prompts("prompt", prompt, ANSWERS_MAX, app.tokenizer()?)?,
    };
    let prompt_tokens = prompts.iter().map(Vec::len).sum();
    let prompts = copies(if tried > wanted { "best_of" } else { "n" }, prompts, tried)?;
    let mut parameters = Parameters::read(&fields, &app, &["max_tokens", "n_predict"])?;
    let echo = fields.switch("echo", false)?;
    if let Some(top) = fields.count("logprobs", 20)? {
        parameters.probabilities =
            Some(Wanted { top, after_sampling: false, of_prompt: echo, of_end: echo });
        parameters.reuse &= !echo;
    }
    let wants_logprobs = parameters.probabilities.is_some();
    if tried > wanted {
        if fields.switch("stream", false)? {
            return Err(ApiError::field("best_of", "equal to \"n\" in a stream"));
        }
        let for_choice = Wanted { top: 0, after_sampling: false, of_prompt: false, of_end: true };
        parameters.probabilities.get_or_insert(for_choice).of_end = true;
    }
    let form = Completions {
        id: identifier("cmpl-"),
        usage: stream_options(&fields)?,
        prompts: if echo { prompts.clone() } else { Vec::new() },
        offsets: vec![0; prompts.len()],
        wants_logprobs,
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
    for outcome in answers.iter().filter_map(|answer| answer.outcome.as_ref()) {
        cached += outcome.timings.reused;
        generated += outcome.timings.generated;
        times = timings(&outcome.timings);
    }
    for (place, index) in best(&answers, tried, wanted).into_iter().enumerate() {
        let answer = &answers[index];
        let Some(outcome) = &answer.outcome else { continue };
        let mut logprobs = Logprobs::default();
        if form.wants_logprobs {
            form.push_first(index, &mut logprobs);
            let all = answer.of_prompt.iter().chain(&answer.probabilities);
            all.for_each(|one| logprobs.push(one, &app));
        }
        choices.push(json!({
            "text": form.echoed(index) + &answer.text,
            "index": place,
            "logprobs": logprobs.to_json(),
            "finish_reason": finish_reason(&outcome.end),
        }));
    }
    let mut body = form.body(choices);
    body["usage"] = usage(prompt_tokens, cached, generated);
    body["timings"] = times;
    Ok(Json(body).into_response())
}

/// Returns the indices of the `copies` answers with the most likely tokens of each `tried` answers to
/// one prompt, the best first. If all are wanted, they keep their order.
fn best(answers: &[Collected], tried: usize, copies: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..answers.len()).collect();
    if tried == copies {
        return order;
    }
    let mean = |index: usize| {
        let all = &answers[index].probabilities;
        let sum: f32 = all.iter().map(|one| one.chosen.value).sum();
        if all.is_empty() { f32::NEG_INFINITY } else { sum / all.len() as f32 }
    };
    let each = order.chunks_mut(tried).flat_map(|of_prompt| {
        of_prompt.sort_by(|a, b| mean(*b).total_cmp(&mean(*a)));
        of_prompt[..copies].to_vec()
    });
    each.collect()
}

struct Completions {
    app: Arc<App>,
    id: String,
    /// Whether a stream ends with the usage.
    usage: bool,
    /// The prompts, if they are part of the answers.
    prompts: Vec<Vec<Token>>,
    /// The characters of each answer that a stream has sent with probabilities.
    offsets: Vec<usize>,
    wants_logprobs: bool,
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

    /// Returns the text of a prompt, if it is part of the answer.
    fn echoed(&self, index: usize) -> String {
        let prompt = self.prompts.get(index).into_iter().flatten();
        prompt.map(|token| text(*token, &self.app)).collect()
    }

    /// Adds the first token of a prompt that is part of the answer.
    fn push_first(&self, index: usize, logprobs: &mut Logprobs) {
        if let Some(first) = self.prompts.get(index).and_then(|prompt| prompt.first()) {
            logprobs.push_first(*first, &self.app);
        }
    }

    /// Returns the probabilities of a stream's next tokens.
    fn next_logprobs(&mut self, index: usize, next: &[Probabilities], first: bool) -> Value {
        let mut logprobs = Logprobs::after(self.offsets[index]);
        if first {
            self.push_first(index, &mut logprobs);
        }
        next.iter().for_each(|one| logprobs.push(one, &self.app));
        self.offsets[index] = logprobs.offset();
        logprobs.to_json()
    }

    fn chunk(&self, index: usize, text: &str, logprobs: Value) -> Value {
        let choice = json!({
            "text": text, "index": index, "logprobs": logprobs, "finish_reason": null,
        });
        self.body(vec![choice])
    }
}

impl Form for Completions {
    fn begin(&mut self) -> Vec<Value> {
        let echoed = 0..self.prompts.len();
        let chunk = |index| {
            let logprobs = match self.wants_logprobs {
                true => self.next_logprobs(index, &[], true),
                false => Value::Null,
            };
            self.chunk(index, &self.echoed(index), logprobs)
        };
        echoed.map(chunk).collect()
    }

    fn update(&mut self, index: usize, update: Update) -> Vec<Value> {
        match update {
            // The text was sent at the beginning.
            Update::Prompt(probabilities) => {
                let logprobs = self.next_logprobs(index, &[probabilities], false);
                vec![self.chunk(index, "", logprobs)]
            }
            Update::Generated(generated) => {
                let logprobs = self.next_logprobs(index, generated.probabilities.as_slice(), false);
                vec![self.chunk(index, &generated.text, logprobs)]
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

    fn alive(&mut self) -> Value {
        self.chunk(0, "", Value::Null)
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
