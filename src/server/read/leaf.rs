//! Values without fields: texts, numbers, lists of them.

use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};

use super::{Entry, Failure, Read, Shape, elements};
use crate::server::fields::whole_number;

/// Parses a small value through a [`Value`], so that errors can show it.
fn leaf<'de, T, D: Deserializer<'de>>(
    deserializer: D,
    expected: &str,
    read: impl FnOnce(&Value) -> Option<T>,
) -> Result<T, D::Error> {
    let value = Value::deserialize(deserializer)?;
    read(&value).ok_or_else(|| Failure::wrong("", expected, &value).into_error())
}

impl Read for bool {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        leaf(deserializer, "true or false", Value::as_bool)
    }
}

impl Read for f64 {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        leaf(deserializer, "a finite number", |value| value.as_f64().filter(|x| x.is_finite()))
    }
}

impl Shape for String {
    fn expected() -> String {
        "a string".into()
    }

    fn text(text: String) -> Result<Self, String> {
        Ok(text)
    }
}

/// A JSON value of any form, with numbers in their shortest form: see [`rope_cpu::json`].
impl Read for Value {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        rope_cpu::json::shorten_numbers(&mut value);
        Ok(value)
    }
}

impl Read for Map<String, Value> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::read(deserializer)? {
            Value::Object(map) => Ok(map),
            value => Err(Failure::wrong("", "an object", &value).into_error()),
        }
    }
}

impl<T: Read> Read for Option<T> {
    const ENTRIES: &'static [Entry] = T::ENTRIES;

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(OptionVisitor(std::marker::PhantomData))
    }
}

struct OptionVisitor<T>(std::marker::PhantomData<T>);

impl<'de, T: Read> de::Visitor<'de> for OptionVisitor<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_none<E: de::Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        T::read(deserializer).map(Some)
    }
}

impl<T: Read> Shape for Vec<T> {
    fn expected() -> String {
        "a list".into()
    }

    fn null() -> Option<Self> {
        Some(Vec::new())
    }

    fn list<'de, A: de::SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        elements(list)
    }
}

/// A whole number from `LEAST` to `MOST`, such as 3 or 3.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole<const LEAST: i64, const MOST: i64>(pub i64);

impl<const LEAST: i64, const MOST: i64> Whole<LEAST, MOST> {
    /// Returns the number as a count; `None` if it is negative.
    pub fn count(self) -> Option<usize> {
        usize::try_from(self.0).ok()
    }
}

impl<const LEAST: i64, const MOST: i64> Read for Whole<LEAST, MOST> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        whole(&value, LEAST, MOST).map(Whole).map_err(Failure::into_error)
    }
}

/// Returns a whole number from `least` to `most`.
///
/// # Errors
/// If the value is not a whole number, or out of range.
pub fn whole(value: &Value, least: i64, most: i64) -> Result<i64, Failure> {
    let found = whole_number(value).filter(|number| (least..=most).contains(number));
    found.ok_or_else(|| match (least, most) {
        (i64::MIN, i64::MAX) => Failure::wrong("", "a whole number of 64 bits", value),
        _ => Failure::wrong("", format_args!("a whole number from {least} to {most}"), value),
    })
}

/// A string, or a list of at most `COUNT` strings of `BYTES` bytes together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts<const COUNT: usize = { usize::MAX }, const BYTES: usize = { usize::MAX }>(
    pub Vec<String>,
);

impl<const COUNT: usize, const BYTES: usize> Read for Texts<COUNT, BYTES> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = |value: &Value| value.as_str().map(str::to_string);
        let texts = leaf(deserializer, "a string or a list of strings", |value| match value {
            Value::Null => Some(Vec::new()),
            Value::Array(texts) => texts.iter().map(text).collect(),
            value => Some(vec![text(value)?]),
        })?;
        let (count, bytes) = (texts.len(), texts.iter().map(String::len).sum::<usize>());
        if count > COUNT || bytes > BYTES {
            let reason = format_args!(
                "must be at most {COUNT} strings of at most {BYTES} bytes together, not {count} strings \
                 of {bytes} bytes"
            );
            return Err(Failure::of("", reason).into_error());
        }
        Ok(Texts(texts))
    }
}
