//! `tojson` for chat templates: Python's `json.dumps`, with its arguments and its spelling.
//!
//! The engine's own `tojson` escapes HTML, like Jinja but unlike `transformers`, and refuses the
//! arguments.

use minijinja::{
    Error, Value,
    value::{Kwargs, ValueKind},
};

use super::{
    meter::{self, Text, invalid},
    number::{self, Number},
};

/// `value|tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`
pub(super) fn tojson(value: &Value, indent: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let given = |name| kwargs.get::<Option<Value>>(name);
    let indent = indent.or(given("indent")?).filter(|indent| !indent.is_none());
    let indent = match indent {
        None => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            None => match indent.as_i64().map(u8::try_from) {
                Some(Ok(indent)) => " ".repeat(indent.into()),
                _ => return Err(invalid(format!("tojson: indent={indent} is not in 0..=255"))),
            },
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
    let mut json = Text::default();
    writer.value(value, 0, &mut json)?;
    json.into_value()
}

struct Writer {
    indent: Option<String>,
    /// Between items, and after a key.
    separators: (String, String),
    ensure_ascii: bool,
    sort_keys: bool,
}

impl Writer {
    fn value(&self, value: &Value, depth: usize, json: &mut Text) -> Result<(), Error> {
        meter::enter(depth)?;
        match value.kind() {
            ValueKind::None => json.push("null"),
            ValueKind::Bool => json.push(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => json.push(&number(value)?),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), json),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.all("[]", items, depth, json, |item, json| self.value(&item, depth + 1, json))
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
                    self.string(&key, json)?;
                    json.push(&self.separators.1)?;
                    self.value(&value, depth + 1, json)
                })
            }
            other => Err(invalid(format!("tojson: {other} cannot be written as JSON"))),
        }
    }

    /// Python writes other keys as the JSON text of their value.
    fn key(&self, key: &Value) -> Result<String, Error> {
        match key.kind() {
            ValueKind::String => Ok(key.as_str().unwrap_or_default().into()),
            ValueKind::None => Ok("null".into()),
            ValueKind::Bool => Ok(key.is_true().to_string()),
            ValueKind::Number => number(key),
            other => Err(invalid(format!("tojson: {other} cannot be a key"))),
        }
    }

    fn all<T>(
        &self,
        brackets: &str,
        items: Vec<T>,
        depth: usize,
        json: &mut Text,
        mut each: impl FnMut(T, &mut Text) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (open, close) = brackets.split_at(1);
        json.push(open)?;
        let empty = items.is_empty();
        for (i, item) in items.into_iter().enumerate() {
            if i > 0 {
                json.push(&self.separators.0)?;
            }
            self.line(depth + 1, json)?;
            each(item, json)?;
        }
        if !empty {
            self.line(depth, json)?;
        }
        json.push(close)
    }

    fn line(&self, depth: usize, json: &mut Text) -> Result<(), Error> {
        let Some(indent) = &self.indent else { return Ok(()) };
        json.push("\n")?;
        json.repeat(indent, depth)
    }

    fn string(&self, text: &str, json: &mut Text) -> Result<(), Error> {
        json.push("\"")?;
        for c in text.chars() {
            match c {
                '"' => json.push("\\\"")?,
                '\\' => json.push("\\\\")?,
                '\n' => json.push("\\n")?,
                '\r' => json.push("\\r")?,
                '\t' => json.push("\\t")?,
                '\x08' => json.push("\\b")?,
                '\x0c' => json.push("\\f")?,
                c if c < ' ' || self.ensure_ascii && c > '~' => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        json.push(&format!("\\u{unit:04x}"))?;
                    }
                }
                c => json.push_char(c)?,
            }
        }
        json.push("\"")
    }
}

/// A number as Python spells it: `1.0`, `1e-07`, `1e+16`, `NaN`, `Infinity`.
fn number(value: &Value) -> Result<String, Error> {
    match Number::new(value) {
        Some(Number::Int(x)) => Ok(x.to_string()),
        Some(Number::Float(x)) if x.is_finite() => Ok(number::float(x)),
        Some(Number::Float(x)) if x.is_nan() => Ok("NaN".into()),
        Some(Number::Float(x)) => Ok(if x > 0.0 { "Infinity" } else { "-Infinity" }.into()),
        None => Err(number::too_large("tojson: a number")),
    }
}
