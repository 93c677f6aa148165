//! The settings that a model file recommends in the keys `general.sampling.*`.

use super::{Error, SamplerSetting, Settings, order, setting::Range};
use crate::{
    gguf::{self, Metadata, MetadataError},
    settings::{Setting, Value},
};

impl Settings {
    /// Returns the settings that the file recommends, with defaults for missing keys.
    ///
    /// Skips unknown samplers: see [`unknown_samplers`]. Does not read the key of a setting that is
    /// `overridden`.
    ///
    /// # Errors
    ///
    /// Returns an error for a key of the wrong type. The ranges of real numbers are not checked.
    pub fn from_metadata(
        metadata: &Metadata,
        overridden: impl Fn(Setting) -> bool,
    ) -> Result<Self, Error> {
        let mut settings = Self::default();
        if !overridden(Setting::SAMPLERS)
            && let Some(names) = sequence(metadata)?
        {
            settings.samplers = names.filter_map(order::named).collect();
        }
        for setting in super::settings().filter(|setting| !overridden(setting.name())) {
            let Some(key) = setting.key.map(key) else { continue };
            let Some(value) = metadata.get(&key) else { continue };
            settings = settings.with(setting, number(setting, &key, value)?);
        }
        Ok(settings)
    }
}

/// Returns the samplers of `general.sampling.sequence` that are not supported.
///
/// # Errors
///
/// Returns an error if the key is not a string.
pub fn unknown_samplers<'a>(metadata: &Metadata<'a>) -> Result<Vec<&'a str>, Error> {
    let names = sequence(metadata)?.into_iter().flatten();
    Ok(names.filter(|name| order::named(name).is_none()).collect())
}

fn sequence<'a>(
    metadata: &Metadata<'a>,
) -> Result<Option<impl Iterator<Item = &'a str> + use<'a>>, Error> {
    let names = metadata.string(&key("sequence"))?;
    Ok(names.map(|names| names.split(';').filter(|name| !name.is_empty())))
}

/// Converts a value of either an integer or a float type: llama.cpp parses both from text.
fn number(setting: &SamplerSetting, key: &str, value: gguf::Value) -> Result<Value, MetadataError> {
    let number = match value {
        gguf::Value::F32(x) => Some(x.into()),
        gguf::Value::F64(x) => Some(x),
        value => value.integer().map(|n| n as f64),
    };
    let converted = number.and_then(|x| match setting.range {
        Range::Real { .. } => Some(x).filter(|x| (*x as f32).is_finite()).map(Value::Number),
        Range::Whole { .. } => {
            let n = Some(x as i64).filter(|n| *n as f64 == x)?;
            Some(Value::Integer(n)).filter(|n| setting.permits(n))
        }
    });
    converted.ok_or_else(|| MetadataError::Type {
        key: key.into(),
        found: value.describe(),
        expected: match setting.range {
            Range::Real { .. } => Range::FINITE.expected(),
            Range::Whole { expected, .. } => expected,
        },
    })
}

fn key(name: &str) -> String {
    format!("general.sampling.{name}")
}
