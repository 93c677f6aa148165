//! Numbers as Python reads and prints them. Python's integers are unlimited; these have 128 bits,
//! and overflow is an error.

use std::fmt::Write;

use minijinja::{Error, Value, value::ValueKind};

use super::meter::invalid;

#[derive(Clone, Copy)]
pub(super) enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    /// Reads a number or a truth value, which is a number in Python.
    pub fn new(value: &Value) -> Option<Self> {
        match value.kind() {
            ValueKind::Bool => Some(Self::Int(value.is_true().into())),
            ValueKind::Number if value.is_integer() => {
                i128::try_from(value.clone()).ok().map(Self::Int)
            }
            ValueKind::Number => f64::try_from(value.clone()).ok().map(Self::Float),
            _ => None,
        }
    }

    pub fn real(self) -> f64 {
        match self {
            Self::Int(x) => x as f64,
            Self::Float(x) => x,
        }
    }
}

pub(super) fn integer(value: i128) -> Value {
    i64::try_from(value).map_or_else(|_| value.into(), Value::from)
}

pub(super) fn too_large(what: &str) -> Error {
    invalid(format!("{what} is too large: integers have 128 bits"))
}

/// Rounds towards zero.
///
/// # Errors
/// If the integer exceeds 128 bits.
pub(super) fn whole(real: f64) -> Result<i128, Error> {
    const END: f64 = 170_141_183_460_469_231_731_687_303_715_884_105_728.0;
    match (-END..END).contains(&real) {
        true => Ok(real as i128),
        false => Err(too_large(&float(real))),
    }
}

/// A float as `str` prints it: `1.0`, `1e+22`, `1e-05`, `nan`, `inf`.
pub(super) fn float(real: f64) -> String {
    if !real.is_finite() {
        return real.to_string().to_lowercase();
    }
    // Both write the shortest digits that read back the same, with the same exponents.
    let mut text = format!("{real:?}");
    if let Some((digits, exponent)) = text.split_once('e') {
        let sign = if exponent.starts_with('-') { '-' } else { '+' };
        let mut python = digits.to_owned();
        // Writing to a string cannot fail.
        let _ = write!(python, "e{sign}{:0>2}", exponent.trim_start_matches('-'));
        text = python;
    }
    text
}

/// Returns the integer that Python's `int(text, base)` reads; `None` if the text is not an integer.
///
/// # Errors
/// If the integer exceeds 128 bits.
pub(super) fn parse_int(text: &str, base: u32) -> Result<Option<i128>, Error> {
    let text = text.trim();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let prefixed = |base| {
        let prefix = match base {
            2 => ["0b", "0B"],
            8 => ["0o", "0O"],
            16 => ["0x", "0X"],
            _ => return None,
        };
        prefix.into_iter().find_map(|prefix| digits.strip_prefix(prefix))
    };
    let (base, digits) = match base {
        0 => match [2, 8, 16].into_iter().find_map(|base| Some((base, prefixed(base)?))) {
            Some(found) => found,
            // As in Python's source, where 010 is not an integer.
            None if digits.starts_with('0') && digits.contains(|c| !matches!(c, '0' | '_')) => {
                return Ok(None);
            }
            None => (10, digits),
        },
        2..=36 => (base, prefixed(base).unwrap_or(digits)),
        _ => return Ok(None),
    };
    let underscores = digits.starts_with('_') || digits.ends_with('_') || digits.contains("__");
    let digits = digits.replace('_', "");
    if underscores || digits.is_empty() || !digits.chars().all(|c| c.is_digit(base)) {
        return Ok(None);
    }
    i128::from_str_radix(&format!("{sign}{digits}"), base).map(Some).map_err(|_| {
        let shown: String = text.chars().take(40).collect();
        too_large(&shown)
    })
}

/// Returns the number that Python's `float(text)` reads; `None` if the text is not a number.
pub(super) fn parse_float(text: &str) -> Option<f64> {
    let text = text.trim();
    let digit = |i: usize| text.as_bytes().get(i).is_some_and(u8::is_ascii_digit);
    // Underscores separate digits.
    if text.match_indices('_').any(|(i, _)| i == 0 || !digit(i - 1) || !digit(i + 1)) {
        return None;
    }
    text.replace('_', "").parse().ok()
}
