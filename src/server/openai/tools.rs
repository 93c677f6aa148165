//! Tools that are not plain functions: namespaces of functions, free-form (custom) tools, and the
//! client's shell. The model sees each as a function. Its calls are converted back to the client's
//! format.
//!
//! | declared | the model calls | the client gets |
//! |---|---|---|
//! | `namespace` `n` with `f` | `n__f` | a function call of `f` with `namespace: n` |
//! | `custom` `c` | `c` with `{"input": TEXT}` | a custom call with `input: TEXT` |
//! | `local_shell` | `local_shell` with `{"command": [...]}` | a shell call with this command |
//!
//! Tools that run on OpenAI's servers, such as `web_search`, are skipped and logged: the model
//! cannot call them.

use std::collections::HashMap;

use rope_cpu::chat::Tool;
use serde::Deserializer;
use serde_json::{Map, Value, json};
use tracing::warn;

use super::chat::tools::FunctionFields;
use crate::server::read::{Failure, Read};

/// The name of the client's shell.
pub const LOCAL_SHELL: &str = "local_shell";

/// The argument of a custom tool, as the model sees it.
const INPUT: &str = "input";

/// Maximum bytes of an incomplete escape in a JSON string: a pair of surrogates without its last
/// digit.
const ESCAPE_MAX: usize = r"\ud83d\ude0".len();

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
    /// Determines the form of its calls.
    pub kind: Kind,
    /// The namespace of a function.
    pub namespace: Option<String>,
    /// The name, within the namespace.
    pub name: String,
}

/// A tool in the form of Responses.
#[derive(Clone, Debug)]
pub enum Declaration {
    /// A plain function.
    Function(Tool),
    /// A tool that takes free text.
    Custom(Tool),
    /// The client's shell.
    LocalShell,
    /// Tools with a common prefix.
    Namespace(String, Vec<Declaration>),
    /// A tool that does not run on the client.
    Other,
}

crate::object! {
    struct DeclarationFields {
        /// The description, for the model.
        description: Option<String>,
        /// The form of a custom tool's text.
        format: Option<Format>,
        /// The name.
        name: Option<String>,
        /// The JSON schema of a function's arguments.
        parameters: Option<Map<String, Value>>,
        /// The tools of a namespace.
        tools: Option<Vec<Declaration>>,
        /// `function`, `custom`, `local_shell`, `namespace`; others do not run on the client.
        kind ["type"]: Option<String>,
    }
}

crate::object! {
    /// A custom tool, which takes free text.
    pub struct Custom {
        /// The description, for the model.
        description: Option<String>,
        /// The form of the text.
        format: Option<Format>,
        /// The name.
        name: Option<String>,
    }
}

crate::object! {
    /// The form of a custom tool's text. Chat completions nest the grammar, Responses do not.
    pub struct Format {
        /// The grammar, in chat completions.
        grammar: Option<Grammar>,
        ..flat: Grammar,
    }
}

crate::object! {
    /// A grammar of a custom tool's text.
    pub struct Grammar {
        /// The grammar.
        definition: Option<String>,
        /// `lark` or `regex`.
        syntax: Option<String>,
    }
}

impl Read for Declaration {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DeclarationFields::read(deserializer)?.declaration().map_err(Failure::into_error)
    }
}

impl DeclarationFields {
    fn declaration(self) -> Result<Declaration, Failure> {
        let DeclarationFields { description, format, name, parameters, tools, kind } = self;
        match kind.as_deref() {
            Some("function") => {
                FunctionFields { description, name, parameters }.tool().map(Declaration::Function)
            }
            Some("custom") => {
                let custom = Custom { description, format, name };
                let grammar = custom.format.as_ref().map(|format| &format.flat);
                let grammar = grammar.filter(|grammar| grammar.definition.is_some());
                let grammar = grammar.map(|grammar| (grammar, "format"));
                custom_function(&custom, grammar).map(Declaration::Custom)
            }
            Some(LOCAL_SHELL) => Ok(Declaration::LocalShell),
            Some("namespace") => {
                let name = name.ok_or_else(|| Failure::missing("name", "a string"))?;
                let tools = tools.ok_or_else(|| Failure::missing("tools", "a list of tools"))?;
                Ok(Declaration::Namespace(name, tools))
            }
            Some(kind) => {
                warn!(target: "tools", kind, "skipped: it does not run on the client");
                Ok(Declaration::Other)
            }
            None => Err(Failure::missing("type", "the type of the tool, such as function")),
        }
    }
}

