//! Finds the capabilities of a template by rendering small conversations.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::{
    dialect::Dialect,
    engine,
    format::{derived, generic::Generic, known},
    message::content,
    parser::{Event, Parser},
    tools::{Tool, ToolChoice, Tools},
};

const TOOL: &str = "probe_tool";
const TEXT: &str = "probe text";
const VALUE: &str = "probe value";
/// The identifier of a call. Templates of Mistral models require this length.
const ID: &str = "probe0001";

/// The capabilities of a template.
#[derive(Clone, Debug)]
pub(super) struct Capabilities {
    /// Whether the template uses system messages.
    pub system: bool,
    /// Whether it takes the arguments of calls as objects, not as text.
    pub objects: bool,
    /// Whether it writes tool calls.
    pub calls: bool,
    /// The format of calls.
    pub dialect: Arc<dyn Dialect>,
}

impl Capabilities {
    /// Finds the capabilities of a template. `render` renders messages and tools, with or without
    /// the start of an answer. With `parts`, the text of a message is a list of parts.
    /// `reasoning_end` is the text that ends reasoning.
    pub fn new(
        parts: bool,
        reasoning_end: Option<&str>,
        render: impl Fn(&Json, &Json, bool) -> Result<String, engine::Failure>,
    ) -> Self {
        let render = |messages: Json, tools: &Json, prompt| {
            render(&messages, tools, prompt).unwrap_or_default()
        };
        let text = content(TEXT, parts);
        let user = json!({"role": "user", "content": text});
        let system = json!({"role": "system", "content": text});
        let asked = json!({"role": "user", "content": ""});
        let system = render(json!([system, asked]), &Json::Null, false).contains(TEXT);
        let tool = Tool {
            name: TOOL.into(),
            description: TEXT.into(),
            parameters: Map::from_iter([
                ("type".into(), json!("object")),
                ("properties".into(), json!({"argument": {"type": "string"}})),
            ]),
        };
        let tools = json!([tool.to_json()]);
        let called = |arguments: Json| {
            let function = json!({"name": TOOL, "arguments": arguments});
            let call = json!({"id": ID, "type": "function", "function": function});
            let messages = json!([
                user,
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "content": text, "name": TOOL, "tool_call_id": ID},
            ]);
            render(messages, &tools, false)
        };
        let object = json!({"argument": VALUE});
        let by_object = called(object.clone());
        let by_text = called(json!(object.to_string()));
        // A template that expects text prints an object as Python does, with other quotation marks.
        // A template that writes Python cannot use text.
        let printed = by_object.contains(&format!("'{VALUE}'")) && by_text.contains(VALUE);
        let objects = by_object.contains(VALUE) && !printed;
        let call = if objects { by_object } else { by_text };
        let calls = call.contains(VALUE);
        let described = render(json!([user]), &tools, false);
        let two: Json = derived::tools().iter().map(Tool::to_json).collect();
        let derived = || {
            let render = |messages, prompt| render(messages, &two, prompt);
            derived::Derived::of(&render, objects, parts, reasoning_end)
        };
        let is_hinted = |dialect: &Arc<dyn Dialect>| {
            dialect.hints().iter().any(|hint| described.contains(hint))
        };
        let dialect = match described.contains(TOOL) {
            true => dialect(&call, tool)
                .or_else(|| Some(Arc::new(derived()?) as Arc<dyn Dialect>))
                .or_else(|| known().into_iter().find(is_hinted)),
            false => None,
        };
        Self { system, objects, calls, dialect: dialect.unwrap_or_else(|| Arc::new(Generic)) }
    }
}

/// Returns whether a template takes texts only as lists of parts. `render` renders messages.
pub(super) fn reads_parts_only(
    source: &str,
    render: impl Fn(&Json) -> Result<String, engine::Failure>,
) -> bool {
    let reads = |parts| {
        let messages = json!([{"role": "user", "content": content(TEXT, parts)}]);
        render(&messages).is_ok_and(|rendered| rendered.contains(TEXT))
    };
    // A template that handles parts names their type.
    ["'text'", "\"text\""].iter().any(|name| source.contains(name)) && !reads(false) && reads(true)
}

/// Returns the first known format that parses the tool call in a text. The call must start with the
/// format's first opener.
fn dialect(text: &str, tool: Tool) -> Option<Arc<dyn Dialect>> {
    let tools = Tools::new(vec![tool], ToolChoice::Auto, true).ok()?;
    let reads = |dialect: &Arc<dyn Dialect>| {
        let opener = dialect.openers().first().copied().unwrap_or_default();
        text.match_indices(opener).any(|(at, _)| {
            let mut parser = Parser::new(dialect.clone(), None, true, "", &tools);
            let events = parser.push(&text[at..]);
            let arguments = events.iter().filter_map(|event| match event {
                Event::Arguments(piece) => Some(piece.as_str()),
                _ => None,
            });
            let begins = matches!(events.first(), Some(Event::Call { .. }));
            begins
                && rope_cpu_json::parse(&arguments.collect::<String>())
                    .is_ok_and(|object: Json| object["argument"] == VALUE)
        })
    };
    known().into_iter().find(reads)
}
