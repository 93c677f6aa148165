//! The parameters of an answer that are common to all interfaces.

use std::time::Duration;

use rope_cpu::{
    generate::{Limits, Stops, speculation::DRAFTS_MAX},
    model::Pooling,
    sample::Settings,
};

use super::{
    adapters::{self, Scales},
    app::App,
    error::ApiError,
    fields::{COUNT_MAX, Fields},
    grammars,
    job::Wanted,
    reasoning::Reasoning,
    sampling,
};

/// The most tokens whose probabilities are reported.
const TOP_MAX: usize = 1024;

/// The most stop strings, and the most bytes of them together.
const STOPS_MAX: (usize, usize) = (1024, 64 << 10);

/// The parameters of an answer.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// The sampler's settings.
    pub sampling: Settings,
    /// The limits of the answer.
    pub limits: Limits,
    /// The form of the answer's reasoning; `None` if it has none.
    pub reasoning: Option<Reasoning>,
    /// The slot to use; `None` for any.
    pub slot: Option<usize>,
    /// Whether tokens that are in the cache already are reused.
    pub reuse: bool,
    /// The most drafts in a pass; `None` for as many as pay.
    pub drafts_max: Option<usize>,
    /// The probabilities that are reported with each token.
    pub probabilities: Option<Wanted>,
    /// The pooling of the text's embedding, which is then all that is computed.
    pub pooling: Option<Pooling>,
    /// The scale of each adapter.
    pub adapter_scales: Scales,
    /// The longest time for generating.
    pub time_max: Option<Duration>,
}

impl Parameters {
    /// Reads llama-server's fields, with the maximum number of tokens from the first of
    /// `names_of_max` that is there.
    ///
    /// # Errors
    /// If a field is of the wrong type, or out of range.
    pub fn read(fields: &Fields, app: &App, names_of_max: &[&str]) -> Result<Self, ApiError> {
        let tokenizer = app.tokenizer()?;
        let mut tokens_max = app.options.predict_max;
        if let Some((name, _)) = fields.first(names_of_max) {
            // -1: no limit.
            let given = fields.whole(name, -1, COUNT_MAX)?;
            tokens_max = match given.and_then(|given| usize::try_from(given).ok()) {
                None => tokens_max,
                given => given,
            };
        }
        let slots = app.options.slots as i64;
        let slot = fields.whole("id_slot", -1, slots - 1)?;
        let top = fields.count("n_probs", TOP_MAX)?.filter(|top| *top > 0);
        let after_sampling = fields.switch("post_sampling_probs", false)?;
        let time_max = fields.whole("t_max_predict_ms", -1, COUNT_MAX)?;
        let time_max = time_max.and_then(|time| u64::try_from(time).ok()).filter(|time| *time > 0);
        Ok(Parameters {
            sampling: sampling::settings(fields, &app.sampling, tokenizer)?,
            limits: Limits {
                tokens_max,
                stops: stops(fields)?,
                ignore_end: fields.switch("ignore_eos", false)?,
                show_special: false,
                preserved: Vec::new(),
                constraint: grammars::of_fields(fields, app)?,
            },
            reasoning: None,
            slot: slot.and_then(|slot| usize::try_from(slot).ok()),
            reuse: fields.switch("cache_prompt", true)?,
            drafts_max: fields.count("speculative.n_max", DRAFTS_MAX)?,
            probabilities: top.map(|top| Wanted {
                top,
                after_sampling,
                of_prompt: false,
                of_end: false,
            }),
            pooling: None,
            adapter_scales: adapters::of_fields(fields, app)?,
            time_max: time_max.map(Duration::from_millis),
        })
    }
}

fn stops(fields: &Fields) -> Result<Stops, ApiError> {
    Ok(Stops::new(fields.limited_texts("stop", STOPS_MAX)?))
}
