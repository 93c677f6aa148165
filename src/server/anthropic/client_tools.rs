//! Tools that Anthropic defines by type and that run on the client. The model sees them as
//! functions.
//!
//! The schemas are from Anthropic's documentation of the bash, text editor, memory and computer
//! tools.

use serde_json::{Value, json};

/// A tool that the client runs: its type without the date, its description and its schema.
type ClientTool = (&'static str, &'static str, fn() -> Value);

const TOOLS: [ClientTool; 4] = [
    ("bash_", "Runs a command in a persistent shell, and returns its output.", bash),
    ("text_editor_", "Shows, creates and edits text files.", text_editor),
    ("memory_", "Shows, creates and edits files of notes below /memories.", memory),
    ("computer_", "Controls mouse and keyboard of a computer.", computer),
];

/// Returns the description and schema of a tool type; `None` if it does not run on the client.
pub fn function(kind: &str) -> Option<(&'static str, Value)> {
    let found = TOOLS.iter().find(|(start, ..)| kind.starts_with(start));
    found.map(|(_, description, schema)| (*description, schema()))
}

fn bash() -> Value {
    json!({
        "type": "object",
        "properties": { "command": { "type": "string" }, "restart": { "type": "boolean" } },
    })
}

fn text_editor() -> Value {
    edits(
        &["view", "create", "str_replace", "insert"],
        json!({ "path": { "type": "string" } }),
        &["path"],
    )
}

fn memory() -> Value {
    let paths = ["path", "old_path", "new_path", "insert_text"];
    let paths = paths.map(|name| (name.to_string(), json!({ "type": "string" })));
    let commands = ["view", "create", "str_replace", "insert", "delete", "rename"];
    edits(&commands, Value::Object(paths.into_iter().collect()), &[])
}

/// Returns the schema of commands on files. `further` are additional properties.
fn edits(commands: &[&str], further: Value, required: &[&str]) -> Value {
    let required = [&["command"][..], required].concat();
    let mut schema = json!({
        "type": "object",
        "properties": {
            "command": { "type": "string", "enum": commands },
            "file_text": { "type": "string" },
            "old_str": { "type": "string" },
            "new_str": { "type": "string" },
            "insert_line": { "type": "integer" },
            "view_range": { "type": "array", "items": { "type": "integer" } },
        },
        "required": required,
    });
    if let (Some(properties), Value::Object(further)) =
        (schema["properties"].as_object_mut(), further)
    {
        properties.extend(further);
    }
    schema
}

fn computer() -> Value {
    let place = json!({ "type": "array", "items": { "type": "integer" } });
    json!({
        "type": "object",
        "properties": {
            "action": { "type": "string" },
            "coordinate": place,
            "start_coordinate": place,
            "text": { "type": "string" },
            "scroll_direction": { "type": "string", "enum": ["up", "down", "left", "right"] },
            "scroll_amount": { "type": "integer" },
            "duration": { "type": "number" },
        },
        "required": ["action"],
    })
}
