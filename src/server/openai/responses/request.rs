//! Requests of OpenAI's responses.

use rope_cpu::chat::{Role, ToolChoice};
use serde::Deserializer;
use serde_json::Value;

use super::items::{Input, add};
use crate::server::{
    chat::{ChatFields, ChatRequest, Turn},
    error::ApiError,
    grammars::{Given, SCHEMA_NAME, STRICT},
    openai::tools::{Declaration, Declared, LOCAL_SHELL, flat},
    parameters::Limit,
    read::{Entry, Failure, Read, Treatment},
    request_fields::{
        ABOUT_USER, CACHE, LENGTH, NO_OBFUSCATION, NO_SUMMARY, NOT_STORED, STORED, TIER,
    },
    timings::Streamed,
};

crate::object! {
    /// A request of `/v1/responses`.
    pub struct Responses {
        /// The conversation: a text, or a list of items.
        input: Option<Input>,
        /// The system message.
        instructions: Option<String>,
        /// Maximum tokens of the answer, or -1 for no limit.
        max_output_tokens: Option<Limit>,
        /// The reasoning before an answer.
        reasoning: Option<ReasoningFields>,
        /// The form of the answer.
        text: Option<TextFields>,
        /// `auto`, `none`, `required`, or an object that names a tool or `allowed_tools`.
        tool_choice: Option<Choice>,
        /// Tools that the answer may call.
        tools: Vec<Declaration>,
        ..streamed: Streamed,
        ..chat: ChatFields,
    }
    others {
        "background": Treatment::Refused("answers are not stored", &[]),
        "conversation": NOT_STORED,
        "include": Treatment::Refused(
            "use /v1/chat/completions for probabilities", &["reasoning.encrypted_content"]
        ),
        "max_tool_calls": Treatment::Ignored("it counts tools of OpenAI's servers"),
        "metadata": ABOUT_USER,
        "previous_response_id": NOT_STORED,
        "prompt": Treatment::Refused(
            "prompt templates are not stored: send the text as \"input\"", &[]
        ),
        "prompt_cache_key": CACHE,
        "prompt_cache_retention": CACHE,
        "safety_identifier": ABOUT_USER,
        "service_tier": TIER,
        "store": STORED,
        "stream_options": NO_OBFUSCATION,
        "top_logprobs": Treatment::Refused("use /v1/chat/completions", &[]),
        "truncation": Treatment::Refused("a prompt that does not fit is an error", &["disabled"]),
        "user": ABOUT_USER,
    }
}

crate::object! {
    /// The reasoning before an answer.
    pub struct ReasoningFields {
        /// The effort, a parameter of the chat template; `none` switches reasoning off.
        effort: Option<String>,
    }
    others {
        "generate_summary": NO_SUMMARY,
        "summary": NO_SUMMARY,
    }
}

crate::object! {
    /// The form of an answer.
    pub struct TextFields {
        /// The format.
        format: Option<Format>,
    }
    others {
        "verbosity": LENGTH,
    }
}

crate::object! {
    struct FormatFields {
        /// A JSON schema of the answer.
        schema: Option<Value>,
        /// `text`, `json_object` or `json_schema`.
        kind ["type"]: Option<String>,
    }
    others {
        "description": SCHEMA_NAME,
        "name": SCHEMA_NAME,
        "strict": STRICT,
    }
}

/// The format of an answer.
#[derive(Clone, Debug)]
pub struct Format(Option<Given>);

impl Read for Format {
    const ENTRIES: &'static [Entry] = FormatFields::ENTRIES;

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let FormatFields { schema, kind } = FormatFields::read(deserializer)?;
        let place = "text.format";
        let format = match (kind.as_deref(), schema) {
            (Some("text"), _) => Ok(None),
            (Some("json_object"), None) => Ok(Some(Given::json_object(place))),
            (Some("json_object" | "json_schema"), Some(schema)) => {
                Ok(Some(Given::schema(place, &schema)))
            }
            (Some("json_schema"), None) => Err(Failure::missing("schema", "a JSON schema")),
            (kind, _) => {
                Err(Failure::unless_one_of("type", "text, json_object or json_schema", kind))
            }
        };
        format.map(Format).map_err(Failure::into_error)
    }
}

