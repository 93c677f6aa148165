//! Metadata keys that a user sets: `KEY=TYPE:VALUE[,...]`, the value of [`Setting::OVERRIDE_KV`].
//!
//! [`Setting::OVERRIDE_KV`]: crate::settings::Setting::OVERRIDE_KV

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::limits::KEY_BYTES_MAX;
use super::{Error as FileError, Metadata, Value, ValueType, quoted};
use crate::json::FileText;

/// An error in the text of an override.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum Error {
    #[error("{text} is not of the form KEY=TYPE:VALUE")]
    Form { text: FileText },
    #[error("the key of {text} is empty or too long")]
    Key { text: FileText },
    #[error("key {key}: {given} is not a type: use int, float, bool or str")]
    Type { key: FileText, given: FileText },
    #[error("key {key}: {value} is not {expected}")]
    Value { key: FileText, value: FileText, expected: &'static str },
    #[error("{text}: a quoted item must end with its closing quote")]
    Quote { text: FileText },
}

/// A metadata key with a value that replaces the value in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    key: String,
    value: OverrideValue,
}

#[derive(Clone, Debug, PartialEq)]
enum OverrideValue {
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(String),
}

impl Override {
    /// Parses a comma-separated list. An item that contains commas is in double quotes, where `""`
    /// is a quote.
    ///
    /// # Errors
    ///
    /// Returns an error for the first item that is not `KEY=TYPE:VALUE`, or has a value of another
    /// type.
    ///
    /// ```
    /// # use rope_cpu::gguf::Override;
    /// let overrides = Override::parse_list("llama.context_length=int:8192,general.name=str:test")?;
    /// assert_eq!(overrides[1].key(), "general.name");
    /// # Ok::<(), rope_cpu::gguf::OverrideError>(())
    /// ```
    pub fn parse_list(text: &str) -> Result<Vec<Self>, Error> {
        split_list(text)?.iter().map(|item| item.parse()).collect()
    }

    /// Returns the key that is replaced or added.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the value with the type of the file's value `found`. A new key has the type that
    /// most keys have, u32 or f32: other programs that read a copy of the file accept no other
    /// type.
    fn value(&self, found: Option<Value<'_>>) -> Value<'_> {
        match &self.value {
            OverrideValue::Int(x) => {
                let value_type = found.map_or(ValueType::U32, Value::value_type);
                Value::from_integer(value_type, *x).unwrap_or(Value::I64(*x))
            }
            OverrideValue::Float(x) => match (found, *x as f32) {
                (None | Some(Value::F32(_)), single) if single.is_finite() => Value::F32(single),
                _ => Value::F64(*x),
            },
            OverrideValue::Bool(x) => Value::Bool(*x),
            OverrideValue::Str(x) => Value::String(x.as_bytes()),
        }
    }

    fn type_name(&self) -> &'static str {
        match self.value {
            OverrideValue::Int(_) => "int",
            OverrideValue::Float(_) => "float",
            OverrideValue::Bool(_) => "bool",
            OverrideValue::Str(_) => "str",
        }
    }

    /// Returns whether the override has the same kind of type as the file's value. For example, an
    /// integer may replace an integer of any width.
    fn fits(&self, found: Value<'_>) -> bool {
        match self.value {
            OverrideValue::Int(_) => found.integer().is_some(),
            OverrideValue::Float(_) => matches!(found, Value::F32(_) | Value::F64(_)),
            OverrideValue::Bool(_) => matches!(found, Value::Bool(_)),
            OverrideValue::Str(_) => matches!(found, Value::String(_)),
        }
    }
}

/// Formats the override as `KEY=TYPE:VALUE`.
impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}:", self.key, self.type_name())?;
        match &self.value {
            OverrideValue::Int(x) => write!(f, "{x}"),
            OverrideValue::Float(x) => write!(f, "{x}"),
            OverrideValue::Bool(x) => write!(f, "{x}"),
            OverrideValue::Str(x) => f.write_str(x),
        }
    }
}

impl FromStr for Override {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let form = || Error::Form { text: quoted(text) };
        let (key, rest) = text.split_once('=').ok_or_else(form)?;
        let (type_name, value) = rest.split_once(':').ok_or_else(form)?;
        if key.is_empty() || key.len() as u64 > KEY_BYTES_MAX {
            return Err(Error::Key { text: quoted(text) });
        }
        let wrong = |expected| Error::Value { key: quoted(key), value: quoted(value), expected };
        let value = match type_name {
            "int" => {
                OverrideValue::Int(value.parse().map_err(|_| wrong("a whole number of 64 bits"))?)
            }
            "float" => OverrideValue::Float(
                value
                    .parse()
                    .ok()
                    .filter(|x: &f64| x.is_finite())
                    .ok_or_else(|| wrong("a finite number"))?,
            ),
            "bool" => OverrideValue::Bool(value.parse().map_err(|_| wrong("true or false"))?),
            "str" => OverrideValue::Str(value.into()),
            other => return Err(Error::Type { key: quoted(key), given: quoted(other) }),
        };
        Ok(Self { key: key.into(), value })
    }
}

/// Applies `overrides` to `metadata`.
///
/// An existing key keeps its type if that type can hold the new value.
pub(super) fn apply<'a>(
    metadata: &mut Metadata<'a>,
    overrides: &'a [Override],
) -> Result<(), FileError> {
    let mut keys = HashSet::new();
    for item in overrides {
        let key = item.key.as_str();
        if key == "general.alignment" {
            return Err(FileError::OverrideAlignment);
        }
        if !keys.insert(key) {
            return Err(FileError::OverrideTwice { key: quoted(key) });
        }
        let found = metadata.get(key);
        if let Some(found) = found.filter(|found| !item.fits(*found)) {
            let (key, given, found) = (quoted(key), item.type_name(), found.describe());
            return Err(FileError::OverrideType { key, given, found });
        }
        metadata.override_with(key, item.value(found));
    }
    Ok(())
}

/// Splits a comma-separated list into its items. An item that contains commas is in double quotes,
/// where `""` is a quote.
///
/// # Errors
///
/// Returns an error if a quote is not closed, or is closed before the end of an item.
///
/// ```
/// # use rope_cpu::gguf::split_list;
/// assert_eq!(split_list(r#"a,"b,c""#)?, ["a", "b,c"]);
/// # Ok::<(), rope_cpu::gguf::OverrideError>(())
/// ```
pub fn split_list(text: &str) -> Result<Vec<String>, Error> {
    let mut items = Vec::new();
    let mut rest = text;
    loop {
        let (item, tail) = match rest.strip_prefix('"') {
            Some(inner) => quoted_item(inner).ok_or_else(|| Error::Quote { text: quoted(text) })?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (rest[..end].to_string(), &rest[end..])
            }
        };
        items.push(item);
        match tail.strip_prefix(',') {
            Some(next) => rest = next,
            None if tail.is_empty() => return Ok(items),
            None => return Err(Error::Quote { text: quoted(text) }),
        }
    }
}

/// Splits off a quoted item, without its opening quote. Returns the item and the text after its
/// closing quote.
fn quoted_item(text: &str) -> Option<(String, &str)> {
    let mut item = String::new();
    let mut rest = text;
    loop {
        let (part, tail) = rest.split_once('"')?;
        item.push_str(part);
        match tail.strip_prefix('"') {
            Some(next) => {
                item.push('"');
                rest = next;
            }
            None => return Some((item, tail)),
        }
    }
}
