//! `/v1/completions`: continues prompts.

use std::{borrow::Cow, sync::Arc};

use axum::{body::Bytes, response::Response};
use rope_cpu::{
    batch::{Update, Wanted},
    {Token, sample::Probabilities},
};
use serde_json::{Value, json};

use super::{
    chat::{finish_reason, request::StreamOptions},
    legacy_logprobs::Logprobs,
};
use crate::server::{
    answers::{Collected, Form, stream},
    app::App,
    error::ApiError,
    framing::Framing,
    grammars, identifier,
    lazy::Lazy,
    models::Loaded,
    native::infill,
    parameters::{Parameters, Shared},
    prompts::{ANSWERS_MAX, copies, prompts},
    read::{Failure, Whole, parse, whole},
    request_fields::ABOUT_USER,
    timings::{Usage, timings},
};

/// Maximum answers to one prompt.
const COPIES_MAX: i64 = 64;

crate::object! {
    /// A request of `/v1/completions`.
    pub struct CompletionsRequest {
        /// Number of answers to generate, up to 64; the `n` best are returned.
        best_of: Option<Value>,
        /// Whether the text of an answer starts with the prompt.
        echo: Option<bool>,
        /// Number of tokens reported with probabilities at each place.
        logprobs: Option<Whole<0, 20>>,
        /// The number of answers to each prompt, up to 64.
        n: Option<Whole<1, COPIES_MAX>>,
        /// A text, a list of tokens and texts, or a list of these.
        prompt: Option<Value>,
        /// Options for additional data in a stream.
        stream_options: Option<StreamOptions>,
        /// The text after the gap that the answer fills.
        suffix: Option<String>,
        ..shared: Shared,
    }
    others {
        "user": ABOUT_USER,
    }
}

/// Answers `POST /v1/completions`.
pub async fn completions(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
    let fields: CompletionsRequest = parse(&body)?;
    let shared = &fields.shared;
    let streams = shared.stream.unwrap_or(false);
    let prompt = fields.prompt.as_ref().ok_or_else(|| ApiError::field("prompt", "given"))?;
    let Whole(wanted) = fields.n.unwrap_or(Whole(1));
    let tried = fields.best_of.as_ref().map(|tried| whole(tried, wanted, COPIES_MAX));
    let tried = tried.transpose().map_err(|failure| failure.within("best_of"))?.unwrap_or(wanted);
    let [wanted, tried] = [wanted, tried].map(|count| usize::try_from(count).unwrap_or(1));
    let prompts = match fields.suffix.as_deref().filter(|suffix| !suffix.is_empty()) {
        Some(suffix) => {
            let other = || Failure::wrong("prompt", "a string", prompt);
            let prefix = prompt.as_str().ok_or_else(other)?;
            vec![infill::before_suffix(app.tokenizer()?, prefix, suffix)?]
        }
        None => prompts("prompt", prompt, ANSWERS_MAX, app.tokenizer()?)?,
    };
    let prompts = copies(if tried > wanted { "best_of" } else { "n" }, prompts, tried)?;
    let tokens_max = shared.max_tokens.or(shared.n_predict);
    let mut parameters = Parameters::new(shared, tokens_max, &app)?;
    parameters.request.limits.constraint = grammars::of_given(&shared.given(), &app)?;
    let echo = fields.echo.unwrap_or(false);
    if let Some(top) = fields.logprobs.and_then(Whole::count) {
        parameters.request.probabilities =
            Some(Wanted { top, after_sampling: false, of_prompt: false, of_end: false });
    }
    if let Some(probabilities) = parameters.request.probabilities.as_mut().filter(|_| echo) {
        if probabilities.after_sampling {
            return Err(ApiError::field("echo", "false with \"post_sampling_probs\""));
        }
        (probabilities.of_prompt, probabilities.of_end) = (true, true);
    }
    let wants_logprobs = parameters.request.probabilities.is_some();
    if tried > wanted {
        if streams {
            return Err(ApiError::field("best_of", "equal to \"n\" in a stream"));
        }
        let for_choice = Wanted { top: 0, after_sampling: false, of_prompt: false, of_end: true };
        parameters.request.probabilities.get_or_insert(for_choice).of_end = true;
    }
    let mut form = Completions {
        id: identifier("cmpl-"),
        reports_usage: StreamOptions::reports_usage(fields.stream_options.as_ref()),
        usage: Usage::new(&prompts, tried),
        prompts: if echo { prompts.clone() } else { Vec::new() },
        offsets: vec![0; prompts.len()],
        wants_logprobs,
        app: app.clone(),
    };
    let count = prompts.len();
    if streams {
        let updates = app.submit(prompts, &parameters)?;
        return Ok(stream(updates, count, form, Framing::EventsUntilDone));
    }
    let (answers, held) = app.collect(prompts, &parameters).await?;
    let mut times = Value::Null;
    for (index, answer) in answers.iter().enumerate() {
        if let Some(outcome) = &answer.outcome {
            form.usage.add(index, &outcome.timings);
            times = timings(&outcome.timings);
        }
    }
    let mut body = form.body(Vec::new());
    body["usage"] = form.usage.to_json();
    body["timings"] = times;
    let best = best(&answers, tried, wanted).into_iter().enumerate();
    let choices = best.map(move |(place, index)| form.choice(place, index, &answers[index]));
    Ok(Lazy::object(body, vec![("choices", Lazy::list(choices))]).response(held))
}

