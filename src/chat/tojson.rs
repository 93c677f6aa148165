//! `tojson` as chat templates know it: Python's `json.dumps`, its arguments and its spelling.
//!
//! The template engine's own escapes HTML, as Jinja does, which `transformers` does not; and it
//! refuses the arguments.

use std::fmt::Write;

use minijinja::{
    Error, ErrorKind, Value,
    value::{Kwargs, ValueKind},
};

/// `value|tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`
pub(super) fn tojson(
    value: &Value,
    indent: Option<Value>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let given = |name| kwargs.get::<Option<Value>>(name);
    let indent = indent.or(given("indent")?).filter(|indent| !indent.is_none());
    let indent = match indent {
        None => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::from(u8::try_from(indent)?)),
        }),
    };
    let separators = match given("separators")?.filter(|pair| !pair.is_none()) {
        Some(pair) => {
            let separator = |i| match pair.get_item(&Value::from(i))?.as_str() {
                Some(text) => Ok(text.to_owned()),
                None => Err(invalid("tojson: separators are two strings")),
            };
            (separator(0)?, separator(1)?)
        }
        None if indent.is_some() => (",".into(), ": ".into()),
        None => (", ".into(), ": ".into()),
    };
    let writer = Writer {
        indent,
        separators,
        ensure_ascii: given("ensure_ascii")?.is_some_and(|x| x.is_true()),
        sort_keys: given("sort_keys")?.is_some_and(|x| x.is_true()),
    };
    kwargs.assert_all_used()?;
    let mut json = String::new();
    writer.value(value, 0, &mut json)?;
    Ok(json)
}

struct Writer {
    indent: Option<String>,
    /// Between items, and after a key.
    separators: (String, String),
    ensure_ascii: bool,
    sort_keys: bool,
}

/// Values deeper than this are not JSON that anyone wrote.
const DEPTH_MAX: usize = 128;

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.into())
}

impl Writer {
    fn value(&self, value: &Value, depth: usize, json: &mut String) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(invalid("tojson: the value is nested too deeply"));
        }
        match value.kind() {
            ValueKind::None => json.push_str("null"),
            ValueKind::Bool => json.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => number(value, json)?,
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), json),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.all("[]", items, depth, json, |item, json| {
                    self.value(&item, depth + 1, json)
                })?;
            }
            ValueKind::Map => {
                let mut entries = Vec::new();
                for key in value.try_iter()? {
                    entries.push((self.key(&key)?, value.get_item(&key)?));
                }
                if self.sort_keys {
                    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
                }
                self.all("{}", entries, depth, json, |(key, value), json| {
                    self.string(&key, json);
                    json.push_str(&self.separators.1);
                    self.value(&value, depth + 1, json)
                })?;
            }
            other => return Err(invalid(format!("tojson: {other} has no form in JSON"))),
        }
        Ok(())
    }

    /// Python writes keys that are not strings as JSON would write the value.
    fn key(&self, key: &Value) -> Result<String, Error> {
        match key.kind() {
            ValueKind::String => Ok(key.as_str().unwrap_or_default().into()),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                let mut text = String::new();
                self.value(key, 0, &mut text)?;
                Ok(text)
            }
            other => Err(invalid(format!("tojson: {other} cannot be a key"))),
        }
    }

    fn all<T>(
        &self,
        brackets: &str,
        items: Vec<T>,
        depth: usize,
        json: &mut String,
        mut each: impl FnMut(T, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (open, close) = brackets.split_at(1);
        json.push_str(open);
        let empty = items.is_empty();
        for (i, item) in items.into_iter().enumerate() {
            if i > 0 {
                json.push_str(&self.separators.0);
            }
            self.line(depth + 1, json);
            each(item, json)?;
        }
        if !empty {
            self.line(depth, json);
        }
        json.push_str(close);
        Ok(())
    }

    fn line(&self, depth: usize, json: &mut String) {
        if let Some(indent) = &self.indent {
            json.push('\n');
            json.extend(std::iter::repeat_n(indent.as_str(), depth));
        }
    }

    fn string(&self, text: &str, json: &mut String) {
        json.push('"');
        for c in text.chars() {
            match c {
                '"' => json.push_str("\\\""),
                '\\' => json.push_str("\\\\"),
                '\n' => json.push_str("\\n"),
                '\r' => json.push_str("\\r"),
                '\t' => json.push_str("\\t"),
                '\x08' => json.push_str("\\b"),
                '\x0c' => json.push_str("\\f"),
                c if c < ' ' || self.ensure_ascii && c > '~' => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a string cannot fail.
                        let _ = write!(json, "\\u{unit:04x}");
                    }
                }
                c => json.push(c),
            }
        }
        json.push('"');
    }
}

/// A number as Python spells it: `1.0`, `1e-07`, `1e+16`, `NaN`, `Infinity`.
fn number(value: &Value, json: &mut String) -> Result<(), Error> {
    if value.is_integer() {
        json.push_str(&value.to_string());
        return Ok(());
    }
    let real = f64::try_from(value.clone())?;
    if !real.is_finite() {
        let name = if real.is_nan() { "NaN" } else { "Infinity" };
        json.push_str(if real < 0.0 { "-" } else { "" });
        json.push_str(name);
        return Ok(());
    }
    // Both write the shortest digits that read back the same, and exponents in the same range.
    let text = format!("{real:?}");
    match text.split_once('e') {
        None => json.push_str(&text),
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            let _ = write!(json, "{digits}e{sign}{exponent:0>2}");
        }
    }
    Ok(())
}
