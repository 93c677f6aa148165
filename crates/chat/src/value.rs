//! Converts JSON to template values.

use indexmap::IndexMap;
use minijinja::Value;
use serde_json::{Number, Value as Json};

/// Converts JSON to a template value. With serde, every number would become a map, because
/// serde_json's `arbitrary_precision` is on (see [`rope_cpu_json::parse`]).
pub(super) fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(x) => Value::from(*x),
        Json::Number(x) => number(x),
        Json::String(x) => Value::from(x.as_str()),
        Json::Array(x) => x.iter().map(from_json).collect(),
        Json::Object(x) => {
            let pairs = x.iter().map(|(key, value)| (Value::from(key), from_json(value)));
            // This map keeps the order of its keys.
            Value::from_object(pairs.collect::<IndexMap<Value, Value>>())
        }
    }
}

fn number(number: &Number) -> Value {
    match (number.as_i128(), number.as_f64()) {
        (Some(whole), _) => Value::from(whole),
        (None, Some(real)) => Value::from(real),
        // The number exceeds every number type. Python's integers have any length, so keep the
        // digits.
        (None, None) => Value::from(number.to_string()),
    }
}
