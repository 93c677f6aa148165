//! The tools that a model may call.

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::error::Error;

/// A function that a model may call.
///
/// The serialized form is the one that templates and OpenAI's API share.
///
/// ```
/// use rope_cpu_chat::Tool;
///
/// let tool: Tool = serde_json::from_str(
///     r#"{"type": "function", "function": {"name": "now", "description": "Returns the time."}}"#,
/// )?;
/// assert_eq!(tool.name, "now");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Given")]
pub struct Tool {
    /// The name.
    pub name: String,
    /// The description, for the model.
    pub description: String,
    /// The JSON schema of its arguments, an object.
    pub parameters: Map<String, Json>,
}

/// The tools that an answer may or must call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No tools: calls are parsed as text.
    None,
    /// The answer must call at least one.
    Required,
    /// The answer must call the tool with this name.
    Named(String),
    /// Only these tools, although the prompt describes all tools.
    Among {
        /// The names.
        names: Vec<String>,
        /// Whether the answer must call one of them.
        required: bool,
    },
}

/// The tools of a request, and the choice among them.
///
/// ```
/// use rope_cpu_chat::{Tool, ToolChoice, Tools};
///
/// let now = Tool { name: "now".into(), description: String::new(), parameters: Default::default() };
/// assert!(Tools::new(vec![now.clone()], ToolChoice::Required, false).is_ok());
/// assert!(Tools::new(vec![now], ToolChoice::Named("then".into()), false).is_err());
/// assert!(Tools::new(vec![], ToolChoice::Required, false).is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tools {
    all: Vec<Tool>,
    choice: ToolChoice,
    parallel: bool,
}

/// Maximum characters of a tool's name. OpenAI's limit is 64, but MCP servers have longer names.
const NAME_MAX: usize = 128;

impl Tools {
    /// Checks tools and the choice. `parallel` allows more than one call in an answer.
    ///
    /// # Errors
    /// If a name is invalid or duplicate, or the choice names an unknown tool.
    pub fn new(all: Vec<Tool>, choice: ToolChoice, parallel: bool) -> Result<Self, Error> {
        for (index, Tool { name, .. }) in all.iter().enumerate() {
            let valid = |c: char| c.is_ascii_alphanumeric() || "_-.:/".contains(c);
            if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(valid) {
                return Err(Error::ToolName { name: name.clone() });
            }
            if all[..index].iter().any(|other| other.name == *name) {
                return Err(Error::ToolTwice { name: name.clone() });
            }
        }
        let names = || all.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>().join(", ");
        match &choice {
            ToolChoice::Required | ToolChoice::Named(_) if all.is_empty() => {
                return Err(Error::ToolsMissing);
            }
            ToolChoice::Among { names, required: true } if names.is_empty() => {
                return Err(Error::ToolsMissing);
            }
            _ => {}
        }
        let exists = |name: &&String| all.iter().any(|tool| tool.name == **name);
        let chosen = match &choice {
            ToolChoice::Named(name) => std::slice::from_ref(name),
            ToolChoice::Among { names, .. } => names,
            _ => &[],
        };
        if let Some(name) = chosen.iter().find(|name| !exists(name)) {
            return Err(Error::ToolUnknown { name: name.clone(), known: names() });
        }
        Ok(Self { all, choice, parallel })
    }

    /// Returns all tools, as the prompt describes them.
    pub fn all(&self) -> &[Tool] {
        &self.all
    }

    /// Returns the tools that the answer may call.
    pub(super) fn callable(&self) -> impl Iterator<Item = &Tool> {
        self.all.iter().filter(|tool| match &self.choice {
            ToolChoice::Auto | ToolChoice::Required => true,
            ToolChoice::None => false,
            ToolChoice::Named(name) => tool.name == *name,
            ToolChoice::Among { names, .. } => names.contains(&tool.name),
        })
    }

    /// Returns whether the answer must call a tool.
    pub(super) fn required(&self) -> bool {
        matches!(
            self.choice,
            ToolChoice::Required | ToolChoice::Named(_) | ToolChoice::Among { required: true, .. }
        )
    }

    /// Returns whether the answer may have several calls.
    pub(super) fn parallel(&self) -> bool {
        self.parallel
    }
}

impl Tool {
    /// Returns the tool for templates.
    pub(super) fn to_json(&self) -> Json {
        let Self { name, description, parameters } = self;
        let function = json!({"name": name, "description": description, "parameters": parameters});
        json!({"type": "function", "function": function})
    }
}

/// A tool in its serialized form.
#[derive(Deserialize)]
struct Given {
    #[serde(rename = "type")]
    kind: String,
    function: Option<GivenFunction>,
}

#[derive(Deserialize)]
struct GivenFunction {
    name: String,
    description: Option<String>,
    parameters: Option<Map<String, Json>>,
}

impl TryFrom<Given> for Tool {
    type Error = String;

    fn try_from(given: Given) -> Result<Self, String> {
        let Given { kind, function } = given;
        match function {
            Some(function) if kind == "function" => Ok(Self {
                name: function.name,
                description: function.description.unwrap_or_default(),
                parameters: function.parameters.unwrap_or_default(),
            }),
            _ if kind == "function" => Err("a tool of type function has no function".into()),
            _ => Err(format!("a tool has type {kind:?}: function is possible")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> Tool {
        Tool { name: name.into(), description: String::new(), parameters: Map::new() }
    }

    #[test]
    fn names_and_choices_are_checked() {
        let new = |names: &[&str], choice| {
            Tools::new(names.iter().map(|name| tool(name)).collect(), choice, true)
                .map_err(|error| error.to_string())
        };
        assert!(new(&["a", "mcp__b.c-d"], ToolChoice::Named("a".into())).is_ok());
        let long = "a".repeat(NAME_MAX + 1);
        for name in ["", "a b", "a>", "é", &long] {
            assert!(new(&[name], ToolChoice::Auto).unwrap_err().contains("letters"), "{name}");
        }
        assert!(new(&["a", "a"], ToolChoice::Auto).unwrap_err().contains("duplicate"));
        for choice in [ToolChoice::Required, ToolChoice::Named("a".into())] {
            assert!(new(&[], choice).unwrap_err().contains("there are none"));
        }
        let among = |names: &[&str], required| ToolChoice::Among {
            names: names.iter().map(|name| name.to_string()).collect(),
            required,
        };
        for choice in [ToolChoice::Named("c".into()), among(&["a", "c"], false)] {
            let error = new(&["a", "b"], choice).unwrap_err();
            assert!(error.contains("\"c\"") && error.contains("a, b"), "{error}");
        }
        assert!(new(&["a"], among(&[], true)).is_err());
        let tools = new(&["a", "b"], among(&["b"], true)).unwrap();
        let callable: Vec<_> = tools.callable().map(|tool| tool.name.as_str()).collect();
        assert_eq!((callable, tools.required(), tools.all().len()), (vec!["b"], true, 2));
    }

    #[test]
    fn a_tool_is_a_function() {
        let parse = |text| rope_cpu_json::parse::<Tool>(text).map_err(|error| error.to_string());
        let given = r#"{"type": "function", "function": {"name": "f"}}"#;
        assert_eq!(parse(given).unwrap(), tool("f"));
        let error = parse(r#"{"type": "web_search"}"#).unwrap_err();
        assert!(error.contains("web_search") && error.contains("function is possible"), "{error}");
        assert!(parse(r#"{"type": "function"}"#).is_err());
    }
}