/// The declared tools of a request, as functions that the model can call.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    /// The tools as functions that the model sees.
    pub functions: Vec<Tool>,
    origins: HashMap<String, Origin>,
}

impl Declared {
    /// Adds a tool. Tools that run elsewhere are skipped.
    pub fn add(&mut self, tool: Declaration) {
        self.add_within(tool, None);
    }

    /// Returns how the client declared the tool that the model calls `name`.
    pub fn origin(&self, name: &str) -> Origin {
        self.origins.get(name).cloned().unwrap_or_else(|| Origin {
            kind: Kind::Function,
            namespace: None,
            name: name.into(),
        })
    }

    fn add_within(&mut self, tool: Declaration, namespace: Option<&str>) {
        match tool {
            Declaration::Function(tool) => self.push(Kind::Function, namespace, tool),
            Declaration::Custom(tool) => self.push(Kind::Custom, namespace, tool),
            Declaration::LocalShell => self.push(Kind::LocalShell, namespace, local_shell()),
            Declaration::Namespace(name, tools) if namespace.is_none() => {
                tools.into_iter().for_each(|tool| self.add_within(tool, Some(&name)));
            }
            Declaration::Namespace(..) => {
                warn!(target: "tools", "skipped: a namespace in a namespace");
            }
            Declaration::Other => {}
        }
    }

