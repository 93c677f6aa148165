//! Requests of Anthropic's interface.

use rope_cpu::chat::Role;
use serde::Deserializer;
use serde_json::{Map, Value};

use super::{
    blocks::{GivenMessage, Text},
    tools::{Choice, GivenTool},
};
use crate::server::{
    chat::{ChatFields, ChatRequest, Turn},
    error::ApiError,
    fields::COUNT_MAX,
    grammars::Given,
    parameters::Stop,
    read::{Entry, Failure, Read, Treatment, Whole},
    request_fields::{ABOUT_USER, NO_SUMMARY, TIER},
};

/// Default of the maximum tokens of an answer, as in llama-server.
const MAX_TOKENS: i64 = 4096;

crate::object! {
    /// A request of `/v1/messages`.
    pub struct Messages {
        /// Counts the tokens written to the cache in `usage`; here or in any block.
        cache_control: Option<Value>,
        /// The conversation.
        messages: Option<Vec<GivenMessage>>,
        /// The form of the answer.
        output_config: Option<OutputConfig>,
        /// Older name of `output_config.format`.
        output_format: Option<Format>,
        /// Strings that end the answer.
        stop_sequences: Option<Stop>,
        /// The system message: a text or a list of text blocks.
        system: Option<Text>,
        /// The reasoning before an answer.
        thinking: Option<Thinking>,
        /// The choice of tools.
        tool_choice: Option<Choice>,
        /// Tools that the answer may call.
        tools: Vec<GivenTool>,
        ..chat: ChatFields,
    }
    others {
        "container": Treatment::Refused("the server runs no code", &[]),
        "context_management": Treatment::Ignored("messages are used as they are sent"),
        "mcp_servers": Treatment::Refused(
            "connect to them from the client, and send \"tools\"", &[]
        ),
        "metadata": ABOUT_USER,
        "service_tier": TIER,
    }
}

crate::object! {
    /// The form of an answer.
    pub struct OutputConfig {
        /// The effort of reasoning, a parameter of the chat template.
        effort: Option<String>,
        /// The format.
        format: Option<Format>,
    }
}

crate::object! {
    struct FormatFields {
        /// A JSON schema of the answer.
        schema: Option<Map<String, Value>>,
        /// `json_schema`.
        kind ["type"]: Option<String>,
    }
}

/// The format of an answer.
#[derive(Clone, Debug)]
pub struct Format(Given);

impl Read for Format {
    const ENTRIES: &'static [Entry] = FormatFields::ENTRIES;

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let FormatFields { schema, kind } = FormatFields::read(deserializer)?;
        let format = match (kind.as_deref(), schema) {
            (Some("json_schema"), Some(schema)) => {
                Ok(Given::schema("output_config.format", &Value::Object(schema)))
            }
            (Some("json_schema"), None) => Err(Failure::missing("schema", "a JSON schema")),
            (kind, _) => Err(Failure::unless_one_of("type", "json_schema", kind)),
        };
        format.map(Format).map_err(Failure::into_error)
    }
}

impl Messages {
    /// Returns whether the request asks to cache its prompt, in a field of the request, or of a
    /// block in its messages, system message or tools.
    pub fn writes_cache(&self) -> bool {
        self.cache_control.is_some()
            || self.system.as_ref().is_some_and(|system| system.is_marked)
            || self.tools.iter().any(|tool| tool.is_marked)
            || self.messages.iter().flatten().any(|message| message.is_marked)
    }

    /// Returns the conversation to answer.
    ///
    /// # Errors
    /// If there is no list of messages.
    pub fn into_request(self) -> Result<ChatRequest, ApiError> {
        let mut fields = self.chat;
        let system = self.system.map(|system| Turn::new(Role::System, system.text));
        let messages = self.messages.ok_or_else(|| Failure::missing("messages", "a list"))?;
        let messages = messages.into_iter().flat_map(|message| message.turns);
        if let Some(Choice { is_single: Some(is_single), .. }) = self.tool_choice {
            fields.parallel_tool_calls = Some(!is_single);
        }
        match self.thinking {
            Some(Thinking::Limited(budget)) => {
                fields.reasoning_budget_tokens = Some(Whole(budget));
            }
            Some(Thinking::Off) => fields.set_template_argument("enable_thinking", false),
            Some(Thinking::Free) | None => {}
        }
        let OutputConfig { effort, format } = self.output_config.unwrap_or_default();
        fields.reasoning_effort = effort.or(fields.reasoning_effort);
        let older = |Format(given)| Given { place: "output_format".into(), ..given };
        let format = format.map(|Format(given)| given).or(self.output_format.map(older));
        if let Some(stop) = self.stop_sequences {
            fields.shared.stop = stop;
        }
        Ok(ChatRequest {
            turns: system.into_iter().chain(messages).collect(),
            tools: self.tools.into_iter().filter_map(|given| given.tool).collect(),
            choice: self.tool_choice.map(|choice| choice.choice).unwrap_or_default(),
            tokens_max: fields.shared.max_tokens.or(Some(Whole(MAX_TOKENS))),
            format,
            fields,
        })
    }
}

