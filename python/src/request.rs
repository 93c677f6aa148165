//! The sampling and the limits of an answer.

use std::time::Duration;

use pyo3::prelude::*;
use rope_cpu::{
    Token,
    constraint::{Constraint, Grammar},
    generate::{Limits, Stops},
    sample::{self, SamplerSetting, Settings, breakers, dry},
    settings::Setting,
};

use crate::{
    errors::{failed, invalid, of_model},
    loaded::Loaded,
};

/// The settings of an answer, as the Python package passes them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Request {
    #[pyo3(default)]
    max_tokens: Option<usize>,
    #[pyo3(default)]
    time_max: Option<f64>,
    #[pyo3(default)]
    stop: Vec<String>,
    #[pyo3(default)]
    ignore_eos: bool,
    #[pyo3(default)]
    special: bool,
    #[pyo3(default)]
    seed: Option<u32>,
    #[pyo3(default)]
    samplers: Option<String>,
    #[pyo3(default)]
    logit_bias: Vec<(i64, f32)>,
    #[pyo3(default)]
    dry_sequence_breaker: Option<Vec<String>>,
    #[pyo3(default)]
    grammar: Option<String>,
    #[pyo3(default)]
    regex: Option<String>,
    #[pyo3(default)]
    json_schema: Option<String>,
    /// Names and values of the samplers' settings.
    sampling: Vec<(String, String)>,
}

impl Request {
    /// Returns the settings of the sampler: given ones, else from the file, else the defaults.
    pub fn sampling(&self, loaded: &Loaded) -> PyResult<Settings> {
        let given: Vec<(&SamplerSetting, &str)> = self
            .sampling
            .iter()
            .map(|(name, text)| Ok((named(name)?, &**text)))
            .collect::<PyResult<_>>()?;
        let overridden = |setting: Setting| match setting {
            Setting::SAMPLERS => self.samplers.is_some(),
            setting => given.iter().any(|(given, _)| given.name() == setting),
        };
        let file = Settings::from_metadata(loaded.model.metadata(), overridden).map_err(failed)?;
        file.check().map_err(failed)?;
        let mut settings = Settings { seed: self.seed, ..file };
        for (setting, text) in given {
            settings = settings.with(setting, setting.parse(text).map_err(invalid)?);
        }
        if let Some(names) = &self.samplers {
            settings.samplers = sample::parse_names(names).map_err(invalid)?;
        }
        let tokenizer = loaded.model.tokenizer().map_err(of_model)?;
        let tokens = tokenizer.len();
        for (token, bias) in &self.logit_bias {
            let known = Token::try_from(*token).ok().filter(|token| (*token as usize) < tokens);
            let last = tokens.saturating_sub(1);
            let unknown = || {
                invalid(format_args!("`logit_bias` {token}: the token must be from 0 to {last}"))
            };
            settings.logit_bias.push((known.ok_or_else(unknown)?, *bias));
        }
        settings.check().map_err(invalid)?;
        let suppressed = tokenizer.suppressed().iter();
        settings.logit_bias.extend(suppressed.map(|token| (*token, f32::NEG_INFINITY)));
        if dry::MULTIPLIER.real(&settings.values) != 0.0 {
            let default = || dry::BREAKERS.map(String::from).to_vec();
            let texts = self.dry_sequence_breaker.clone().unwrap_or_else(default);
            settings.dry_breakers = breakers(tokenizer, &texts).into();
        }
        Ok(settings)
    }

    /// Returns the grammar of the answer. At most one of its three forms is given.
    pub fn grammar(&self) -> Option<Grammar> {
        let grammar = self.grammar.as_deref().map(Grammar::from_text);
        let regex = self.regex.clone().map(Grammar::Regex);
        grammar.or(regex).or(self.json_schema.clone().map(Grammar::JsonSchema))
    }

    /// Returns the limits, without the grammar.
    pub fn limits(&self) -> PyResult<Limits> {
        let time_max = self.time_max.map(|seconds| {
            let refused = || format!("time_max {seconds}: must be a number of seconds, at least 0");
            Duration::try_from_secs_f64(seconds).map_err(|_| invalid(refused()))
        });
        Ok(Limits {
            tokens_max: self.max_tokens,
            time_max: time_max.transpose()?,
            stops: Stops::new(self.stop.iter().filter(|text| !text.is_empty())),
            ignore_end: self.ignore_eos,
            show_special: self.special,
            ..Limits::default()
        })
    }
}

/// Compiles a grammar for a model.
pub fn constraint(loaded: &Loaded, grammar: &Grammar) -> PyResult<Constraint> {
    let vocabulary = loaded.vocabulary()?;
    // A large grammar takes seconds.
    let compiled = Python::attach(|py| py.detach(|| Constraint::new(vocabulary, grammar)));
    compiled.map_err(invalid)
}

fn named(name: &str) -> PyResult<&'static SamplerSetting> {
    let found = sample::settings().find(|setting| setting.parameter.is_named(name));
    found.ok_or_else(|| invalid(format_args!("there is no sampler setting {name:?}")))
}