impl Responses {
    /// Returns the conversation to answer, and its tools as the client declared them.
    ///
    /// # Errors
    /// If there is no input.
    pub fn into_request(self) -> Result<(ChatRequest, Declared), ApiError> {
        let (mut turns, mut declared) = (Vec::new(), Declared::default());
        self.tools.into_iter().for_each(|tool| declared.add(tool));
        if let Some(instructions) = self.instructions {
            turns.push(Turn::new(Role::System, instructions));
        }
        let expected = "a string or a list of at least one item";
        match self.input {
            None => return Err(Failure::missing("input", expected).into()),
            Some(Input::Text(text)) => turns.push(Turn::new(Role::User, text)),
            Some(Input::Items(items)) => {
                for item in items {
                    add(&mut turns, &mut declared, item);
                }
                // A client's probe may have only instructions.
                if turns.is_empty() {
                    let expected = "a list of at least one item that the model can use";
                    return Err(Failure::of("input", format_args!("must be {expected}")).into());
                }
            }
        }
        let mut fields = self.chat;
        let reasoning = self.reasoning.and_then(|reasoning| reasoning.effort);
        fields.reasoning_effort = reasoning.or(fields.reasoning_effort);
        let shared = &fields.shared;
        let format = self.text.and_then(|text| text.format).and_then(|Format(given)| given);
        Ok((
            ChatRequest {
                turns,
                tools: declared.functions.clone(),
                choice: self.tool_choice.map(|Choice(choice)| choice).unwrap_or_default(),
                tokens_max: self.max_output_tokens.or(shared.max_tokens).or(shared.n_predict),
                format,
                fields,
            },
            declared,
        ))
    }
}

/// The choice of tools.
#[derive(Clone, Debug)]
pub struct Choice(ToolChoice);

impl Read for Choice {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::read(deserializer)?;
        let choice = match value.as_str() {
            Some("auto") => Ok(ToolChoice::Auto),
            Some("none") => Ok(ToolChoice::None),
            Some("required") => Ok(ToolChoice::Required),
            _ if value["type"] == "allowed_tools" => allowed(&value),
            _ => chosen(&value).map(ToolChoice::Named),
        };
        choice.map(Choice).map_err(Failure::into_error)
    }
}

fn allowed(choice: &Value) -> Result<ToolChoice, Failure> {
    let tools = choice["tools"].as_array();
    let tools = tools.ok_or_else(|| Failure::missing("tools", "a list of tools"))?;
    let required = match choice["mode"].as_str().unwrap_or("auto") {
        "auto" => false,
        "required" => true,
        other => return Err(Failure::unless_one_of("mode", "auto or required", Some(other))),
    };
    // A tool that does not run on the client cannot be called, allowed or not.
    let names = tools.iter().filter_map(|tool| chosen(tool).ok()).collect();
    Ok(ToolChoice::Among { names, required })
}

