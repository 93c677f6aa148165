//! Parses JSON, and prepares text from files for messages.

mod file_text;

pub use file_text::FileText;

use serde::de::DeserializeOwned;
use serde_json::{Number, Value};

/// Parses a JSON text.
///
/// Parsing has two steps, through a [`Value`], because `gguf-rs` enables serde_json's
/// `arbitrary_precision` for the whole program. With this feature, serde sees a number as a map if
/// its type is not requested. So one-step parsing fails for floats inside `#[serde(flatten)]` and
/// in untagged or internally tagged enums (serde-rs/json#505, #721). Even from a [`Value`], only
/// numbers in their shortest form stay numbers, so `1e3` becomes `1000.0` first.
///
/// # Errors
///
/// Returns an error if the text is not JSON, or not a value of type `T`.
///
/// ```
/// #[derive(serde::Deserialize)]
/// #[serde(untagged)]
/// enum Stop {
///     After(f64),
///     Never(bool),
/// }
///
/// assert!(matches!(rope_cpu_json::parse("1e3")?, Stop::After(1000.0)));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[expect(clippy::disallowed_methods, reason = "the only correct use, in two steps")]
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    let mut value = serde_json::from_str(text)?;
    shorten_numbers(&mut value);
    serde_json::from_value(value)
}

/// Writes the floats in a value in their shortest form, as [`parse`] does: `1.50` becomes `1.5`.
pub fn shorten_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_i128().is_none() => {
            if let Some(shortest) = number.as_f64().and_then(Number::from_f64) {
                *number = shortest;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(shorten_numbers),
        Value::Object(map) => map.values_mut().for_each(shorten_numbers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Outer {
        name: String,
        #[serde(flatten)]
        inner: Inner,
        either: Either,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Inner {
        factor: f32,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(untagged)]
    enum Either {
        Number(f64),
        Text(String),
    }

    const TEXT: &str = r#"{"name": "a", "factor": 0.25, "either": 1e3}"#;

    #[test]
    fn a_flattened_float_parses() {
        let inner = Inner { factor: 0.25 };
        let expected = Outer { name: "a".into(), inner, either: Either::Number(1000.0) };
        assert_eq!(parse::<Outer>(TEXT).unwrap(), expected);
        for number in ["1000", "1000.00", "1e3", "1E+03", "0.1e4"] {
            let text = TEXT.replace("1e3", number);
            assert_eq!(parse::<Outer>(&text).unwrap().either, expected.either, "{number}");
        }
    }

    /// If this test fails, gguf-rs no longer enables the feature, and `parse` can be removed.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "shows why it is disallowed")]
    fn a_flattened_float_does_not_parse_in_one_step() {
        assert!(serde_json::from_str::<Outer>(TEXT).is_err());
    }

    #[test]
    fn a_text_that_is_not_json_is_an_error() {
        assert!(parse::<Inner>("{\"factor\": }").is_err());
        assert!(parse::<Inner>("{\"factor\": true}").is_err());
    }
}
