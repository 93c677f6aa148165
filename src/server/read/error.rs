//! Errors of parsing, with the position of the wrong value.

use std::fmt::Display;

use serde::de;
use serde_json::Value;
use serde_path_to_error::Path;

use crate::server::{error::ApiError, fields::shown};

/// Separates the parts of a failure while serde passes it on. Messages never contain it: they show
/// values as JSON, which escapes it.
const MARK: char = '\u{1}';

/// An error in a value, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The place within the value being read: empty for the value itself.
    place: String,
    /// Whether the message starts with the place.
    names_place: bool,
    message: String,
}

impl Failure {
    /// Creates an error for a missing field.
    pub fn missing(place: &str, expected: impl Display) -> Self {
        Self::of(place, format_args!("must be given: {expected}"))
    }

    /// Creates an error for a wrong value.
    pub fn wrong(place: &str, expected: impl Display, value: &Value) -> Self {
        Self::of(place, format_args!("must be {expected}, not {}", shown(value)))
    }

    /// Creates an error for a value that cannot be used.
    pub fn of(place: &str, reason: impl Display) -> Self {
        Failure { place: place.into(), names_place: true, message: reason.to_string() }
    }

    /// Creates an error for a text that is missing or not one of the expected texts.
    pub fn unless_one_of(place: &str, expected: impl Display, given: Option<&str>) -> Self {
        match given {
            Some(given) => Self::wrong(place, expected, &given.into()),
            None => Self::missing(place, expected),
        }
    }

    /// Creates an error for a message part that is not text, such as an image.
    pub fn no_media(kind: &str) -> Self {
        Failure { names_place: false, ..Self::of("", ApiError::no_media(kind).message) }
    }

    /// Returns the failure of a value in a field.
    pub fn within(self, field: &str) -> Self {
        Failure { place: join(field, &self.place), ..self }
    }

    /// Returns the failure that serde passed on.
    pub fn of_error(error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let position = format!(" at line {} column {}", error.line(), error.column());
        let text = text.strip_suffix(&position).unwrap_or(&text);
        match text.strip_prefix(MARK).and_then(|text| text.split_once(MARK)) {
            // An error from serde.
            None => {
                match text.strip_prefix("invalid type: ").and_then(|t| t.split_once(", expected "))
                {
                    Some((found, expected)) => {
                        Failure::of("", format_args!("must be {expected}, not {found}"))
                    }
                    None => Failure::of("", text),
                }
            }
            Some((place, message)) => match message.strip_prefix(MARK) {
                Some(message) => Failure { names_place: false, ..Failure::of(place, message) },
                None => Failure::of(place, message),
            },
        }
    }

    /// Returns serde's form.
    pub fn into_error<E: de::Error>(self) -> E {
        let Failure { place, names_place, message } = self;
        match names_place {
            true => E::custom(format_args!("{MARK}{place}{MARK}{message}")),
            false => E::custom(format_args!("{MARK}{place}{MARK}{MARK}{message}")),
        }
    }
}

impl From<Failure> for ApiError {
    fn from(Failure { place, names_place, message }: Failure) -> Self {
        let error = match &place[..] {
            _ if !names_place => ApiError::invalid(message),
            "" => {
                let message = message.replacen("an object", "a JSON object", 1);
                ApiError::invalid(format_args!("the body {message}"))
            }
            place => ApiError::invalid(format_args!("\"{place}\": {message}")),
        };
        ApiError { field: Some(place).filter(|place| !place.is_empty()), ..error }
    }
}

/// Returns the failure of a value at a place of the request.
pub fn located(path: &Path, error: &serde_json::Error) -> Failure {
    match path.iter().next() {
        None => Failure::of_error(error),
        Some(_) => Failure::of_error(error).within(&path.to_string()),
    }
}

fn join(outer: &str, inner: &str) -> String {
    match (outer, inner) {
        ("", place) | (place, "") => place.into(),
        (outer, inner) if inner.starts_with('[') => format!("{outer}{inner}"),
        (outer, inner) => format!("{outer}.{inner}"),
    }
}
