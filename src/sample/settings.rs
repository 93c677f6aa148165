//! The settings of a chain of samplers.

use std::sync::Arc;

use super::{
    Error, Order, SAMPLERS, SamplerSetting, StageKind, dry::Breaker, mirostat,
    order::default_order, temperature::TEMPERATURE,
};
use crate::{
    Token,
    settings::{Setting, Value, Values},
};

/// The settings of the samplers, with the names and defaults of llama.cpp.
///
/// ```
/// use rope_cpu::sample::{Settings, min_p::MIN_P, temperature::TEMPERATURE};
///
/// let settings = Settings { seed: Some(7), ..Settings::default() };
/// let settings = settings.with(&TEMPERATURE, 0.7).with(&MIN_P, 0.05);
/// assert!(settings.check().is_ok());
/// assert!(settings.with(&MIN_P, 2.0).check().is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The seed of the random numbers; `None` takes one from the system.
    pub seed: Option<u32>,
    /// How many random numbers earlier answers have drawn from the seed. The next answer of a
    /// conversation continues there, so it does not repeat their choices.
    pub drawn: u64,
    /// The chain. A sampler that is not in it has no effect.
    pub samplers: Order,
    /// Values to add to the logits of tokens, before all samplers.
    pub logit_bias: Vec<(Token, f32)>,
    /// The sequence breakers of DRY, as [`breakers`](super::breakers) returns them.
    pub dry_breakers: Arc<[Breaker]>,
    /// The given values of the samplers' [`settings`]. The others have their defaults.
    pub values: Values,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            seed: None,
            drawn: 0,
            samplers: default_order(),
            logit_bias: Vec::new(),
            dry_breakers: Arc::default(),
            values: Values::default(),
        }
    }
}

/// Returns the settings of all samplers, last sampler first, then the settings of Mirostat.
pub fn settings() -> impl Iterator<Item = &'static SamplerSetting> {
    let of_chain = SAMPLERS.iter().rev().flat_map(|kind| kind.settings.iter().copied());
    of_chain.chain(mirostat::SETTINGS)
}

impl Settings {
    /// Returns settings that always choose the likeliest token.
    ///
    /// ```
    /// use rope_cpu::sample::{Sampler, Settings};
    ///
    /// let mut sampler = Sampler::new(Settings::greedy())?;
    /// assert_eq!(sampler.choose(&[0.5, 2.0, 1.0])?, 1);
    /// # Ok::<(), rope_cpu::sample::Error>(())
    /// ```
    pub fn greedy() -> Self {
        Settings { seed: Some(0), ..Settings::default() }.with(&TEMPERATURE, 0.0)
    }

    /// Returns these settings with one value changed.
    pub fn with(self, setting: &SamplerSetting, value: impl Into<Value>) -> Self {
        Settings { values: self.values.with(&setting.parameter, value), ..self }
    }

    /// Checks all values.
    ///
    /// # Errors
    ///
    /// Returns an error for the first value that is out of range.
    pub fn check(&self) -> Result<(), Error> {
        for setting in settings() {
            if let Some(value) = self.values.get(&setting.parameter)
                && !setting.permits(value)
            {
                let value = match value {
                    Value::Number(x) => (*x as f32).to_string(),
                    value => value.to_string(),
                };
                let expected = setting.expected();
                return Err(Error::Setting { setting: setting.name(), value, expected });
            }
        }
        let permitted = |bias: f32| bias < f32::INFINITY;
        match self.logit_bias.iter().find(|(_, bias)| !permitted(*bias)) {
            Some((_, bias)) => {
                let (setting, value) = (Setting::LOGIT_BIAS, bias.to_string());
                Err(Error::Setting { setting, value, expected: "a number or -inf" })
            }
            None => Ok(()),
        }
    }

    /// Returns a sentence for each of the `given` settings that has no effect, with the reason.
    pub fn without_effect(&self, given: &Values) -> Vec<String> {
        let mirostat = mirostat::is_on(&self.values);
        let reason = |kind: Option<&StageKind>, setting: &SamplerSetting| match kind {
            Some(_) if mirostat && !mirostat::uses(setting) => Some(" with Mirostat".into()),
            Some(kind) if !mirostat && !self.samplers.contains(&kind) => {
                Some(format!(": {} is not among the samplers", kind.name))
            }
            _ => (setting.no_effect)(&self.values).map(|reason| format!(" {reason}")),
        };
        let of_kind =
            |kind: &'static StageKind| kind.settings.iter().map(move |s| (Some(kind), *s));
        let of_chain = SAMPLERS.into_iter().flat_map(of_kind);
        of_chain
            .chain(mirostat::SETTINGS.map(|setting| (None, setting)))
            .filter(|(_, setting)| given.has(&setting.parameter))
            .filter_map(|(kind, setting)| {
                Some(format!("{} has no effect{}", setting.name(), reason(kind, setting)?))
            })
            .collect()
    }
}