    fn push(&mut self, kind: Kind, namespace: Option<&str>, tool: Tool) {
        let name = flat(namespace, &tool.name);
        if kind != Kind::Function || namespace.is_some() {
            let origin = Origin { kind, namespace: namespace.map(Into::into), name: tool.name };
            self.origins.insert(name.clone(), origin);
        }
        self.functions.push(Tool { name, ..tool });
    }
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

/// Returns the text of a call to a custom tool. If the call is truncated, returns the text so far.
/// If the arguments have another format, they are the text.
pub fn custom_input(arguments: &str, is_cut: bool) -> String {
    let parsed = rope_cpu::json::parse::<Map<String, Value>>(arguments).unwrap_or_default();
    match parsed.get(INPUT) {
        Some(Value::String(input)) => input.clone(),
        _ if is_cut => cut_input(arguments),
        _ => arguments.into(),
    }
}

/// Returns the text in truncated arguments.
fn cut_input(arguments: &str) -> String {
    let name = format!("\"{INPUT}\"");
    let mut before = ["{", &name, ":", "\""].into_iter();
    let text = before.try_fold(arguments, |rest, part| rest.trim_start().strip_prefix(part));
    let Some(text) = text else { return String::new() };
    // The last escape may be incomplete.
    (0..=ESCAPE_MAX)
        .filter_map(|cut| text.get(..text.len().checked_sub(cut)?))
        .find_map(|text| rope_cpu::json::parse(&format!("\"{text}\"")).ok())
        .unwrap_or_else(|| text.into())
}

/// Returns the action of a call of the client's shell.
pub fn shell_action(arguments: &str) -> Value {
    let mut action = rope_cpu::json::parse::<Map<String, Value>>(arguments).unwrap_or_default();
    action.insert("type".into(), "exec".into());
    action.entry("command").or_insert_with(|| json!([]));
    action.entry("env").or_insert_with(|| json!({}));
    action.into()
}

/// Returns a custom tool as a function. A regular expression constrains its text. Other grammars
/// are only described to the model.
///
/// # Errors
/// If a field is missing.
pub fn custom_function(
    tool: &Custom,
    grammar: Option<(&Grammar, &'static str)>,
) -> Result<Tool, Failure> {
    let name = tool.name.clone().ok_or_else(|| Failure::missing("name", "a string"))?;
    let mut description = tool.description.clone().unwrap_or_default();
    let mut input = json!({ "type": "string" });
    if let Some((Grammar { definition, syntax }, place)) = grammar {
        let missing = |name| Failure::missing(name, "a string").within(place);
        let definition = definition.as_deref().ok_or_else(|| missing("definition"))?;
        match syntax.as_deref() {
            Some("regex") => input["pattern"] = format!("^(?:{definition})$").into(),
            Some("lark") => {
                description += "\n\nThe input must follow this Lark grammar:\n";
                description += definition;
            }
            None => return Err(missing("syntax")),
            syntax => {
                let failure = Failure::unless_one_of("syntax", "lark or regex", syntax);
                return Err(failure.within(place));
            }
        }
    }
    let parameters = json!({
        "type": "object", "properties": { INPUT: input }, "required": [INPUT],
        "additionalProperties": false,
    });
    Ok(function(name, description.trim_start(), parameters))
}

fn local_shell() -> Tool {
    let parameters = json!({
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
    });
    let description = "Runs a command on the user's machine and returns its output.";
    function(LOCAL_SHELL.into(), description, parameters)
}

fn function(name: String, description: &str, parameters: Value) -> Tool {
    let parameters = match parameters {
        Value::Object(parameters) => parameters,
        _ => Map::new(),
    };
    Tool { name, description: description.into(), parameters }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{error::ApiError, read::of_value};

    fn declared(tools: Value) -> Result<Declared, String> {
        let mut declared = Declared::default();
        let tools = json!({ "tools": tools });
        let tools: DeclarationFields = of_value(tools).map_err(|e| ApiError::from(e).message)?;
        tools.tools.unwrap_or_default().into_iter().for_each(|tool| declared.add(tool));
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
        let functions = &declared.functions;
        let names: Vec<_> = functions.iter().map(|tool| &tool.name[..]).collect();
        assert_eq!(names, ["mcp__files__read", "agents__spawn", "patch", "digits", "local_shell"]);
        assert_eq!(json!(functions[0].parameters), json!({ "type": "object" }));
        assert!(functions[2].description.ends_with("start: \"x\""));
        assert_eq!(functions[3].parameters["properties"]["input"]["pattern"], "^(?:a|b)$");
        let origin = declared.origin("mcp__files__read");
        assert_eq!((origin.namespace.as_deref(), &origin.name[..]), (Some("mcp__files__"), "read"));
        assert_eq!(declared.origin("patch").kind, Kind::Custom);
        assert_eq!(declared.origin("local_shell").kind, Kind::LocalShell);
        assert_eq!(declared.origin("other").kind, Kind::Function);
    }

    #[test]
    fn fields_that_are_missing_are_named() {
        for (tool, expected) in [
            (json!({}), "\"tools[0].type\""),
            (json!({ "type": "custom" }), "\"tools[0].name\""),
            (json!({ "type": "namespace", "name": "n" }), "\"tools[0].tools\""),
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
        assert_eq!(custom_input(&custom_arguments("a \"b\"\n"), false), "a \"b\"\n");
        for arguments in ["{\"text\": 1}", "not JSON", "{\"input\": 1}"] {
            assert_eq!(custom_input(arguments, false), arguments);
        }
    }

    #[test]
    fn input_that_is_cut_is_decoded_so_far() {
        let arguments = r#"{ "input": "a\\\n\"é\ud83d\ude00b" }"#;
        let whole = "a\\\n\"é😀b";
        for end in (0..=arguments.len()).filter(|end| arguments.is_char_boundary(*end)) {
            let input = custom_input(&arguments[..end], true);
            assert!(whole.starts_with(&input), "{input:?} of {:?}", &arguments[..end]);
        }
        assert_eq!(custom_input(r#"{"input":"a\\\n\ud83d\ude0"#, true), "a\\\n");
        assert_eq!(custom_input(r#"{"input":"ab""#, true), "ab");
    }
}
