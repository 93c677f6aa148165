//! Tools that are not plain functions: namespaces of functions, free-form (custom) tools, and the
//! client's shell. The model sees each as a function; its calls take the client's form again.
//!
//! | declared | the model calls | the client gets |
//! |---|---|---|
//! | `namespace` `n` with `f` | `n__f` | a function call of `f` with `namespace: n` |
//! | `custom` `c` | `c` with `{"input": TEXT}` | a custom call with `input: TEXT` |
//! | `local_shell` | `local_shell` with `{"command": [...]}` | a shell call with this command |
//!
//! Tools that run on OpenAI's servers, such as `web_search`, are skipped with a line in the log: the model
//! cannot call them.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use tracing::warn;

use crate::server::{chat::function_tool, error::ApiError, fields::Fields};

/// The name of the client's shell.
pub const LOCAL_SHELL: &str = "local_shell";

/// The argument of a custom tool, in the form that the model sees.
const INPUT: &str = "input";

/// The kind of a tool, which determines the form of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A function with JSON arguments.
    Function,
    /// A tool that takes free text.
    Custom,
    /// The client's shell.
    LocalShell,
}

/// A tool as the client declared it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The kind.
    pub kind: Kind,
    /// The namespace of a function.
    pub namespace: Option<String>,
    /// The name, within the namespace.
    pub name: String,
}

/// The declared tools of a request, as functions of chat completions.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// The functions, in chat completions' form.
    pub functions: Vec<Value>,
    origins: HashMap<String, Origin>,
}

impl Declared {
    /// Adds a tool in the form of Responses. Tools that run elsewhere are skipped.
    ///
    /// # Errors
    /// If a field is missing or of the wrong type.
    pub fn add(&mut self, tool: &Fields) -> Result<(), ApiError> {
        self.add_within(tool, None)
    }

    /// Returns how the client declared the tool that the model calls `name`.
    pub fn origin(&self, name: &str) -> Origin {
        self.origins.get(name).cloned().unwrap_or_else(|| Origin {
            kind: Kind::Function,
            namespace: None,
            name: name.into(),
        })
    }

    fn add_within(&mut self, tool: &Fields, namespace: Option<&str>) -> Result<(), ApiError> {
        let Some(kind) = tool.text("type")? else {
            return Err(tool.error("type", "the type of the tool, such as function"));
        };
        match kind {
            "function" => {
                function_tool(tool)?;
                let mut function = json!(tool);
                if let Some(fields) = function.as_object_mut() {
                    fields.shift_remove("type");
                }
                self.push(Kind::Function, namespace, function);
            }
            "custom" => {
                let format = tool.within("format")?;
                let grammar = format.filter(|format| format.get("definition").is_some());
                self.push(Kind::Custom, namespace, function_of_custom(tool, grammar.as_ref())?);
            }
            LOCAL_SHELL => self.push(Kind::LocalShell, namespace, local_shell()),
            "namespace" if namespace.is_none() => {
                let name = tool.required_text("name")?;
                let tools = tool.objects("tools")?;
                for inner in tools.ok_or_else(|| tool.error("tools", "a list of tools"))? {
                    self.add_within(&inner, Some(name))?;
                }
            }
            kind => warn!(target: "tools", kind, "skipped: it does not run on the client"),
        }
        Ok(())
    }

    fn push(&mut self, kind: Kind, namespace: Option<&str>, mut function: Value) {
        let name = function["name"].as_str().unwrap_or_default().to_string();
        let called = flat(namespace, &name);
        function["name"] = called.as_str().into();
        self.functions.push(json!({ "type": "function", "function": function }));
        if kind != Kind::Function || namespace.is_some() {
            let namespace = namespace.map(Into::into);
            self.origins.insert(called, Origin { kind, namespace, name });
        }
    }
}

/// Returns the function of a custom tool of chat completions, which has its fields in `custom`.
///
/// # Errors
/// If a field is missing or of the wrong type.
pub fn custom_function(tool: &Fields) -> Result<Value, ApiError> {
    let custom = tool.within("custom")?.ok_or_else(|| tool.error("custom", "an object"))?;
    // Chat completions nest the grammar once more than Responses.
    let grammar = custom.within("format")?.map(|format| format.within("grammar"));
    function_of_custom(&custom, grammar.transpose()?.flatten().as_ref())
}

/// Returns the name that the model calls.
pub fn flat(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None => name.into(),
        // Namespaces of MCP servers end with the separator: `mcp__server__`.
        Some(namespace) if namespace.ends_with('_') || name.starts_with('_') => {
            format!("{namespace}{name}")
        }
        Some(namespace) => format!("{namespace}__{name}"),
    }
}

/// Returns the arguments of a call of a custom tool.
pub fn custom_arguments(input: &str) -> String {
    json!({ INPUT: input }).to_string()
}

