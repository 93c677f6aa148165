//! `/completion`: continues prompts.

use std::sync::Arc;

use axum::{body::Bytes, response::Response};
use rope_cpu::{
    batch::{Generated, Outcome, Request, Update},
    {Token, generate::End, sample::Probabilities, settings::Value as SettingValue},
};
use serde_json::{Map, Value, json};

use crate::server::{
    adapters,
    answers::{Collected, Form, stream},
    app::App,
    error::ApiError,
    framing::Framing,
    grammars,
    lazy::Lazy,
    models::Loaded,
    parameters::{Parameters, Shared},
    probabilities::{list, to_json},
    prompts::{ANSWERS_MAX, copies, prompts},
    read::{Texts, Treatment, Whole, parse},
    request_fields::SHIFT,
    timings::{Streamed, progress, timings, while_reading},
};

/// The field with the probabilities of tokens.
const PROBABILITIES: &str = "completion_probabilities";

crate::object! {
    /// A request of `/completion`.
    pub struct CompletionFields {
        /// The number of answers, up to 64.
        n: Option<Whole<1, 64>>,
        /// Another name of `n`, which takes precedence.
        n_cmpl: Option<Whole<1, 64>>,
        /// A text, a list of tokens and texts, or a list of these.
        prompt: Option<Value>,
        ..report: Report,
        ..shared: Shared,
    }
    others {
        "n_discard": SHIFT,
        "n_indent": Treatment::Refused("use \"grammar\" or \"regex\"", &[]),
        "n_keep": SHIFT,
    }
}

/// Answers `POST /completion`.
pub async fn completion(Loaded(app): Loaded, body: Bytes) -> Result<Response, ApiError> {
    let fields: CompletionFields = parse(&body)?;
    let prompt = fields.prompt.as_ref().ok_or_else(|| ApiError::field("prompt", "given"))?;
    let prompts = prompts("prompt", prompt, ANSWERS_MAX, app.tokenizer()?)?;
    complete(app, &fields, prompts).await
}

/// Continues the prompts of a request.
///
/// # Errors
/// If a value is out of range, or a prompt is too long.
pub async fn complete(
    app: Arc<App>,
    fields: &CompletionFields,
    prompts: Vec<Vec<Token>>,
) -> Result<Response, ApiError> {
    let CompletionFields { n, n_cmpl, report, shared, .. } = fields;
    let count = n_cmpl.or(*n).and_then(Whole::count).unwrap_or(1);
    let prompts = copies(if n_cmpl.is_some() { "n_cmpl" } else { "n" }, prompts, count)?;
    let tokens_max = shared.n_predict.or(shared.max_tokens);
    let mut parameters = Parameters::new(shared, tokens_max, &app)?;
    parameters.request.limits.constraint = grammars::of_given(&shared.given(), &app)?;
    let form = Completion::new(report, &parameters, prompts.clone(), app.clone())?;
    let count = prompts.len();
    if shared.stream.unwrap_or(false) {
        let updates = app.submit(prompts, &parameters)?;
        return Ok(stream(updates, count, form, Framing::Events));
    }
    let (answers, held) = app.collect(prompts, &parameters).await?;
    let body = match &answers[..] {
        [answer] => form.whole(0, answer),
        _ => {
            let answers = answers.into_iter().enumerate();
            Lazy::list(answers.map(move |(index, answer)| form.whole(index, &answer)))
        }
    };
    Ok(body.response(held))
}

crate::object! {
    /// The content of an answer in llama-server's form.
    pub struct Report {
        /// The fields of the answer to return; `a/b` is field `b` of `a`; all by default.
        response_fields: Texts,
        /// Whether the answer has its tokens.
        return_tokens: Option<bool>,
        ..streamed: Streamed,
    }
}

/// Answers in the form of llama-server's completions.
pub struct Completion {
    app: Arc<App>,
    prompts: Vec<Vec<Token>>,
    answers: Vec<Collected>,
    settings: Map<String, Value>,
    report: Report,
}

