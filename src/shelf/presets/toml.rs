//! Presets in TOML.

use toml_edit::{Array, Document, Item, Table, TomlError, Value};

use super::{Choice, Fault, Section};

/// Reads the sections of a file.
pub fn sections(text: &str) -> Result<Vec<Section>, Fault> {
    let document = Document::parse(text).map_err(|error| fault(text, &error))?;
    let mut sections = Vec::new();
    for (key, item) in document.iter() {
        let at = item.span().map_or(1, |span| line(text, span.start));
        let Some(table) = item.as_table_like() else {
            let example = "give it in a section, such as [big-context]";
            return Err((at, format!("{} is outside of a preset: {example}", key.escape_debug())));
        };
        let mut choices = Vec::new();
        for (key, item) in table.iter() {
            let line = item.span().map_or(at, |span| line(text, span.start));
            let values = values(item).ok_or_else(|| {
                let forms = "must be a text, a number, true, false, or a list of these";
                (line, format!("{} {forms}", key.escape_debug()))
            })?;
            choices.push(Choice { key: key.into(), values, line });
        }
        sections.push(Section { name: key.into(), line: at, choices });
    }
    Ok(sections)
}

/// Returns a section with a model and options.
pub fn section(model: &str, choices: &[Choice]) -> Item {
    let mut table = Table::new();
    table.insert("model", toml_edit::value(model));
    for Choice { key, values, .. } in choices {
        let value = match &values[..] {
            [one] => scalar(one),
            several => Value::Array(several.iter().map(|text| scalar(text)).collect::<Array>()),
        };
        table.insert(key, Item::Value(value));
    }
    Item::Table(table)
}

/// Returns a value as a user would write it.
fn scalar(text: &str) -> Value {
    match (text, text.parse::<i64>()) {
        ("true", _) => true.into(),
        ("false", _) => false.into(),
        (_, Ok(number)) if number.to_string() == text => number.into(),
        _ => text.into(),
    }
}

/// Returns the line and the reason of a syntax error.
pub fn fault(text: &str, error: &TomlError) -> Fault {
    let at = error.span().map_or(1, |span| line(text, span.start));
    (at, error.message().replace('\n', " "))
}

/// Returns the values of an option; `None` for a table, a date, or a list of lists.
fn values(item: &Item) -> Option<Vec<String>> {
    match item.as_value()? {
        Value::Array(list) => list.iter().map(word).collect(),
        value => Some(vec![word(value)?]),
    }
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.value().clone()),
        Value::Integer(number) => Some(number.value().to_string()),
        Value::Float(number) => Some(number.value().to_string()),
        Value::Boolean(switch) => Some(switch.value().to_string()),
        _ => None,
    }
}

/// Returns the line of a byte, from 1.
fn line(text: &str, byte: usize) -> usize {
    let before = &text.as_bytes()[..byte.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}
