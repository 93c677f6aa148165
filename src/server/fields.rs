//! Values of fields: their limits, and how errors show them.

use serde_json::Value;

/// Maximum tokens or milliseconds in a request: more than any answer takes.
pub const COUNT_MAX: i64 = i32::MAX as i64;

/// Maximum characters of a value in an error.
const SHOWN_MAX: usize = 100;

/// Returns a value as text for an error.
pub fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// Returns the value as a whole number, such as 3 or 3.0.
pub fn whole_number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let number = value.as_f64()?;
        let exact = number.fract() == 0.0 && number.abs() < 2f64.powi(63);
        exact.then_some(number as i64)
    })
}