impl Completion {
    /// Returns the form of the answers to some prompts.
    ///
    /// # Errors
    /// If the model has no tokenizer.
    pub fn new(
        report: &Report,
        parameters: &Parameters,
        prompts: Vec<Vec<Token>>,
        app: Arc<App>,
    ) -> Result<Self, ApiError> {
        Ok(Completion {
            report: report.clone(),
            answers: prompts.iter().map(|_| Collected::default()).collect(),
            settings: generation_settings(parameters, &app)?,
            prompts,
            app,
        })
    }

    /// Returns the last event of a stream, or the whole answer with its text and tokens.
    fn last(&self, index: usize, answer: &Collected, text: &str, tokens: &[Token]) -> Value {
        let Some(Outcome { end, timings: times, slot, sequence_tokens, evicted, .. }) =
            &answer.outcome
        else {
            return Value::Null;
        };
        let (stop_type, stopping_word) = stop(end);
        let mut settings = self.settings.clone();
        settings.insert("seed".into(), answer.seed.into());
        let prompt = &self.prompts[index];
        let shown = self.app.tokenizer().map(|t| t.decode(prompt, true)).unwrap_or_default();
        json!({
            "index": index,
            "content": text,
            "tokens": tokens,
            "id_slot": slot,
            "stop": true,
            "model": self.app.alias,
            "tokens_predicted": times.generated,
            "tokens_evaluated": prompt.len(),
            "generation_settings": settings,
            "prompt": String::from_utf8_lossy(&shown),
            "has_new_line": answer.text.contains('\n'),
            "truncated": *evicted > 0 || *end == End::ContextFull,
            "stop_type": stop_type,
            "stopping_word": stopping_word,
            "tokens_cached": sequence_tokens,
            "timings": timings(times),
        })
    }

    /// Returns a whole answer.
    pub fn whole(&self, index: usize, answer: &Arc<Collected>) -> Lazy {
        let tokens =
            if self.report.return_tokens.unwrap_or(false) { &answer.tokens[..] } else { &[] };
        let body = self.wanted(self.last(index, answer, &answer.text, tokens));
        let Texts(wanted) = &self.report.response_fields;
        let is_wanted = wanted.is_empty() || wanted.iter().any(|name| name == PROBABILITIES);
        let mut large = Vec::new();
        if is_wanted && !answer.probabilities.is_empty() {
            large.push((PROBABILITIES, list(answer.clone(), self.app.clone())));
        }
        Lazy::object(body, large)
    }

    /// Returns the requested fields of `body`. `a/b` is field `b` of `a`.
    fn wanted(&self, body: Value) -> Value {
        let Texts(wanted) = &self.report.response_fields;
        if wanted.is_empty() {
            return body;
        }
        let field = |path: &String| {
            let value = path.split('/').try_fold(&body, |value, name| value.get(name))?;
            Some((path.clone(), value.clone()))
        };
        Value::Object(wanted.iter().filter_map(field).collect())
    }

    fn part(&self, index: usize, generated: &Generated) -> Value {
        let times = &generated.timings;
        let mut body = json!({
            "index": index,
            "content": generated.text,
            "tokens": generated.token.as_slice(),
            "stop": false,
            "id_slot": -1,
            "tokens_predicted": times.generated,
            "tokens_evaluated": self.prompts[index].len(),
        });
        if let Some(probabilities) = &generated.probabilities {
            body[PROBABILITIES] = json!([self.probabilities(probabilities)]);
        }
        if self.report.streamed.timings() {
            body["timings"] = timings(times);
        }
        body
    }

    fn probabilities(&self, probabilities: &Probabilities) -> Value {
        to_json(probabilities, &self.app)
    }
}

