//! Parses requests into typed values. Skips fields without a type, and does not build their values.
//!
//! serde's errors describe Rust types. Here, an error names the field as in the request, its
//! position and the allowed values: `"messages[0].role": must be one of user, assistant, not
//! "robot"`. `null` counts as missing.
//!
//! Unlike in [`rope_cpu::json`], parsing has one step. No type here uses serde's `flatten` or
//! `untagged`, so `arbitrary_precision` does no harm.

mod error;
mod leaf;
mod object;
mod parsed;
mod unknown;

use std::marker::PhantomData;

use axum::body::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor, value as access},
};
use serde_json::Value;

pub use error::Failure;
pub use leaf::{Texts, Whole, whole};
pub use object::{Entry, Fill, Object, Treatment, skip, value};
pub use parsed::Parsed;

use super::error::ApiError;
use error::located;

/// A type that can be read from a value of a request.
pub trait Read: Sized {
    /// The table of fields; empty if the type is not an object.
    #[cfg_attr(not(test), allow(dead_code, reason = "docs/fields.md is written by a test"))]
    const ENTRIES: &'static [Entry] = &[];

    /// Reads a value.
    ///
    /// # Errors
    /// If the value has another form. The error is a [`Failure`].
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

/// Reads the body of a request.
///
/// # Errors
/// If it is not JSON (names the position) or has another form (names the field).
pub fn parse<T: Read>(body: &Bytes) -> Result<T, ApiError> {
    let text = std::str::from_utf8(body)
        .map_err(|e| ApiError::invalid(format_args!("the body is not UTF-8: {e}")))?;
    let mut json = serde_json::Deserializer::from_str(text);
    let value = tracked(&mut json).and_then(|value| json.end().map(|()| value));
    value.map_err(|e| match e.is_data() {
        true => Failure::of_error(&e).into(),
        false => ApiError::invalid(format_args!("the body is not valid JSON: {e}")),
    })
}

/// Reads a type from a parsed JSON value.
///
/// # Errors
/// If it has another form. The error names the field.
pub fn of_value<T: Read>(value: Value) -> Result<T, Failure> {
    tracked(value).map_err(|e| Failure::of_error(&e))
}

fn tracked<'de, T, D>(deserializer: D) -> Result<T, serde_json::Error>
where
    T: Read,
    D: Deserializer<'de, Error = serde_json::Error>,
{
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(deserializer, &mut track);
    T::read(tracked).map_err(|e| match e.is_data() {
        true => located(&track.path(), &e).into_error(),
        false => e,
    })
}

/// Reads a value where serde asks for a seed.
pub struct Seed<T>(PhantomData<T>);

impl<T> Seed<T> {
    /// Creates a seed.
    pub fn new() -> Self {
        Seed(PhantomData)
    }
}

impl<'de, T: Read> DeserializeSeed<'de> for Seed<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::read(deserializer)
    }
}

/// The forms of JSON that a type accepts. Any other form is an error that shows the value.
pub trait Shape: Sized {
    /// The table of fields; empty if the type is not an object.
    const FIELDS: &'static [Entry] = &[];

    /// Returns what the value must be, for errors.
    fn expected() -> String;

    /// Returns the value for null.
    fn null() -> Option<Self> {
        None
    }

    /// Returns the value of a text. Without one, gives the text back.
    fn text(text: String) -> Result<Self, String> {
        Err(text)
    }

    /// Returns the value of a list.
    fn list<'de, A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        refuse::<Self, _>(Value::deserialize(access::SeqAccessDeserializer::new(list))?)
    }

    /// Returns the value of an object. serde_json also passes some numbers as objects.
    fn object<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        refuse::<Self, _>(Value::deserialize(access::MapAccessDeserializer::new(map))?)
    }
}

impl<T: Shape> Read for T {
    const ENTRIES: &'static [Entry] = T::FIELDS;

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Visit(PhantomData))
    }
}

fn refuse<T: Shape, E: serde::de::Error>(value: impl Into<Value>) -> Result<T, E> {
    Err(Failure::wrong("", T::expected(), &value.into()).into_error())
}

struct Visit<T>(PhantomData<T>);

