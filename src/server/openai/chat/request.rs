//! Requests of chat completions.

use rope_cpu::chat::ToolChoice;
use serde_json::Value;

use super::{
    messages::{ChatMessage, turns},
    tools::{Choice, Function, FunctionCall, GivenTool},
};
use crate::server::{
    chat::{ChatFields, ChatRequest},
    error::ApiError,
    native::completion::Report,
    parameters::Limit,
    read::{Failure, Treatment, Whole},
    request_fields::{
        ABOUT_USER, CACHE, LENGTH, NO_OBFUSCATION, NO_SEARCH, STORED, TEXT_ONLY, TIER,
    },
};

crate::object! {
    /// A request of `/v1/chat/completions`.
    pub struct Completions {
        /// The conversation.
        messages: Option<Vec<ChatMessage>>,
        /// `auto`, `none` or an object that names one of `functions`.
        function_call: Option<FunctionCall>,
        /// Functions that the answer may call, in `function_call`: as `tools` with one call at
        /// most.
        functions: Vec<Function>,
        /// Whether the tokens of the answer are reported with their probabilities.
        logprobs: Option<bool>,
        /// Maximum tokens of the answer, or -1 for no limit.
        max_completion_tokens: Option<Limit>,
        /// The number of answers, up to 64.
        n: Option<Whole<1, 64>>,
        /// Options for additional data in a stream.
        stream_options: Option<StreamOptions>,
        /// `auto`, `none`, `required` or an object that names a tool or `allowed_tools`.
        tool_choice: Option<Choice>,
        /// Tools that the answer may call: functions and custom tools.
        tools: Option<Vec<GivenTool>>,
        /// Number of tokens reported at each place, with `logprobs`.
        top_logprobs: Option<Whole<0, 20>>,
        /// Whether the answer also contains llama-server's form.
        verbose: Option<bool>,
        ..report: Report,
        ..chat: ChatFields,
    }
    others {
        "audio": Treatment::Refused("the model writes text only", &[]),
        "metadata": ABOUT_USER,
        "modalities": TEXT_ONLY,
        "prediction": Treatment::Ignored(
            "drafts come from the conversation, and change no answer"
        ),
        "prompt_cache_key": CACHE,
        "prompt_cache_retention": CACHE,
        "safety_identifier": ABOUT_USER,
        "service_tier": TIER,
        "store": STORED,
        "user": ABOUT_USER,
        "verbosity": LENGTH,
        "web_search_options": NO_SEARCH,
    }
}

crate::object! {
    /// Options for additional data in a stream.
    pub struct StreamOptions {
        /// Whether the last event of a stream has the usage.
        include_usage: Option<bool>,
    }
    others {
        "include_obfuscation": NO_OBFUSCATION,
    }
}

impl StreamOptions {
    /// Returns whether the last event of a stream has the usage.
    pub fn reports_usage(options: Option<&StreamOptions>) -> bool {
        options.and_then(|options| options.include_usage).unwrap_or(false)
    }
}

impl Completions {
    /// Returns the conversation to answer.
    ///
    /// # Errors
    /// If there is no message, or fields exclude each other.
    pub fn into_request(self) -> Result<ChatRequest, ApiError> {
        let mut fields = self.chat;
        let expected = "a list of at least one message";
        let turns = match self.messages {
            None => return Err(Failure::missing("messages", expected).into()),
            Some(messages) if messages.is_empty() => {
                return Err(Failure::wrong("messages", expected, &Value::Array(Vec::new())).into());
            }
            Some(messages) => turns(messages),
        };
        let (tools, choice) = match self.functions {
            functions if functions.is_empty() => {
                if let Some(FunctionCall(ToolChoice::Named(_))) = self.function_call {
                    let reason = "there are no \"functions\" to call";
                    return Err(Failure::of("function_call", reason).into());
                }
                let tools = self.tools.unwrap_or_default();
                let tools = tools.into_iter().filter_map(|given| given.tool).collect();
                (tools, self.tool_choice.map(|Choice(choice)| choice))
            }
            functions => {
                for (name, is_given) in
                    [("tools", self.tools.is_some()), ("tool_choice", self.tool_choice.is_some())]
                {
                    if is_given {
                        return Err(ApiError::invalid(format_args!(
                            "\"functions\" and \"{name}\" exclude each other: remove one of them"
                        )));
                    }
                }
                fields.parallel_tool_calls = Some(false);
                let functions = functions.into_iter().map(|Function(tool)| tool).collect();
                (functions, self.function_call.map(|FunctionCall(choice)| choice))
            }
        };
        let tokens_max = self.max_completion_tokens.or(fields.shared.max_tokens);
        Ok(ChatRequest {
            turns,
            tools,
            choice: choice.unwrap_or_default(),
            tokens_max: tokens_max.or(fields.shared.n_predict),
            format: None,
            fields,
        })
    }