impl Completion {
    /// Adds an update of a stream.
    pub fn record(&mut self, index: usize, update: &Update) {
        let answer = &mut self.answers[index];
        match update {
            Update::Started { seed } => answer.seed = *seed,
            Update::Generated(generated) => answer.text += &generated.text,
            Update::Ended(outcome) => answer.outcome = Some(outcome.clone()),
            _ => {}
        }
    }

    /// Returns the last event of a stream, without the text.
    pub fn end_of(&self, index: usize) -> Value {
        self.wanted(self.last(index, &self.answers[index], "", &[]))
    }
}

impl Form for Completion {
    fn update(&mut self, index: usize, update: Update) -> Vec<Value> {
        self.record(index, &update);
        match update {
            Update::Read(reading) if self.report.streamed.progress() => {
                let timings = while_reading(&reading);
                let mut body = self.part(index, &Generated { timings, ..Generated::default() });
                body["prompt_progress"] = progress(&reading);
                vec![body]
            }
            Update::Generated(generated) => vec![self.part(index, &generated)],
            Update::Ended(_) => vec![self.end_of(index)],
            _ => Vec::new(),
        }
    }
}

/// Returns llama-server's name for how an answer ended, and the stop string.
fn stop(end: &End) -> (&'static str, &str) {
    match end {
        End::Model | End::Complete => ("eos", ""),
        End::Stop(text) => ("word", text),
        End::TokensMax | End::ContextFull => ("limit", ""),
        End::Caller => ("none", ""),
    }
}

/// Returns the settings used for an answer, under llama-server's names.
///
/// # Errors
/// If the model has no tokenizer.
pub fn generation_settings(
    parameters: &Parameters,
    app: &App,
) -> Result<Map<String, Value>, ApiError> {
    let Request { sampling, limits, probabilities, adapter_scales, .. } = &parameters.request;
    let mut settings = Map::new();
    for setting in rope_cpu::sample::settings() {
        // llama-server's names here are temperature and typical_p.
        let name = match setting.parameter.aliases {
            [alias] if setting.parameter.kind == rope_cpu::settings::Kind::Number => alias,
            _ => setting.parameter.setting.0,
        };
        let value = match sampling.values.get(&setting.parameter) {
            Some(SettingValue::Integer(number)) => json!(number),
            Some(SettingValue::Number(number)) => json!(*number as f32),
            _ if matches!(setting.parameter.kind, rope_cpu::settings::Kind::Integer(..)) => {
                json!(setting.default() as i64)
            }
            _ => json!(setting.default()),
        };
        settings.insert(name.into(), value);
    }
    let max = limits.tokens_max.map_or(-1, |max| i64::try_from(max).unwrap_or(i64::MAX));
    settings.insert("max_tokens".into(), max.into());
    settings.insert("n_predict".into(), max.into());
    settings.insert("seed".into(), sampling.seed.unwrap_or(u32::MAX).into());
    settings.insert("stop".into(), json!(limits.stops.texts()));
    settings.insert("ignore_eos".into(), limits.ignore_end.into());
    settings.insert("n_probs".into(), probabilities.map_or(0, |wanted| wanted.top).into());
    settings
        .insert("lora".into(), adapters::to_json(adapter_scales.as_deref().unwrap_or_default()));
    let samplers: Vec<_> = sampling.samplers.iter().map(|kind| kind.name).collect();
    settings.insert("samplers".into(), json!(samplers));
    let ends: Vec<Token> = match limits.ignore_end {
        true => app.tokenizer()?.end_of_generation().collect(),
        false => Vec::new(),
    };
    // JSON has no infinity: null excludes a token.
    let excluded = ends.into_iter().map(|token| (token, f32::NEG_INFINITY));
    let biases = sampling.logit_bias.iter().copied().chain(excluded);
    let biases = biases.map(|(token, bias)| json!({ "token": token, "bias": bias })).collect();
    settings.insert("logit_bias".into(), Value::Array(biases));
    Ok(settings)
}