/// Returns the name of a chosen tool.
fn chosen(choice: &Value) -> Result<String, Failure> {
    match choice["type"].as_str() {
        Some("function" | "custom") => {
            let name = choice["name"].as_str();
            let name = name.ok_or_else(|| Failure::missing("name", "a string"))?;
            Ok(flat(choice["namespace"].as_str(), name))
        }
        Some(LOCAL_SHELL) => Ok(LOCAL_SHELL.into()),
        kind => {
            let expected = "auto, none, required, or an object of type function, custom, local_shell or \
                            allowed_tools: other tools do not run on the client";
            match kind {
                Some(_) => Err(Failure::unless_one_of("type", expected, kind)),
                None => Err(Failure::wrong("", expected, choice)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::read::of_value;

    fn read(request: Value) -> Result<ChatRequest, String> {
        let request = of_value::<Responses>(request).map_err(ApiError::from);
        let request = request.and_then(Responses::into_request);
        request.map(|(request, _)| request).map_err(|e| e.message)
    }

    #[test]
    fn items_of_one_turn_become_one_message() {
        let call = |id: &str| json!({ "type": "function_call", "call_id": id, "name": "f", "arguments": "{}" });
        let request = json!({
            "instructions": "s",
            "input": [
                { "role": "user", "content": "q" },
                { "type": "reasoning", "summary": [], "content": [{ "text": "t" }] },
                { "type": "message", "role": "assistant", "content": "x" },
                call("1"),
                call("2"),
                { "type": "function_call_output", "call_id": "1", "output": "r" },
                { "role": "assistant", "content": "y" },
                { "role": "assistant", "content": "z" },
            ],
        });
        let turns = read(request).unwrap().turns;
        let texts: Vec<_> = turns
            .iter()
            .map(|turn| (turn.message.role.name(), turn.content.parts.join("|")))
            .collect();
        let expected = [
            ("system", "s"),
            ("user", "q"),
            ("assistant", "x"),
            ("tool", "r"),
            ("assistant", "y"),
            ("assistant", "z"),
        ];
        assert_eq!(texts, expected.map(|(role, text)| (role, text.to_string())));
        assert_eq!(turns[2].message.reasoning, "t");
        let calls: Vec<_> = turns[2].message.tool_calls.iter().map(|call| &call.id[..]).collect();
        assert_eq!(calls, ["1", "2"]);
        assert_eq!(turns[3].message.tool_call_id, "1");
    }

    #[test]
    fn calls_of_every_kind_of_tool_are_calls_of_functions() {
        let request = read(json!({
            "input": [
                { "type": "function_call", "call_id": "1", "namespace": "n", "name": "f", "arguments": "{}" },
                { "type": "custom_tool_call", "call_id": "2", "name": "patch", "input": "a\nb" },
                { "type": "local_shell_call", "id": "3", "action": { "type": "exec", "command": ["ls"], "env": {} } },
                { "type": "web_search_call", "id": "4", "status": "completed" },
                { "type": "item_reference", "id": "5" },
                { "type": "ghost_snapshot", "ghost_commit": { "id": "6" } },
                { "type": "custom_tool_call_output", "call_id": "2", "output": "done" },
                { "type": "local_shell_call_output", "id": "3", "output": "src" },
            ],
            "tools": [{ "type": "custom", "name": "patch" }, { "type": "web_search" }],
            "tool_choice": {
                "type": "allowed_tools", "mode": "required",
                "tools": [{ "type": "custom", "name": "patch" }, { "type": "web_search" }],
            },
        }))
        .unwrap();
        let calls = request.turns[0].message.tool_calls.iter();
        let calls: Vec<_> = calls.map(|call| [&call.id[..], &call.name, &call.arguments]).collect();
        assert_eq!(
            calls,
            [
                ["1", "n__f", "{}"],
                ["2", "patch", "{\"input\":\"a\\nb\"}"],
                ["3", "local_shell", "{\"command\":[\"ls\"]}"],
            ]
        );
        assert_eq!(request.turns[2].message.tool_call_id, "3");
        assert_eq!(request.tools.len(), 1);
        let names = vec!["patch".to_string()];
        assert_eq!(request.choice, ToolChoice::Among { names, required: true });
    }

    #[test]
    fn parameters_have_names_of_their_own() {
        let request = read(json!({
            "input": "q",
            "max_output_tokens": 5,
            "max_tokens": 6,
            "reasoning": { "effort": "low", "summary": "auto" },
            "tools": [{ "type": "function", "name": "f", "parameters": { "type": "object" } }],
            "tool_choice": { "type": "function", "name": "f" },
            "text": { "format": { "type": "json_schema", "name": "n", "schema": {} }, "verbosity": "medium" },
        }))
        .unwrap();
        assert_eq!(request.turns[0].content.parts, ["q"]);
        assert_eq!(request.tokens_max.map(|max| max.0), Some(5));
        assert_eq!(request.fields.reasoning_effort.as_deref(), Some("low"));
        assert_eq!(request.tools[0].name, "f");
        assert_eq!(request.choice, ToolChoice::Named("f".into()));
        assert_eq!(request.format.unwrap().place, "text.format");
    }

    #[test]
    fn what_is_not_supported_is_an_error() {
        for (request, expected) in [
            (json!({}), "\"input\": must be"),
            (json!({ "input": [] }), "at least one item"),
            (json!({ "input": "", "previous_response_id": "r" }), "send the whole conversation"),
            (json!({ "input": "", "background": true }), "\"background\": not supported"),
            (json!({ "input": "", "text": { "verbosity": "low" } }), "\"text.verbosity\": not"),
            (json!({ "input": [{ "type": "item_reference" }] }), "at least one item that"),
            (
                json!({ "input": [{ "type": "reasoning", "content": [1] }] }),
                "\"input[0].content\": must be",
            ),
            (json!({ "input": "", "tools": [{}] }), "\"tools[0].type\": must be given"),
            (json!({ "input": "", "tool_choice": { "type": "mcp" } }), "not \"mcp\""),
        ] {
            let error = read(request).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