    /// Returns the names of the custom tools.
    pub fn custom_tools(&self) -> Vec<String> {
        let tools = self.tools.iter().flatten();
        let custom = tools.filter(|tool| tool.is_custom).filter_map(|tool| tool.tool.as_ref());
        custom.map(|tool| tool.name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use rope_cpu::chat::Role;
    use serde_json::json;

    use super::*;
    use crate::server::read::of_value;

    fn read(request: Value) -> Result<ChatRequest, String> {
        let request = of_value::<Completions>(request).map_err(ApiError::from);
        request.and_then(Completions::into_request).map_err(|e| e.message)
    }

    #[test]
    fn functions_are_tools_and_their_results_belong_to_calls() {
        let request = read(json!({
            "messages": [
                { "role": "user", "content": "q" },
                { "role": "assistant", "content": null, "function_call": { "name": "f", "arguments": "{}" } },
                { "role": "function", "name": "f", "content": "1" },
            ],
            "functions": [{ "name": "f", "parameters": { "type": "object" } }],
            "function_call": { "name": "f" },
            "parallel_tool_calls": true,
        }))
        .unwrap();
        assert_eq!(request.tools[0].name, "f");
        assert_eq!(request.tools[0].parameters["type"], "object");
        assert_eq!(request.choice, ToolChoice::Named("f".into()));
        assert_eq!(request.fields.parallel_tool_calls, Some(false));
        let [_, call, result] = &request.turns[..] else { panic!("{:?}", request.turns) };
        assert_eq!(call.message.tool_calls[0].name, "f");
        assert_eq!(result.message.role, Role::Tool);
        assert_eq!(result.message.tool_call_id, call.message.tool_calls[0].id);
        assert!(!result.message.tool_call_id.is_empty());
    }

    #[test]
    fn calls_and_choices_have_several_forms() {
        let request = read(json!({
            "messages": [
                { "role": "assistant", "tool_calls": [
                    { "id": "1", "function": { "name": "f", "arguments": { "n": 1.50 } } },
                    { "id": "2", "type": "custom", "custom": { "name": "c", "input": "x" } },
                ] },
                { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] },
            ],
            "tools": [{ "type": "web_search" }, { "type": "custom", "custom": { "name": "c" } }],
            "tool_choice": { "type": "allowed_tools", "allowed_tools": {
                "mode": "required", "tools": [{ "custom": { "name": "c" } }],
            } },
            "max_completion_tokens": 5, "max_tokens": 6,
        }))
        .unwrap();
        let arguments: Vec<_> =
            request.turns[0].message.tool_calls.iter().map(|call| &call.arguments[..]).collect();
        assert_eq!(arguments, [r#"{"n":1.5}"#, r#"{"input":"x"}"#]);
        assert_eq!(request.turns[1].content.parts, ["a", "b"]);
        assert_eq!(request.tools.len(), 1);
        let names = vec!["c".to_string()];
        assert_eq!(request.choice, ToolChoice::Among { names, required: true });
        assert_eq!(request.tokens_max, Some(Whole(5)));
    }

    #[test]
    fn errors_name_the_field() {
        let function = json!([{ "name": "f" }]);
        let messages = |message: Value| json!({ "messages": [message] });
        let with = |name: &str, value: Value| json!({ "messages": [{ "role": "user", "content": "" }], "functions": function, name: value });
        for (request, part) in [
            (json!({ "messages": [] }), "at least one message, not []"),
            (with("tools", json!([])), "\"tools\" exclude each other"),
            (with("function_call", json!("f")), "\"function_call\": must be \"auto\""),
            (
                json!({ "messages": [{ "role": "user", "content": "" }], "function_call": { "name": "f" } }),
                "there are no \"functions\"",
            ),
            (messages(json!({ "role": "function" })), "\"messages[0].name\": must be given"),
            (messages(json!({ "role": "user" })), "\"messages[0]\": a message of role user has no"),
            (
                messages(json!({ "role": "user", "content": "", "tool_calls": [
                { "function": { "name": "f", "arguments": "" } },
            ] })),
                "only assistant may",
            ),
            (
                messages(json!({ "role": "assistant", "function_call": { "name": "f" } })),
                "\"messages[0].function_call.arguments\": must be given",
            ),
            (
                messages(json!({ "role": "assistant", "tool_calls": [
                    { "function": { "name": "f", "arguments": 1 } },
                ] })),
                "\"messages[0].tool_calls[0].function.arguments\": must be a JSON object",
            ),
            (
                messages(json!({ "role": "assistant", "tool_calls": [
                    { "type": "x", "function": { "name": "f", "arguments": {} } },
                ] })),
                "\"messages[0].tool_calls[0].type\": must be function or custom, not \"x\"",
            ),
        ] {
            let error = read(request).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
