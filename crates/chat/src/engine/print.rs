//! Values as text: `str` and `repr` of Python.

use minijinja::{Error, Value, value::ValueKind};

use super::{
    meter::{self, Text, invalid},
    number::{self, Number},
};

/// Writes a value as `str` does; undefined is empty.
///
/// # Errors
/// If the text is too large, or the value is nested too deeply.
pub(super) fn display(value: &Value, text: &mut Text) -> Result<(), Error> {
    match value.as_str() {
        Some(string) => text.push(string),
        None if value.is_undefined() => Ok(()),
        None => repr(value, 0, text),
    }
}

/// Writes a value at `depth` within another as `repr` does.
///
/// # Errors
/// As for [`display`].
pub(super) fn repr(value: &Value, depth: usize, text: &mut Text) -> Result<(), Error> {
    meter::enter(depth)?;
    match value.kind() {
        ValueKind::Undefined => text.push("Undefined"),
        ValueKind::None => text.push("None"),
        ValueKind::Bool => text.push(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => match Number::new(value) {
            Some(Number::Float(x)) => text.push(&number::float(x)),
            Some(Number::Int(x)) => text.push(&x.to_string()),
            None => Err(number::too_large(&value.to_string())),
        },
        ValueKind::String => quoted(value.as_str().unwrap_or_default(), text),
        ValueKind::Seq | ValueKind::Iterable => {
            let (open, mut close) = if value.is_tuple() { ("(", ")") } else { ("[", "]") };
            if value.is_tuple() && value.len() == Some(1) {
                close = ",)";
            }
            text.push(open)?;
            all(value.try_iter()?, text, |item, text| repr(&item, depth + 1, text))?;
            text.push(close)
        }
        ValueKind::Map => {
            let (open, close) =
                if is_namespace(value) { ("<Namespace {", "}>") } else { ("{", "}") };
            text.push(open)?;
            let pairs = value.as_object().and_then(|map| map.try_iter_pairs());
            all(pairs.into_iter().flatten(), text, |(key, item), text| {
                repr(&key, depth + 1, text)?;
                text.push(": ")?;
                repr(&item, depth + 1, text)
            })?;
            text.push(close)
        }
        // Macros and functions.
        ValueKind::Plain => text.push("<callable>"),
        other => Err(invalid(format!("a value of type {other} has no text"))),
    }
}

/// Returns whether `namespace()` has made the value; the engine does not show this type.
pub(super) fn is_namespace(value: &Value) -> bool {
    value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

fn all<T>(
    items: impl Iterator<Item = T>,
    text: &mut Text,
    mut each: impl FnMut(T, &mut Text) -> Result<(), Error>,
) -> Result<(), Error> {
    for (i, item) in items.enumerate() {
        if i > 0 {
            text.push(", ")?;
        }
        each(item, text)?;
    }
    Ok(())
}

fn quoted(string: &str, text: &mut Text) -> Result<(), Error> {
    let quote = if string.contains('\'') && !string.contains('"') { "\"" } else { "'" };
    text.push(quote)?;
    for c in string.chars() {
        match c {
            '\\' => text.push("\\\\")?,
            '\n' => text.push("\\n")?,
            '\r' => text.push("\\r")?,
            '\t' => text.push("\\t")?,
            '\'' if quote == "'" => text.push("\\'")?,
            c if is_printable(c) => text.push_char(c)?,
            c => text.push(&match c as u32 {
                x @ ..0x100 => format!("\\x{x:02x}"),
                x @ ..0x10000 => format!("\\u{x:04x}"),
                x => format!("\\U{x:08x}"),
            })?,
        }
    }
    text.push(quote)
}

fn is_printable(c: char) -> bool {
    if matches!(c, ' '..='~') {
        return true;
    }
    // Behind another character, the standard library escapes only characters that do not print.
    let mut buffer = [b'a'; 5];
    let len = c.encode_utf8(&mut buffer[1..]).len();
    let pair = std::str::from_utf8(&buffer[..=len]).unwrap_or_default();
    pair.escape_debug().nth(1) == Some(c)
}
