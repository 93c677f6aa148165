//! Arguments in tags, as a JSON object. A value is text or JSON, as its schema says.

use serde_json::{Map, Value as Json, json};

use crate::chat::{
    Tool,
    parser::{Arguments, Cursor, Progress, Read},
};

/// A parameter of a tool.
#[derive(Debug)]
pub struct Parameter {
    pub name: String,
    /// The schema of its values, on its own.
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
            // References begin at the root.
            for key in ["$defs", "definitions"] {
                alone.extend(schema.get(key).map(|value| (key.to_owned(), value.clone())));
            }
            let (name, required) = (name.clone(), required(name));
            Self { name, schema: alone, required, types: types(value, &root, &mut 0) }
        };
        properties.iter().map(parameter).collect()
    }

    /// Whether values are texts, and may look like JSON.
    fn is_text(&self) -> bool {
        self.types == ["string"]
    }

    /// Whether values are JSON.
    pub fn is_json(&self) -> bool {
        !self.types.iter().any(|name| name == "string")
    }

    /// A value as JSON: text, if it is not JSON of a permitted type.
    fn value(&self, text: &str) -> String {
        let of_type = |value: &Json| self.types.iter().any(|name| is_of_type(value, name));
        match crate::json::parse(text) {
            Ok(value) if of_type(&value) => text.into(),
            _ => json!(text).to_string(),
        }
    }
}

const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];

/// The largest number of schemas that the types of a parameter are looked for in: references may be
/// circles.
const VISITS_MAX: usize = 100;

/// The types of the values of a schema; all if it does not say. References are to `root`.
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

/// A reader of parameters.
#[derive(Debug)]
pub struct Parameters {
    all: Vec<Parameter>,
    state: State,
    /// The number of parameters so far.
    count: usize,
}

#[derive(Debug)]
enum State {
    /// Before a parameter, or the end.
    Between,
    /// Within a value that is text.
    Text,
    /// Before a value that may be JSON, of the parameter with this index; of no parameter that there is
    /// otherwise.
    Value(Option<usize>),
}

const END: &str = "</parameter>";
/// The line break before the end of a value is not part of it.
const END_OF_LINE: &str = "\n</parameter>";

impl Parameters {
    pub fn new(tool: &Tool) -> Self {
        Self { all: Parameter::of(tool), state: State::Between, count: 0 }
    }

    fn step(&mut self, cursor: &mut Cursor, object: &mut String) -> Read<bool> {
        match self.state {
            State::Between => {
                cursor.space();
                // The model sometimes omits the first of the two.
                if cursor.maybe("</function>")? || cursor.clone().maybe("</tool_call>")? {
                    *object += if self.count == 0 { "{}" } else { "}" };
                    return Ok(true);
                }
                cursor.eat("<parameter=")?;
                let name = cursor.until(">")?;
                cursor.maybe("\n")?;
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
                let value = cursor.until(END)?;
                let value = value.strip_suffix('\n').unwrap_or(value);
                *object += &match index {
                    Some(index) => self.all[index].value(value),
                    None => json!(value).to_string(),
                };
                self.state = State::Between;
            }
            State::Text => {
                let rest = cursor.rest();
                let may_end = |tail: &str| {
                    [END, END_OF_LINE]
                        .iter()
                        .any(|end| tail.starts_with(end) || end.starts_with(tail))
                };
                let end = rest.char_indices().find(|(at, _)| may_end(&rest[*at..]));
                let text = end.map_or(rest, |(at, _)| &rest[..at]);
                if text.is_empty() {
                    if !cursor.maybe(END_OF_LINE)? {
                        cursor.eat(END)?;
                    }
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

impl Arguments for Parameters {
    fn read(&mut self, text: &str, complete: bool, object: &mut String) -> Progress {
        Progress::of_steps(text, complete, |cursor| self.step(cursor, object))
    }
}
