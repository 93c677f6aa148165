//! Tools of chat completions, and their choice.

use rope_cpu::chat::{Tool, ToolChoice};
use serde::Deserializer;
use serde_json::{Map, Value};
use tracing::warn;

use crate::server::{
    grammars::STRICT,
    openai::tools::{Custom, custom_function},
    read::{Failure, Read},
};

/// A tool of a request.
#[derive(Clone, Debug)]
pub struct GivenTool {
    /// The tool as a function; `None` if it does not run on the client.
    pub tool: Option<Tool>,
    /// Whether it takes free text.
    pub is_custom: bool,
}

crate::object! {
    struct ToolFields {
        /// A tool that takes free text.
        custom: Option<Custom>,
        /// A function.
        function: Option<FunctionFields>,
        /// `function` or `custom`.
        kind ["type"]: Option<String>,
    }
}

impl Read for GivenTool {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ToolFields::read(deserializer)?.tool().map_err(Failure::into_error)
    }
}

impl ToolFields {
    fn tool(self) -> Result<GivenTool, Failure> {
        let tool = match self.kind.as_deref() {
            Some("function") => {
                let function =
                    self.function.ok_or_else(|| Failure::missing("function", "an object"));
                Some(function?.tool().map_err(|e| e.within("function"))?)
            }
            Some("custom") => {
                let custom = self.custom.ok_or_else(|| Failure::missing("custom", "an object"))?;
                // Responses do not nest the grammar.
                let grammar = custom.format.as_ref().and_then(|format| format.grammar.as_ref());
                let grammar = grammar.map(|grammar| (grammar, "format.grammar"));
                let function = custom_function(&custom, grammar);
                let tool = function.map_err(|e| e.within("custom"))?;
                return Ok(GivenTool { tool: Some(tool), is_custom: true });
            }
            Some(kind) => {
                warn!(target: "tools", kind, "skipped: it does not run on the client");
                None
            }
            None => return Err(Failure::missing("type", "function or custom")),
        };
        Ok(GivenTool { tool, is_custom: false })
    }
}

/// A function that the answer may call.
#[derive(Clone, Debug)]
pub struct Function(pub Tool);

crate::object! {
    /// The fields of a function.
    pub struct FunctionFields {
        /// The description, for the model.
        description: Option<String>,
        /// The name.
        name: Option<String>,
        /// The JSON schema of the arguments.
        parameters: Option<Map<String, Value>>,
    }
    others {
        "strict": STRICT,
    }
}

impl FunctionFields {
    /// Returns the function as a tool.
    ///
    /// # Errors
    /// If it has no name.
    pub fn tool(self) -> Result<Tool, Failure> {
        Ok(Tool {
            name: self.name.ok_or_else(|| Failure::missing("name", "a string"))?,
            description: self.description.unwrap_or_default(),
            parameters: self.parameters.unwrap_or_default(),
        })
    }
}

impl Read for Function {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        FunctionFields::read(deserializer)?.tool().map(Function).map_err(Failure::into_error)
    }
}

/// The choice of one of `functions`.
#[derive(Clone, Debug)]
pub struct FunctionCall(pub ToolChoice);

impl Read for FunctionCall {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::read(deserializer)?;
        let choice = match (value.as_str(), value["name"].as_str()) {
            (Some("auto"), _) => Some(ToolChoice::Auto),
            (Some("none"), _) => Some(ToolChoice::None),
            (_, Some(name)) => Some(ToolChoice::Named(name.into())),
            _ => None,
        };
        let expected = "\"auto\", \"none\" or an object with the \"name\" of a function";
        let other = || Failure::wrong("", expected, &value).into_error();
        choice.map(FunctionCall).ok_or_else(other)
    }
}

/// The choice of tools.
#[derive(Clone, Debug)]
pub struct Choice(pub ToolChoice);

impl Read for Choice {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::read(deserializer)?;
        let choice = match value.as_str() {
            Some("auto") => Some(ToolChoice::Auto),
            Some("none") => Some(ToolChoice::None),
            Some("required") => Some(ToolChoice::Required),
            _ => chosen(&value),
        };
        let expected = "auto, none, required, or an object that names a function, a custom tool or allowed tools";
        let other = || Failure::wrong("", expected, &value).into_error();
        choice.map(Choice).ok_or_else(other)
    }
}

/// Returns the choice of one tool, or of several: `{"type": "allowed_tools", ...}`.
fn chosen(choice: &Value) -> Option<ToolChoice> {
    let name = |tool: &Value| {
        let name = tool["function"]["name"].as_str().or_else(|| tool["custom"]["name"].as_str());
        name.map(str::to_string)
    };
    let Some(allowed) = choice.get("allowed_tools") else {
        return name(choice).map(ToolChoice::Named);
    };
    let names = allowed["tools"].as_array()?.iter().map(name).collect::<Option<_>>()?;
    let required = match allowed["mode"].as_str()? {
        "auto" => false,
        "required" => true,
        _ => return None,
    };
    Some(ToolChoice::Among { names, required })
}
