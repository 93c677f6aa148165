//! The capabilities of a template, found by rendering small conversations.

use serde_json::{Map, Value as Json, json};

use super::{
    Event, Parser, Tool, ToolChoice, Tools, engine,
    format::{Dialect, FORMATS, GENERIC},
    message::content,
};

const TOOL: &str = "probe_tool";
const TEXT: &str = "probe text";
const VALUE: &str = "probe value";
/// The identifier of a call: templates of Mistral models refuse one of another length.
const ID: &str = "probe0001";

/// The capabilities of a template.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capabilities {
    /// Whether it reads system messages.
    pub system: bool,
    /// Whether it reads arguments of calls as objects, and not as texts.
    pub objects: bool,
    /// The format of calls.
    pub dialect: &'static dyn Dialect,
}

impl Capabilities {
    /// Finds them for a template; `render` renders messages and tools. `parts` says whether texts are lists of
    /// parts.
    pub fn new(
        parts: bool,
        render: impl Fn(&Json, &Json) -> Result<String, engine::Failure>,
    ) -> Self {
        let render = |messages, tools| render(&messages, &tools).unwrap_or_default();
        let text = content(TEXT, parts);
        let user = json!({"role": "user", "content": text});
        let system = json!({"role": "system", "content": text});
        let asked = json!({"role": "user", "content": ""});
        let system = render(json!([system, asked]), Json::Null).contains(TEXT);
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
            render(messages, tools.clone())
        };
        let object = json!({"argument": VALUE});
        // An object that is printed as in Python, where a text is expected, has other quotation marks.
        let by_object = called(object.clone());
        let objects = by_object.contains(VALUE) && !by_object.contains(&format!("'{VALUE}'"));
        let call = if objects { by_object } else { called(json!(object.to_string())) };
        let described = render(json!([user]), tools.clone());
        let dialect = match described.contains(TOOL) {
            true => dialect(&call, tool),
            false => GENERIC,
        };
        Self { system, objects, dialect }
    }
}

/// Returns whether the template with this source reads texts only in lists of parts; `render` renders messages.
pub(super) fn reads_parts_only(
    source: &str,
    render: impl Fn(&Json) -> Result<String, engine::Failure>,
) -> bool {
    let reads = |parts| {
        let messages = json!([{"role": "user", "content": content(TEXT, parts)}]);
        render(&messages).is_ok_and(|rendered| rendered.contains(TEXT))
    };
    // Only a template that names the type of a part reads parts.
    ["'text'", "\"text\""].iter().any(|name| source.contains(name)) && !reads(false) && reads(true)
}

/// The first format that reads the call of a tool in a text, if it is written with the opener that the
/// format names first.
fn dialect(text: &str, tool: Tool) -> &'static dyn Dialect {
    let Ok(tools) = Tools::new(vec![tool], ToolChoice::Auto, true) else { return GENERIC };
    let reads = |dialect: &&'static dyn Dialect| {
        let opener = dialect.openers().first().copied().unwrap_or_default();
        text.match_indices(opener).any(|(at, _)| {
            let mut parser = Parser::new(*dialect, None, true, "", &tools);
            let events = parser.push(&text[at..]);
            let arguments = events.iter().filter_map(|event| match event {
                Event::Arguments(piece) => Some(piece.as_str()),
                _ => None,
            });
            let begins = matches!(events.first(), Some(Event::Call { .. }));
            begins
                && crate::json::parse(&arguments.collect::<String>())
                    .is_ok_and(|object: Json| object["argument"] == VALUE)
        })
    };
    FORMATS.iter().copied().find(reads).unwrap_or(GENERIC)
}