/// Returns the indices of the `copies` best answers among each `tried` answers to a prompt, most
/// likely first. If all are returned, they stay in order.
fn best(answers: &[Arc<Collected>], tried: usize, copies: usize) -> Vec<usize> {
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
    /// Whether the last event of a stream has the usage.
    reports_usage: bool,
    usage: Usage,
    /// The prompts, if answers repeat them.
    prompts: Vec<Vec<Token>>,
    /// Number of characters of each answer that a stream has sent with probabilities.
    offsets: Vec<usize>,
    wants_logprobs: bool,
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

    /// Returns the text of a prompt, if the answer repeats it.
    fn echoed(&self, index: usize) -> String {
        let (Some(prompt), Ok(tokenizer)) = (self.prompts.get(index), self.app.tokenizer()) else {
            return String::new();
        };
        // A character may consist of several tokens.
        let pieces = prompt.iter().map(|token| tokenizer.piece(*token, true));
        let bytes: Vec<u8> = pieces.flat_map(Cow::into_owned).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns a whole answer.
    fn choice(&self, place: usize, index: usize, answer: &Arc<Collected>) -> Lazy {
        let logprobs = match self.wants_logprobs {
            true => self.logprobs(index, answer.clone(), true).lists(),
            false => Value::Null.into(),
        };
        let choice = json!({
            "text": self.echoed(index) + &answer.text,
            "index": place,
            "logprobs": null,
            "finish_reason": answer.outcome.as_ref().map(|outcome| finish_reason(&outcome.end)),
        });
        Lazy::object(choice, vec![("logprobs", logprobs)])
    }

    /// Returns the probabilities of an answer's tokens. If the answer repeats the prompt, they
    /// start after the prompt's first token.
    fn logprobs(&self, index: usize, answer: Arc<Collected>, at_start: bool) -> Logprobs {
        let prompt = self.prompts.get(index).filter(|_| at_start);
        Logprobs {
            first: prompt.and_then(|prompt| prompt.first().copied()),
            answer,
            offset: self.offsets[index],
            app: self.app.clone(),
        }
    }

    /// Returns the probabilities of a stream's next token.
    fn next_logprobs(
        &mut self,
        index: usize,
        next: Option<Probabilities>,
        at_start: bool,
    ) -> Value {
        let next = Collected { probabilities: next.into_iter().collect(), ..Collected::default() };
        let logprobs = self.logprobs(index, Arc::new(next), at_start);
        self.offsets[index] = logprobs.end();
        logprobs.lists().into_value()
    }

    fn chunk(&self, index: usize, text: &str, logprobs: Value) -> Value {
        let choice = json!({
            "text": text, "index": index, "logprobs": logprobs, "finish_reason": null,
        });
        self.body(vec![choice])
    }
}

impl Form for Completions {
    fn begin(&mut self, index: usize) -> Vec<Value> {
        if self.prompts.is_empty() {
            return Vec::new();
        }
        let logprobs = match self.wants_logprobs {
            true => self.next_logprobs(index, None, true),
            false => Value::Null,
        };
        vec![self.chunk(index, &self.echoed(index), logprobs)]
    }

    fn update(&mut self, index: usize, update: Update) -> Vec<Value> {
        match update {
            // The text was sent at the start.
            Update::Prompt(probabilities) => {
                let logprobs = self.next_logprobs(index, Some(probabilities), false);
                vec![self.chunk(index, "", logprobs)]
            }
            Update::Generated(generated) => {
                let logprobs = self.next_logprobs(index, generated.probabilities, false);
                vec![self.chunk(index, &generated.text, logprobs)]
            }
            Update::Ended(outcome) => {
                self.usage.add(index, &outcome.timings);
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
        if !self.reports_usage {
            return Vec::new();
        }
        let mut body = self.body(Vec::new());
        body["usage"] = self.usage.to_json();
        vec![body]
    }
}
