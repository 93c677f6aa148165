//! Arguments in tags, converted to a JSON object. The schema says whether a value is text or JSON.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::{pattern::Pattern, python};
use crate::{
    arguments::{Arguments, Progress},
    cursor::{Cursor, Read, Stop},
    grammar::{Lark, Row},
    tools::Tool,
};

/// The texts around arguments.
#[derive(Debug)]
pub struct Tags {
    /// The text before the name of an argument.
    pub name: Pattern,
    /// The text between the name and the value.
    pub value: Pattern,
    /// The text after the value.
    pub end: Pattern,
    /// Whether line breaks surround the value.
    pub lines: bool,
    /// The texts that may follow the last argument.
    pub ends: Vec<String>,
}

impl Tags {
    /// Adds the arguments of a tool to a grammar.
    pub fn write(&self, row: &mut Row, text: &str, tool: &Tool) {
        for parameter in Parameter::of(tool) {
            let mut argument = row.empty();
            self.name.write(&mut argument);
            argument.literal(&parameter.name);
            self.value.write(&mut argument);
            match parameter.is_json() {
                true => {
                    argument.schema(&parameter.schema);
                    argument.literal(if self.lines { "\n" } else { "" });
                    self.end.write(&mut argument);
                }
                false => {
                    argument.item(text);
                    self.end.rest().write(&mut argument);
                }
            }
            let sign = if parameter.required { "" } else { "?" };
            row.item(&format!("({}){sign}", argument.finish()));
        }
    }

    /// Adds a rule for a text value, up to the first word after it. Returns the rule's name.
    pub fn text(&self, lark: &mut Lark) -> String {
        let end = self.end.first().unwrap_or_default();
        let line = if self.lines { "\n" } else { "" };
        match lark.has(end) {
            true => lark.until(end),
            false => lark.until(&format!("{line}{end}")),
        }
    }
}

/// A parameter of a tool.
#[derive(Debug)]
pub struct Parameter {
    pub name: String,
    /// The self-contained schema of its values.
    pub schema: Map<String, Json>,
    pub required: bool,
    types: Vec<String>,
}

impl Parameter {
    /// The parameters of a tool.
    pub fn of(tool: &Tool) -> Vec<Self> {
        let schema = &tool.parameters;
        let Some(Json::Object(properties)) = schema.get("properties") else { return Vec::new() };
        let root = Json::Object(schema.clone());
        let required = schema.get("required").and_then(Json::as_array);
        let required =
            |name: &str| required.is_some_and(|all| all.iter().any(|other| other == name));
        let parameter = |(name, value): (&String, &Json)| {
            let mut alone = value.as_object().cloned().unwrap_or_default();
            // References start at the root.
            for key in ["$defs", "definitions"] {
                alone.extend(schema.get(key).map(|value| (key.to_owned(), value.clone())));
            }
            let (name, required) = (name.clone(), required(name));
            Self { name, schema: alone, required, types: types(value, &root, &mut 0) }
        };
        properties.iter().map(parameter).collect()
    }

    /// Returns whether values are text, even if they look like JSON.
    fn is_text(&self) -> bool {
        self.types == ["string"]
    }

    /// Returns whether values are JSON.
    pub fn is_json(&self) -> bool {
        !self.has_type("string")
    }

    /// Returns whether values may be of a type.
    pub fn has_type(&self, name: &str) -> bool {
        self.types.iter().any(|other| other == name)
    }

    /// Converts a value to JSON. It is text, unless it is JSON of an allowed type or a Python
    /// literal, which some templates write.
    fn value(&self, text: &str) -> String {
        let of_type = |value: &Json| self.types.iter().any(|name| is_of_type(value, name));
        if rope_cpu_json::parse(text).is_ok_and(|value| of_type(&value)) {
            return text.into();
        }
        match python::to_json(text) {
            Some(json) if rope_cpu_json::parse(&json).is_ok_and(|value| of_type(&value)) => json,
            _ => json!(text).to_string(),
        }
    }
}

const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];

/// Maximum schemas to search for the types of a parameter. References may be cyclic.
const VISITS_MAX: usize = 100;