/// The reasoning before an answer.
#[derive(Clone, Copy, Debug)]
pub enum Thinking {
    /// At most this many tokens.
    Limited(i64),
    /// Up to the server's limit.
    Free,
    /// No reasoning, if the template can switch it off.
    Off,
}

crate::object! {
    struct ThinkingFields {
        /// Maximum tokens of reasoning.
        budget_tokens: Option<Whole<0, COUNT_MAX>>,
        /// `enabled`, `disabled` or `adaptive`.
        kind ["type"]: Option<String>,
    }
    others {
        "display": NO_SUMMARY,
    }
}

impl Read for Thinking {
    const ENTRIES: &'static [Entry] = ThinkingFields::ENTRIES;

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ThinkingFields { budget_tokens, kind } = ThinkingFields::read(deserializer)?;
        match (kind.as_deref(), budget_tokens) {
            (Some("enabled"), Some(Whole(budget))) => Ok(Thinking::Limited(budget)),
            (Some("enabled"), None) | (Some("adaptive"), _) => Ok(Thinking::Free),
            (Some("disabled"), _) => Ok(Thinking::Off),
            (kind, _) => {
                let expected = "enabled, disabled or adaptive";
                Err(Failure::unless_one_of("type", expected, kind).into_error())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rope_cpu::chat::{Message, ToolCall, ToolChoice};
    use serde_json::json;

    use super::*;
    use crate::server::read::of_value;

    fn read(request: Value) -> Result<ChatRequest, String> {
        let request = of_value::<Messages>(request).map_err(ApiError::from);
        request.and_then(Messages::into_request).map_err(|e| e.message)
    }

    #[test]
    fn documents_and_tools_of_the_client_are_read() {
        let source = |source: Value| json!({ "type": "document", "title": "T", "source": source });
        let request = read(json!({
            "messages": [
                { "role": "user", "content": [
                    source(json!({ "type": "text", "media_type": "text/plain", "data": "a" })),
                    source(json!({ "type": "content", "content": [{ "type": "text", "text": "b" }] })),
                ] },
                { "role": "assistant", "content": [
                    { "type": "redacted_thinking", "data": "x" },
                    { "type": "server_tool_use", "id": "1", "name": "web_search", "input": {} },
                    { "type": "web_search_tool_result", "tool_use_id": "1", "content": [] },
                    { "type": "text", "text": "c" },
                ] },
            ],
            "tools": [
                { "type": "bash_20250124", "name": "bash" },
                { "type": "text_editor_20250728", "name": "str_replace_based_edit_tool" },
                { "type": "web_search_20250305", "name": "web_search" },
            ],
            "output_config": {
                "effort": "low", "format": { "type": "json_schema", "schema": { "type": "object" } },
            },
        }))
        .unwrap();
        assert_eq!(request.turns[0].content.parts, ["T\n\na\n\n", "T\n\nb\n\n"]);
        assert_eq!(request.turns[1].content.parts, ["c"]);
        let names: Vec<_> = request.tools.iter().map(|tool| &tool.name[..]).collect();
        assert_eq!(names, ["bash", "str_replace_based_edit_tool"]);
        assert_eq!(request.tools[1].parameters["required"], json!(["command", "path"]));
        assert_eq!(request.format.unwrap().place, "output_config.format");
        assert_eq!(request.fields.reasoning_effort.as_deref(), Some("low"));
    }

    #[test]
    fn the_older_name_of_the_format_is_read() {
        let format = json!({ "type": "json_schema", "schema": { "type": "object" } });
        let request = read(json!({ "messages": [], "output_format": format })).unwrap();
        assert_eq!(request.format.unwrap().place, "output_format");
    }

    #[test]
    fn blocks_become_messages_of_their_roles() {
        let request = read(json!({
            "max_tokens": 9,
            "system": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }],
            "messages": [
                { "role": "user", "content": "q" },
                { "role": "assistant", "content": [
                    { "type": "thinking", "thinking": "t", "signature": "" },
                    { "type": "text", "text": "x" },
                    { "type": "tool_use", "id": "1", "name": "f", "input": { "n": 1 } },
                ] },
                { "role": "user", "content": [
                    { "type": "text", "text": "y" },
                    { "type": "tool_result", "tool_use_id": "1", "content": [
                        { "type": "text", "text": "r" },
                    ] },
                ] },
            ],
        }))
        .unwrap();
        let texts: Vec<_> = request
            .turns
            .iter()
            .map(|turn| (turn.message.role.name(), turn.content.parts.join("|")))
            .collect();
        let expected =
            [("system", "ab"), ("user", "q"), ("assistant", "x"), ("tool", "r"), ("user", "y")];
        assert_eq!(texts, expected.map(|(role, text)| (role, text.to_string())));
        let Message { reasoning, tool_calls, .. } = &request.turns[2].message;
        assert_eq!(reasoning, "t");
        let call = ToolCall { id: "1".into(), name: "f".into(), arguments: "{\"n\":1}".into() };
        assert_eq!(tool_calls, &[call]);
        assert_eq!(request.turns[3].message.tool_call_id, "1");
        assert_eq!(request.tokens_max, Some(Whole(9)));
    }

