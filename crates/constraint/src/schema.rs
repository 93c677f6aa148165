//! JSON schemas: the supported keywords, and the white space of answers.

mod place;

use serde_json::{Value, json};

pub use place::of_error;

use super::error::{Error, Position};
use rope_cpu_json as json;

/// The white space between the parts of an answer. It allows any usual layout, but is bounded,
/// since models can get stuck in white space.
const WHITE_SPACE: &str = r"[ \t]{1,20}|\r?\n[ \t]{0,40}";

/// The keywords that constrain an answer.
const SUPPORTED: [&str; 27] = [
    "$ref",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "required",
    "type",
];

/// The keywords that do not change the allowed answers.
const ANNOTATIONS: [&str; 17] = [
    "$anchor",
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "default",
    "definitions",
    "deprecated",
    "description",
    "discriminator",
    "examples",
    "id",
    "readOnly",
    "title",
    "writeOnly",
];

/// The keywords with schemas for references.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// The keywords with named schemas.
const NAMED: [&str; 4] = ["$defs", "definitions", "properties", "patternProperties"];

/// The keywords with a schema, or a list of them.
const NESTED: [&str; 7] =
    ["allOf", "anyOf", "oneOf", "prefixItems", "items", "additionalItems", "additionalProperties"];

/// The values of `type`.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Parses a schema for llguidance.
///
/// # Errors
/// Returns an error if the text is not JSON or has an unsupported keyword: an answer that ignores
/// the keyword might be invalid.
pub fn parse(text: &str) -> Result<Value, Error> {
    let mut schema: Value = json::parse(text).map_err(|e| {
        let (line, column) = (e.line(), e.column());
        let message = e.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        Error::invalid(Some(Position::Character { line, column }), format!("not JSON: {message}"))
    })?;
    check(&mut schema, &mut String::new())?;
    match &mut schema {
        Value::Bool(true) => schema = object(),
        Value::Object(keywords) => {
            keywords.insert("x-guidance".into(), json!({ "whitespace_pattern": WHITE_SPACE }));
        }
        // llguidance reports any other value.
        _ => {}
    }
    Ok(schema)
}

/// Returns the schema of any object.
pub fn object() -> Value {
    json!({ "type": "object", "x-guidance": { "whitespace_pattern": WHITE_SPACE } })
}

/// Checks the keywords of a schema at `pointer`, and of all schemas in it.
fn check(schema: &mut Value, pointer: &mut String) -> Result<(), Error> {
    let Value::Object(keywords) = schema else { return Ok(()) };
    // True of every name. Zod writes it for all records.
    if keywords.get("propertyNames").is_some_and(|names| *names == json!({ "type": "string" })) {
        keywords.shift_remove("propertyNames");
    }
    for (keyword, value) in keywords {
        let len = pointer.len();
        *pointer += "/";
        *pointer += &escaped(keyword);
        match keyword.as_str() {
            named if NAMED.contains(&named) => {
                for (name, schema) in value.as_object_mut().into_iter().flatten() {
                    let len = pointer.len();
                    *pointer += "/";
                    *pointer += &escaped(name);
                    check(schema, pointer)?;
                    pointer.truncate(len);
                }
            }
            nested if NESTED.contains(&nested) => match value {
                Value::Array(schemas) => {
                    for (i, schema) in schemas.iter_mut().enumerate() {
                        let len = pointer.len();
                        *pointer += &format!("/{i}");
                        check(schema, pointer)?;
                        pointer.truncate(len);
                    }
                }
                schema => check(schema, pointer)?,
            },
            "type" => check_type(value, pointer)?,
            known if SUPPORTED.contains(&known) || ANNOTATIONS.contains(&known) => {}
            unknown => {
                let position = Some(Position::Pointer(pointer.clone()));
                let message = format!(
                    "the keyword `{unknown}` is not supported: choose from {}",
                    SUPPORTED.join(", ")
                );
                return Err(Error::invalid(position, message));
            }
        }
        pointer.truncate(len);
    }
    Ok(())
}

fn check_type(value: &Value, pointer: &str) -> Result<(), Error> {
    let types = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
    let known = |one: &&Value| one.as_str().is_some_and(|one| TYPES.contains(&one));
    match types.iter().find(|one| !known(one)) {
        None => Ok(()),
        Some(unknown) => {
            let message = format!("there is no type {unknown}: choose from {}", TYPES.join(", "));
            Err(Error::invalid(Some(Position::Pointer(pointer.into())), message))
        }
    }
}

/// Returns a name, escaped for a JSON Pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
