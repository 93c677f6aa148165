//! The settings that a model file recommends in the keys `general.sampling.*`.

use super::{Error, Settings, StageKind};
use crate::gguf::{Metadata, MetadataError, Value};

impl Settings {
    /// Returns the file's settings, with the defaults for keys that it lacks.
    ///
    /// Unknown samplers are left out ([`unknown_samplers`]). A key whose last part is `overridden`
    /// is not read.
    ///
    /// # Errors
    ///
    /// Returns an error for a key of the wrong type. The ranges of values are not checked.
    pub fn from_metadata(
        metadata: &Metadata,
        overridden: impl Fn(&str) -> bool,
    ) -> Result<Self, Error> {
        let value = |name: &str| metadata.get(&key(name)).filter(|_| !overridden(name));
        let real = |name: &str| {
            let finite = |x| Some(x as f32).filter(|x| x.is_finite());
            number(name, value(name), "a finite number", finite)
        };
        let whole = |name: &str| {
            let same = |x| Some(x as i32).filter(|n| f64::from(*n) == x);
            number(name, value(name), "a whole number of 32 bits", same)
        };
        let natural = |name: &str| {
            let same = |x| Some(x as u32).filter(|n| f64::from(*n) == x);
            number(name, value(name), "a whole number from 0 to 4294967295", same)
        };
        let default = Self::default();
        let samplers = match overridden("sequence") {
            true => None,
            false => sequence(metadata)?.map(|names| names.filter_map(StageKind::named).collect()),
        };
        Ok(Self {
            samplers: samplers.unwrap_or(default.samplers),
            temperature: real("temp")?.unwrap_or(default.temperature),
            top_k: whole("top_k")?.unwrap_or(default.top_k),
            top_p: real("top_p")?.unwrap_or(default.top_p),
            min_p: real("min_p")?.unwrap_or(default.min_p),
            xtc_probability: real("xtc_probability")?.unwrap_or(default.xtc_probability),
            xtc_threshold: real("xtc_threshold")?.unwrap_or(default.xtc_threshold),
            repeat_last_n: match whole("penalty_last_n")? {
                Some(-1) => usize::MAX, // -1: the whole context
                Some(_) => natural("penalty_last_n")?.map_or(default.repeat_last_n, |n| n as usize),
                None => default.repeat_last_n,
            },
            repeat_penalty: real("penalty_repeat")?.unwrap_or(default.repeat_penalty),
            mirostat: natural("mirostat")?.unwrap_or(default.mirostat),
            mirostat_tau: real("mirostat_tau")?.unwrap_or(default.mirostat_tau),
            mirostat_eta: real("mirostat_eta")?.unwrap_or(default.mirostat_eta),
            ..default
        })
    }
}

/// Returns the samplers of `general.sampling.sequence` that are not supported.
///
/// # Errors
///
/// Returns an error if the key is not a string.
pub fn unknown_samplers<'a>(metadata: &Metadata<'a>) -> Result<Vec<&'a str>, Error> {
    let names = sequence(metadata)?.into_iter().flatten();
    Ok(names.filter(|name| StageKind::named(name).is_none()).collect())
}

fn sequence<'a>(
    metadata: &Metadata<'a>,
) -> Result<Option<impl Iterator<Item = &'a str> + use<'a>>, Error> {
    let names = metadata.string(&key("sequence"))?;
    Ok(names.map(|names| names.split(';').filter(|name| !name.is_empty())))
}

/// Converts a value of either an integer or a float type: llama.cpp parses both from text.
fn number<T>(
    name: &str,
    value: Option<Value>,
    expected: &'static str,
    convert: impl Fn(f64) -> Option<T>,
) -> Result<Option<T>, MetadataError> {
    let Some(value) = value else { return Ok(None) };
    let number = match value {
        Value::F32(x) => Some(x.into()),
        Value::F64(x) => Some(x),
        value => value.integer().map(|n| n as f64),
    };
    number.and_then(convert).map(Some).ok_or_else(|| MetadataError::Type {
        key: key(name),
        found: value.describe(),
        expected,
    })
}

fn key(name: &str) -> String {
    format!("general.sampling.{name}")
}
