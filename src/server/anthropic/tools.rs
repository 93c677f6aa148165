//! Tools of Anthropic's interface, and their choice.

use rope_cpu::chat::{Tool, ToolChoice};
use serde::Deserializer;
use serde_json::{Map, Value};
use tracing::warn;

use super::client_tools;
use crate::server::read::{Entry, Failure, Read};

/// A tool of a request.
#[derive(Clone, Debug)]
pub struct GivenTool {
    /// The tool as a function; `None` if it does not run on the client.
    pub tool: Option<Tool>,
    /// Whether it has a `cache_control`.
    pub is_marked: bool,
}

crate::object! {
    struct ToolFields {
        /// Counts the tokens written to the cache.
        cache_control: Option<Value>,
        /// The description, for the model.
        description: Option<String>,
        /// The JSON schema of the arguments.
        input_schema: Option<Map<String, Value>>,
        /// The name.
        name: Option<String>,
        /// `custom`, or a tool that Anthropic defines.
        kind ["type"]: Option<String>,
    }
}

impl Read for GivenTool {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = ToolFields::read(deserializer)?;
        let is_marked = fields.cache_control.is_some();
        let tool = fields.tool().map_err(Failure::into_error)?;
        Ok(GivenTool { tool, is_marked })
    }
}

impl ToolFields {
    fn tool(self) -> Result<Option<Tool>, Failure> {
        let name = self.name.ok_or_else(|| Failure::missing("name", "a string"))?;
        let (description, parameters) = match self.kind.as_deref().unwrap_or("custom") {
            "custom" => {
                (self.description.unwrap_or_default(), self.input_schema.unwrap_or_default())
            }
            kind => match client_tools::function(kind) {
                Some((description, Value::Object(schema))) => (description.to_string(), schema),
                _ => {
                    warn!(target: "tools", kind, "skipped: it does not run on the client");
                    return Ok(None);
                }
            },
        };
        Ok(Some(Tool { name, description, parameters }))
    }
}

/// The choice of tools.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Tools that the answer calls.
    pub choice: ToolChoice,
    /// Whether an answer has at most one call, if the request has it.
    pub is_single: Option<bool>,
}

crate::object! {
    struct ChoiceFields {
        /// Whether an answer has at most one call of a tool.
        disable_parallel_tool_use: Option<bool>,
        /// The name of the tool.
        name: Option<String>,
        /// `auto`, `any`, `none` or `tool`.
        kind ["type"]: Option<String>,
    }
}

impl Read for Choice {
    const ENTRIES: &'static [Entry] = ChoiceFields::ENTRIES;

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ChoiceFields { disable_parallel_tool_use, name, kind } =
            ChoiceFields::read(deserializer)?;
        let choice = match kind.as_deref() {
            Some("auto") => Ok(ToolChoice::Auto),
            Some("any") => Ok(ToolChoice::Required),
            Some("none") => Ok(ToolChoice::None),
            Some("tool") => {
                name.map(ToolChoice::Named).ok_or_else(|| Failure::missing("name", "a string"))
            }
            kind => Err(Failure::unless_one_of("type", "auto, any, none or tool", kind)),
        };
        let choice = choice.map_err(Failure::into_error)?;
        Ok(Choice { choice, is_single: disable_parallel_tool_use })
    }
}
