//! Metadata from the command line: `--override-kv KEY=TYPE:VALUE[,...]`.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::limits::KEY_BYTES_MAX;
use super::{Error as FileError, Metadata, Value, ValueType, quoted};

/// Why the text of an override cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum Error {
    #[error("{text} is not of the form KEY=TYPE:VALUE")]
    Form { text: String },
    #[error("the key of {text} is empty or too long")]
    Key { text: String },
    #[error("key {key}: {given} is not a type: use int, float, bool or str")]
    Type { key: String, given: String },
    #[error("key {key}: {value} is not {expected}")]
    Value { key: String, value: String, expected: &'static str },
    #[error("{text}: a quoted item must end with its closing quote")]
    Quote { text: String },
}

/// One key with the value that the user gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    key: String,
    value: Owned,
}

#[derive(Clone, Debug, PartialEq)]
enum Owned {
    Int(i64),
    Float(f64),
    Bool(bool),
    Str(String),
}

impl Override {
    /// Reads a comma-separated list, as the flag takes it. An item that holds commas is put in
    /// double quotes, in which `""` stands for a quote.
    ///
    /// # Errors
    ///
    /// The first item that is not `KEY=TYPE:VALUE`, or whose value is not of its type.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, Error> {
        split_list(text)?.iter().map(|item| item.parse()).collect()
    }

    /// The key that is replaced or added.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// As the type of what the file has, or else as the one that keys mostly have: programs that a
    /// copy is made for take no other.
    fn value(&self, found: Option<Value<'_>>) -> Value<'_> {
        match &self.value {
            Owned::Int(x) => {
                let value_type = found.map_or(ValueType::U32, Value::value_type);
                Value::whole(value_type, *x).unwrap_or(Value::I64(*x))
            }
            Owned::Float(x) => match (found, *x as f32) {
                (None | Some(Value::F32(_)), single) if single.is_finite() => Value::F32(single),
                _ => Value::F64(*x),
            },
            Owned::Bool(x) => Value::Bool(*x),
            Owned::Str(x) => Value::String(x.as_bytes()),
        }
    }

    fn type_name(&self) -> &'static str {
        match self.value {
            Owned::Int(_) => "int",
            Owned::Float(_) => "float",
            Owned::Bool(_) => "bool",
            Owned::Str(_) => "str",
        }
    }

    /// Whether it may stand for what the file has: an integer for one of any width, and so on.
    fn fits(&self, found: Value<'_>) -> bool {
        match self.value {
            Owned::Int(_) => found.integer().is_some(),
            Owned::Float(_) => matches!(found, Value::F32(_) | Value::F64(_)),
            Owned::Bool(_) => matches!(found, Value::Bool(_)),
            Owned::Str(_) => matches!(found, Value::String(_)),
        }
    }
}

/// As it is typed: `KEY=TYPE:VALUE`.
impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}:", self.key, self.type_name())?;
        match &self.value {
            Owned::Int(x) => write!(f, "{x}"),
            Owned::Float(x) => write!(f, "{x}"),
            Owned::Bool(x) => write!(f, "{x}"),
            Owned::Str(x) => f.write_str(x),
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
            "int" => Owned::Int(value.parse().map_err(|_| wrong("a whole number of 64 bits"))?),
            "float" => Owned::Float(
                value
                    .parse()
                    .ok()
                    .filter(|x: &f64| x.is_finite())
                    .ok_or_else(|| wrong("a finite number"))?,
            ),
            "bool" => Owned::Bool(value.parse().map_err(|_| wrong("true or false"))?),
            "str" => Owned::Str(value.into()),
            other => return Err(Error::Type { key: quoted(key), given: quoted(other) }),
        };
        Ok(Self { key: key.into(), value })
    }
}

/// Replaces or adds the keys; a key of the file keeps its type of value, if that can hold the new one.
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

/// The items of a comma-separated list. One that holds commas is put in double quotes, in which `""`
/// stands for a quote.
///
/// # Errors
///
/// A quote that is not closed, or that ends within an item.
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

/// An item after its opening quote, and what follows its closing one.
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