/// Returns the text that a custom tool is called with. Arguments that are not of the expected form are
/// this text themselves.
pub fn custom_input(arguments: &str) -> String {
    let parsed = rope_cpu::json::parse::<Map<String, Value>>(arguments).unwrap_or_default();
    match parsed.get(INPUT) {
        Some(Value::String(input)) => input.clone(),
        _ => arguments.into(),
    }
}

/// Returns the action of a call of the client's shell.
pub fn shell_action(arguments: &str) -> Value {
    let mut action = rope_cpu::json::parse::<Map<String, Value>>(arguments).unwrap_or_default();
    action.insert("type".into(), "exec".into());
    action.entry("command").or_insert_with(|| json!([]));
    action.entry("env").or_insert_with(|| json!({}));
    action.into()
}

/// Returns a function with the fields of a custom tool. A regular expression constrains its text; other
/// grammars are described to the model.
fn function_of_custom(tool: &Fields, grammar: Option<&Fields>) -> Result<Value, ApiError> {
    let name = tool.required_text("name")?;
    let mut description = tool.text("description")?.unwrap_or_default().to_string();
    let mut input = json!({ "type": "string" });
    if let Some(grammar) = grammar {
        let definition = grammar.required_text("definition")?;
        match grammar.required_text("syntax")? {
            "regex" => input["pattern"] = format!("^(?:{definition})$").into(),
            "lark" => {
                description += "\n\nThe input must follow this Lark grammar:\n";
                description += definition;
            }
            _ => return Err(grammar.error("syntax", "lark or regex")),
        }
    }
    Ok(json!({
        "name": name,
        "description": description.trim_start(),
        "parameters": {
            "type": "object", "properties": { INPUT: input }, "required": [INPUT],
            "additionalProperties": false,
        },
    }))
}

fn local_shell() -> Value {
    json!({
        "name": LOCAL_SHELL,
        "description": "Runs a command on the user's machine and returns its output.",
        "parameters": {
            "type": "object",
            "properties": {
                "command": {
                    "type": "array", "items": { "type": "string" },
                    "description": "The program and its arguments",
                },
                "working_directory": { "type": "string" },
                "timeout_ms": { "type": "integer" },
            },
            "required": ["command"],
            "additionalProperties": false,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(tools: Value) -> Result<Declared, String> {
        let mut declared = Declared::default();
        for tool in tools.as_array().unwrap() {
            declared.add(&Fields::of_value("", tool).unwrap()).map_err(|e| e.message)?;
        }
        Ok(declared)
    }

    #[test]
    fn tools_become_functions_and_keep_their_origin() {
        let declared = declared(json!([
            { "type": "namespace", "name": "mcp__files__", "tools": [
                { "type": "function", "name": "read", "parameters": { "type": "object" } },
            ] },
            { "type": "namespace", "name": "agents", "tools": [{ "type": "function", "name": "spawn" }] },
            { "type": "custom", "name": "patch", "description": "Edits.",
              "format": { "type": "grammar", "syntax": "lark", "definition": "start: \"x\"" } },
            { "type": "custom", "name": "digits",
              "format": { "type": "grammar", "syntax": "regex", "definition": "a|b" } },
            { "type": "local_shell" },
            { "type": "web_search" },
        ]))
        .unwrap();
        let functions: Vec<_> = declared.functions.iter().map(|tool| &tool["function"]).collect();
        let names: Vec<_> = functions.iter().map(|f| f["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["mcp__files__read", "agents__spawn", "patch", "digits", "local_shell"]);
        assert_eq!(functions[0]["parameters"], json!({ "type": "object" }));
        assert!(functions[2]["description"].as_str().unwrap().ends_with("start: \"x\""));
        assert_eq!(functions[3]["parameters"]["properties"]["input"]["pattern"], "^(?:a|b)$");
        let origin = declared.origin("mcp__files__read");
        assert_eq!((origin.namespace.as_deref(), &origin.name[..]), (Some("mcp__files__"), "read"));
        assert_eq!(declared.origin("patch").kind, Kind::Custom);
        assert_eq!(declared.origin("local_shell").kind, Kind::LocalShell);
        assert_eq!(declared.origin("other").kind, Kind::Function);
    }

    #[test]
    fn fields_that_are_missing_are_named() {
        for (tool, expected) in [
            (json!({}), "\"type\""),
            (json!({ "type": "custom" }), "\"name\""),
            (json!({ "type": "namespace", "name": "n" }), "\"tools\""),
            (
                json!({ "type": "custom", "name": "c", "format": { "definition": "x", "syntax": "bnf" } }),
                "lark or regex",
            ),
        ] {
            let error = declared(json!([tool])).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn input_of_another_form_is_kept() {
        assert_eq!(custom_input(&custom_arguments("a \"b\"\n")), "a \"b\"\n");
        for arguments in ["{\"text\": 1}", "not JSON", "{\"input\": 1}"] {
            assert_eq!(custom_input(arguments), arguments);
        }
    }
}