/// Returns the types of a schema's values; all types if the schema does not say. References are
/// relative to `root`.
fn types(schema: &Json, root: &Json, visits: &mut usize) -> Vec<String> {
    let all = || TYPES.map(str::to_owned).into();
    *visits += 1;
    if *visits > VISITS_MAX {
        return all();
    }
    let list = |key| schema.get(key).and_then(Json::as_array);
    let target = schema.get("$ref").and_then(Json::as_str).and_then(|text| text.strip_prefix('#'));
    let target = target.and_then(|path| root.pointer(path));
    match (schema.get("type"), target, list("anyOf").or(list("oneOf")), list("enum")) {
        (Some(Json::String(name)), ..) => vec![name.clone()],
        (Some(Json::Array(names)), ..) => {
            names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
        }
        (_, Some(target), ..) => types(target, root, visits),
        (_, _, Some(several), _) => {
            several.iter().flat_map(|schema| types(schema, root, visits)).collect()
        }
        (.., Some(values)) if values.iter().all(Json::is_string) => vec!["string".into()],
        _ => all(),
    }
}

fn is_of_type(value: &Json, name: &str) -> bool {
    match value {
        Json::Null => name == "null",
        Json::Bool(_) => name == "boolean",
        Json::Number(number) => name == "number" || (name == "integer" && !number.is_f64()),
        Json::String(_) => name == "string",
        Json::Array(_) => name == "array",
        Json::Object(_) => name == "object",
    }
}

/// Parses arguments in tags.
#[derive(Debug)]
pub struct Tagged {
    tags: Arc<Tags>,
    all: Vec<Parameter>,
    state: State,
    /// The number of arguments so far.
    count: usize,
}

#[derive(Debug)]
enum State {
    /// Before an argument, or the end.
    Between,
    /// Within a value that is text.
    Text,
    /// Before a value that may be JSON. The number is the index of its parameter; `None` for an
    /// unknown one.
    Value(Option<usize>),
}

impl Tagged {
    pub fn new(tags: Arc<Tags>, tool: &Tool) -> Self {
        Self { tags, all: Parameter::of(tool), state: State::Between, count: 0 }
    }

    fn step(&mut self, cursor: &mut Cursor, object: &mut String) -> Read<bool> {
        let tags = &*self.tags;
        let end = tags.end.first().unwrap_or_default();
        match self.state {
            State::Between => {
                cursor.space();
                for end in &tags.ends {
                    if cursor.clone().maybe(end)? {
                        *object += if self.count == 0 { "{}" } else { "}" };
                        return Ok(true);
                    }
                }
                tags.name.read(cursor)?;
                let name = cursor.until(tags.value.first().unwrap_or_default())?.trim();
                tags.value.rest().read(cursor)?;
                if tags.lines {
                    cursor.maybe("\n")?;
                }
                let index = self.all.iter().position(|parameter| parameter.name == name);
                *object += if self.count == 0 { "{" } else { "," };
                *object += &format!("{}:", json!(name));
                self.count += 1;
                self.state = match index {
                    Some(index) if self.all[index].is_text() => {
                        *object += "\"";
                        State::Text
                    }
                    index => State::Value(index),
                };
            }
            State::Value(index) => {
                let value = cursor.until(end)?;
                tags.end.rest().read(cursor)?;
                let value = match tags.lines {
                    true => value.strip_suffix('\n').unwrap_or(value),
                    false => value,
                };
                *object += &match index {
                    Some(index) => self.all[index].value(value),
                    None => json!(value).to_string(),
                };
                self.state = State::Between;
            }
            State::Text => {
                let rest = cursor.rest();
                let line = format!("\n{end}");
                let ends = [end, if tags.lines { &line } else { end }];
                let may_end = |tail: &str| {
                    ends.iter().any(|end| tail.starts_with(end) || end.starts_with(tail))
                };
                let at = rest.char_indices().find(|(at, _)| may_end(&rest[*at..]));
                let text = at.map_or(rest, |(at, _)| &rest[..at]);
                if text.is_empty() {
                    if !cursor.maybe(ends[1])? {
                        cursor.eat(end)?;
                    }
                    tags.end.rest().read(cursor)?;
                    *object += "\"";
                    self.state = State::Between;
                } else {
                    cursor.eat(text)?;
                    let quoted = json!(text).to_string();
                    *object += &quoted[1..quoted.len() - 1];
                }
            }
        }
        Ok(false)
    }
}

impl Arguments for Tagged {
    fn read(&mut self, text: &str, complete: bool, object: &mut String) -> Progress {
        Progress::of_steps(text, complete, |cursor| {
            let between = matches!(self.state, State::Between);
            match self.step(cursor, object) {
                // Other text follows the last argument.
                Err(Stop::Other) if between && !complete => {
                    *object += if self.count == 0 { "{}" } else { "}" };
                    Ok(true)
                }
                read => read,
            }
        })
    }
}