    #[test]
    fn several_calls_are_as_the_choice_has_it() {
        let parallel = |choice: Value| {
            let request = read(json!({ "messages": [], "tool_choice": choice })).unwrap();
            request.fields.parallel_tool_calls
        };
        assert_eq!(parallel(json!({ "type": "auto" })), None);
        for refused in [false, true] {
            let choice = json!({ "type": "auto", "disable_parallel_tool_use": refused });
            assert_eq!(parallel(choice), Some(!refused));
        }
    }

    #[test]
    fn parameters_have_names_of_their_own() {
        let request = read(json!({
            "messages": [],
            "stop_sequences": ["x"],
            "tools": [{ "name": "f", "input_schema": { "type": "object" } }],
            "tool_choice": { "type": "tool", "name": "f", "disable_parallel_tool_use": true },
            "thinking": { "type": "disabled" },
            "chat_template_kwargs": { "a": 1 },
        }))
        .unwrap();
        assert_eq!(request.fields.shared.stop.0, ["x"]);
        assert_eq!(request.tools[0].parameters["type"], "object");
        assert_eq!(request.choice, ToolChoice::Named("f".into()));
        assert_eq!(request.fields.parallel_tool_calls, Some(false));
        let arguments = Value::Object(request.fields.chat_template_kwargs.unwrap());
        assert_eq!(arguments, json!({ "a": 1, "enable_thinking": false }));
        assert_eq!(request.tokens_max, Some(Whole(4096)));
    }

    #[test]
    fn a_cache_control_may_be_in_any_block() {
        let mark = json!({ "type": "ephemeral" });
        let text = |more: Value| {
            let mut block = json!({ "type": "text", "text": "a" });
            block.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            block
        };
        let message =
            |block: Value| json!({ "messages": [{ "role": "user", "content": [block] }] });
        let marked = json!({ "cache_control": mark });
        for (request, expected) in [
            (message(text(json!({}))), false),
            (json!({ "system": "cache_control", "cache_control": null }), false),
            (json!({ "cache_control": mark }), true),
            (message(text(marked.clone())), true),
            (json!({ "system": [text(marked)] }), true),
            (json!({ "tools": [{ "name": "f", "cache_control": mark }] }), true),
        ] {
            let found = of_value::<Messages>(request.clone()).unwrap().writes_cache();
            assert_eq!(found, expected, "{request}");
        }
    }

    #[test]
    fn other_forms_are_errors_that_name_the_permitted_ones() {
        let of_content =
            |content: Value| json!({ "messages": [{ "role": "user", "content": content }] });
        for (request, expected) in [
            (json!({}), "\"messages\": must be given: a list"),
            (json!({ "messages": [1] }), "\"messages[0]\": must be an object, not 1"),
            (of_content(json!(1)), "a string or a list of blocks"),
            (of_content(json!([{ "type": "video" }])), "tool_result, not \"video\""),
            (of_content(json!([{ "type": "image" }])), "image input is not supported"),
            (
                of_content(
                    json!([{ "type": "tool_result", "tool_use_id": "1", "content": [{ "type": "image" }] }]),
                ),
                "image input is not supported",
            ),
            (
                of_content(json!([{ "type": "tool_result", "tool_use_id": "1", "content": [{}] }])),
                "\"messages[0].content[0].content[0].type\": must be given",
            ),
            (json!({ "messages": [], "system": 1 }), "\"system\": must be"),
            (json!({ "messages": [], "tools": [{ "type": "web_search" }] }), "\"tools[0].name\""),
            (json!({ "messages": [], "tool_choice": { "type": "all" } }), "not \"all\""),
            (json!({ "mcp_servers": [{}, { "url": "u" }] }), "\"mcp_servers\": not supported"),
        ] {
            let error = read(request).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
