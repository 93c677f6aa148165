//! Parameters of an answer in all interfaces.

use std::{sync::Arc, time::Duration};

use rope_cpu::{
    batch::{Request, Wanted},
    generate::{Limits, Stops, speculation::DRAFTS_MAX},
};
use serde::de::MapAccess;
use serde_json::Value;

use super::{
    adapters::{self, Scale},
    app::App,
    chat::Rendered,
    error::ApiError,
    fields::COUNT_MAX,
    grammars::{self, Given, ResponseFormat},
    guided::Guided,
    read::{Failure, Object, Texts, Whole},
    sampling::{self, Sampling},
};

/// Maximum tokens reported with probabilities at each place.
const TOP_MAX: i64 = 128;

/// A number of tokens or milliseconds; -1 for no limit.
pub type Limit = Whole<-1, COUNT_MAX>;

crate::object! {
    /// llama-server's fields, which all interfaces share.
    pub struct Shared {
        /// The name of the model. With `-m` it has no effect.
        model: Option<String>,
        /// Whether the longest cached prefix of the prompt is reused.
        cache_prompt: Option<bool>,
        /// A grammar of the answer, in GBNF or Lark.
        grammar: Option<String>,
        /// The slot to use, or -1 for any.
        id_slot: Option<Value>,
        /// Whether the answer continues after an end-of-generation token.
        ignore_eos: Option<bool>,
        /// A JSON schema of the answer.
        json_schema: Option<Value>,
        /// The scales of LoRA adapters.
        lora: Option<Vec<Scale>>,
        /// Maximum tokens of the answer, or -1 for no limit.
        max_tokens: Option<Limit>,
        /// Maximum tokens of the answer, or -1 for no limit.
        n_predict: Option<Limit>,
        /// Number of tokens reported with probabilities at each place.
        n_probs: Option<Whole<0, TOP_MAX>>,
        /// Whether these probabilities are computed after all samplers.
        post_sampling_probs: Option<bool>,
        /// A regular expression of the answer.
        regex: Option<String>,
        /// A format of the answer.
        response_format: Option<ResponseFormat>,
        /// Maximum drafts in a step of speculative decoding.
        drafts_max ["speculative.n_max"]: Option<Whole<0, { DRAFTS_MAX as i64 }>>,
        /// Strings that end the answer.
        stop: Stop,
        /// Whether the answer comes in parts.
        stream: Option<bool>,
        /// Maximum time for generation in milliseconds, or -1 for no limit.
        t_max_predict_ms: Option<Limit>,
        ..sampling: Sampling,
        ..guided: Guided,
        ..place: Place,
    }
}

/// Prefix of all field names in errors: `options.` for ollama, otherwise empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place(pub &'static str);

impl Object for Place {
    fn take<'de, A: MapAccess<'de>>(&mut self, _: &str, _: &mut A) -> Result<bool, A::Error> {
        Ok(false)
    }
}

impl Place {
    /// Returns the place of a field.
    pub fn of(self, name: &str) -> String {
        format!("{}{name}", self.0)
    }
}

/// Stop strings: at most 1,024, of 64 KiB together.
pub type Stop = Texts<1024, { 64 << 10 }>;

impl Shared {
    /// Returns the grammars of the fields.
    pub fn given(&self) -> Vec<Given> {
        grammars::given(self)
    }
}

/// The parameters of an answer.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// The request to the scheduler, without its prompt and owner.
    pub request: Request,
    /// The conversation to answer, if its answer is remembered.
    pub conversation: Option<Arc<Rendered>>,
}

impl Parameters {
    /// Returns the parameters in the fields of a request, with its maximum tokens and without its
    /// grammar.
    ///
    /// # Errors
    /// If a value is out of range.
    pub fn new(shared: &Shared, tokens_max: Option<Limit>, app: &App) -> Result<Self, ApiError> {
        let options = &app.options.requests;
        let time_max = shared.t_max_predict_ms.and_then(|time| u64::try_from(time.0).ok());
        let top = shared.n_probs.and_then(Whole::count).filter(|top| *top > 0);
        // As with llama-server, those of the options count if a request has none.
        let stops = match &shared.stop.0[..] {
            [] => &options.reverse_prompt,
            _ => &shared.stop.0,
        };
        let request = Request {
            sampling: sampling::settings(shared, &app.sampling, app.tokenizer()?)?,
            limits: Limits {
                tokens_max: tokens_max.and_then(Whole::count).or(options.predict),
                time_max: time_max.filter(|time| *time > 0).map(Duration::from_millis),
                stops: Stops::new(stops.clone()),
                ignore_end: shared.ignore_eos.unwrap_or(false),
                ..Limits::default()
            },
            slot: slot(shared, options.slots())?,
            reuse: shared.cache_prompt.unwrap_or(true),
            drafts_max: shared.drafts_max.and_then(Whole::count),
            probabilities: top.map(|top| Wanted {
                top,
                after_sampling: shared.post_sampling_probs.unwrap_or(false),
                of_prompt: false,
                of_end: false,
            }),
            adapter_scales: Some(adapters::of_request(shared, app)?),
            ..Request::new(Vec::new())
        };
        Ok(Parameters { request, conversation: None })
    }
}

fn slot(shared: &Shared, slots: usize) -> Result<Option<usize>, Failure> {
    let Some(id) = &shared.id_slot else { return Ok(None) };
    let last = i64::try_from(slots).unwrap_or(i64::MAX) - 1;
    let id = super::read::whole(id, -1, last)
        .map_err(|failure| failure.within(&shared.place.of("id_slot")))?;
    Ok(usize::try_from(id).ok())
}