impl<'de, T: Shape> Visitor<'de> for Visit<T> {
    type Value = T;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&T::expected())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<T, E> {
        refuse(value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<T, E> {
        refuse(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<T, E> {
        refuse(value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<T, E> {
        refuse(value)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        self.visit_string(text.into())
    }

    fn visit_string<E: serde::de::Error>(self, text: String) -> Result<T, E> {
        T::text(text).or_else(refuse)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<T, E> {
        T::null().map_or_else(|| refuse(Value::Null), Ok)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::list(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::object(map)
    }
}

/// Reads the elements of a list.
///
/// # Errors
/// If one of them has another form.
pub fn elements<'de, T: Read, A: SeqAccess<'de>>(mut list: A) -> Result<Vec<T>, A::Error> {
    let mut elements = Vec::new();
    while let Some(element) = list.next_element_seed(Seed::new())? {
        elements.push(element);
    }
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::object! {
        struct Outer {
            /// An object.
            inner: Option<Inner>,
            /// A list.
            list: Vec<Inner>,
            /// A limit.
            limit ["limits.max"]: Option<Whole<-1, 3>>,
            /// A number.
            number: Option<f64>,
            /// A value.
            value: Option<Value>,
            ..flat: Flat,
        }
        others {
            "ignored": Treatment::Ignored("nothing changes"),
            "refused": Treatment::Refused("nobody can", &["x", "1"]),
        }
    }

    crate::object! {
        struct Inner {
            /// A text.
            text: Option<String>,
        }
        others {
            "refused": Treatment::Refused("nobody can", &[]),
        }
    }

    crate::object! {
        struct Flat {
            /// A switch.
            switch: Option<bool>,
        }
    }

    fn read(text: &str) -> Result<Outer, (String, Option<String>)> {
        parse(&Bytes::copy_from_slice(text.as_bytes())).map_err(|e| (e.message, e.field))
    }

    #[test]
    fn fields_are_read_and_others_skipped() {
        let text = r#"{"unknown": [[{"a": 1e999}]], "ignored": {}, "refused": ["", "x"], "switch": true,
            "inner": {"text": "t", "refused": false}, "list": [{}, {"text": null}], "number": 1e3,
            "limits.max": 3.0, "value": {"b": 1.50, "a": [2e1]}}"#;
        let outer = read(text).unwrap();
        assert_eq!(outer.inner.unwrap().text.as_deref(), Some("t"));
        assert_eq!(outer.list.len(), 2);
        assert_eq!((outer.limit, outer.number), (Some(Whole(3)), Some(1000.0)));
        assert_eq!(outer.flat.switch, Some(true));
        assert_eq!(outer.value.unwrap().to_string(), r#"{"b":1.5,"a":[20.0]}"#);
        let empty =
            read(r#"{"inner": null, "list": null, "number": null, "refused": 1.0}"#).unwrap();
        assert!(empty.inner.is_none() && empty.list.is_empty() && empty.number.is_none());
    }

    #[test]
    fn errors_name_the_field_its_value_and_what_is_permitted() {
        for (text, field, message) in [
            (r#"{"switch": 1}"#, "switch", "must be true or false, not 1"),
            (r#"{"limits.max": 4}"#, "limits.max", "must be a whole number from -1 to 3, not 4"),
            (r#"{"number": 1e999}"#, "number", "must be a finite number, not 1e+999"),
            (r#"{"inner": 5}"#, "inner", "must be an object, not 5"),
            (r#"{"inner": [1]}"#, "inner", "must be an object, not [1]"),
            (r#"{"inner": {"text": 5}}"#, "inner.text", "must be a string, not 5"),
            (
                r#"{"inner": {"text": {"a": 0.5}}}"#,
                "inner.text",
                r#"must be a string, not {"a":0.5}"#,
            ),
            (r#"{"inner": {"refused": 1}}"#, "inner.refused", "not supported: nobody can"),
            (r#"{"refused": ["x", 2]}"#, "refused", "not supported: nobody can"),
            (r#"{"refused": 1e999}"#, "refused", "not supported: nobody can"),
            (r#"{"list": "a"}"#, "list", r#"must be a list, not "a""#),
            (r#"{"list": [{}, true]}"#, "list[1]", "must be an object, not true"),
            (r#"{"list": [{}, {"text": []}]}"#, "list[1].text", "must be a string, not []"),
        ] {
            let expected = (format!("\"{field}\": {message}"), Some(field.to_string()));
            assert_eq!(read(text).unwrap_err(), expected, "{text}");
        }
    }

    #[test]
    fn a_body_that_is_no_object_of_json_is_an_error() {
        for (text, part) in [
            ("[1]", "the body must be a JSON object, not [1]"),
            ("7", "the body must be a JSON object, not 7"),
            ("", "the body is not valid JSON: EOF"),
            (r#"{"inner": {"text": "a}"#, "the body is not valid JSON: EOF"),
            (r#"{"unknown": [1,]}"#, "the body is not valid JSON: "),
            ("{} {}", "the body is not valid JSON: trailing characters at line 1 column 4"),
        ] {
            let (message, field) = read(text).unwrap_err();
            assert!(message.contains(part) && field.is_none(), "{text}: {message}");
        }
    }

    #[test]
    fn an_object_is_filled_from_two_places() {
        let mut inner = Inner { text: Some("a".into()) };
        Fill(&mut inner).deserialize(Value::Null).unwrap();
        assert_eq!(inner.text.as_deref(), Some("a"));
        Fill(&mut inner).deserialize(serde_json::json!({ "text": "b" })).unwrap();
        assert_eq!(inner.text.as_deref(), Some("b"));
    }
}
