//! Requests of ollama's interface.

use rope_cpu::chat::{Message, Role, ToolCall};
use serde::{Deserializer, de::MapAccess};
use serde_json::{Map, Value};

use crate::server::{
    app::App,
    chat::{ChatFields, ChatRequest, Content, ROLES, Turn, role, tool_call},
    error::ApiError,
    fields::COUNT_MAX,
    grammars::Given,
    openai::chat::tools::GivenTool,
    parameters::Place,
    read::{Failure, Fill, Object, Read, Treatment, Whole},
    request_fields::{HARDWARE, SHIFT, WHOLE_TEXTS},
};

/// A request of `/api/chat` or `/api/generate`. Options may also be top-level fields.
#[derive(Clone, Debug, Default)]
pub struct Ollama {
    /// Top-level fields.
    pub fields: Fields,
    /// Fields of `options`.
    pub options: Options,
}

crate::object! {
    /// The fields of a request.
    pub struct Fields {
        /// `json`, or a JSON schema of the answer.
        format: Option<Format>,
        /// Images in the prompt, which are refused.
        images: Option<Vec<Value>>,
        /// How long the model stays open: seconds, or a time such as `"5m"`. With `-m` it has no effect.
        keep_alive: Option<Value>,
        /// The conversation of `/api/chat`.
        messages: Vec<ChatMessage>,
        /// The prompt of `/api/generate`.
        prompt: Option<String>,
        /// Whether the prompt is used without the chat template.
        raw: Option<bool>,
        /// The text after the gap that the answer fills.
        suffix: Option<String>,
        /// The system message of `/api/generate`.
        system: Option<String>,
        /// Whether the model reasons, or with which effort.
        think: Option<Think>,
        /// Tools that the answer may call.
        tools: Vec<GivenTool>,
    }
    others {
        "context": Treatment::Refused("use /api/chat with all messages", &[]),
        "logprobs": Treatment::Refused("use /v1/chat/completions", &[]),
        "shift": SHIFT,
        "template": Treatment::Refused(
            "start the server with --chat-template, or set \"raw\" and send the whole text", &[]
        ),
        "top_logprobs": Treatment::Refused("use /v1/chat/completions", &[]),
        "truncate": WHOLE_TEXTS,
    }
}

crate::object! {
    /// The options of a request.
    pub struct Options {
        /// The context that the client expects; more than the server has is an error.
        num_ctx: Option<Whole<1, COUNT_MAX>>,
        /// Maximum tokens of the answer; -1 or -2 for no limit.
        num_predict: Option<Whole<-2, COUNT_MAX>>,
        ..chat: ChatFields,
    }
    others {
        "f16_kv": HARDWARE,
        "low_vram": HARDWARE,
        "main_gpu": HARDWARE,
        "num_batch": HARDWARE,
        "num_gpu": HARDWARE,
        "num_keep": SHIFT,
        "num_thread": HARDWARE,
        "numa": HARDWARE,
        "tfs_z": Treatment::Refused("use \"min_p\"", &["1"]),
        "use_mlock": HARDWARE,
        "use_mmap": HARDWARE,
    }
}

impl Object for Ollama {
    fn take<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        if name == "options" {
            self.options.chat.shared.place = Place("options.");
            return map.next_value_seed(Fill(&mut self.options)).map(|()| true);
        }
        Ok(self.fields.take(name, map)? || self.options.take(name, map)?)
    }
}

impl Ollama {
    /// Returns whether the answer comes in parts.
    pub fn streams(&self) -> bool {
        self.options.chat.shared.stream.unwrap_or(true)
    }

    /// Returns the conversation: the messages of `/api/chat`, or the prompt of `/api/generate`.
    ///
    /// # Errors
    /// If it asks for a larger context or has images.
    pub fn into_request(self, app: &App) -> Result<ChatRequest, ApiError> {
        let Ollama { fields, options } = self;
        options.check_context(app.context)?;
        if fields.images.is_some_and(|images| !images.is_empty()) {
            return Err(ApiError::no_media("image"));
        }
        let mut turns: Vec<_> = fields.messages.into_iter().map(|ChatMessage(turn)| turn).collect();
        if let Some(prompt) = fields.prompt {
            turns = fields.system.into_iter().map(|text| Turn::new(Role::System, text)).collect();
            turns.push(Turn::new(Role::User, prompt));
        }
        let tokens_max = options.tokens_max();
        let mut chat = options.chat;
        match fields.think {
            Some(Think::Switch(is_on)) => chat.set_template_argument("enable_thinking", is_on),
            Some(Think::Effort(effort)) => chat.reasoning_effort = Some(effort),
            None => {}
        }
        Ok(ChatRequest {
            turns,
            tools: fields.tools.into_iter().filter_map(|given| given.tool).collect(),
            tokens_max,
            format: fields.format.and_then(|Format(given)| given),
            fields: chat,
            ..ChatRequest::default()
        })
    }
}

impl Options {
    fn tokens_max(&self) -> Option<Whole<-1, COUNT_MAX>> {
        let shared = &self.chat.shared;
        let own = self.num_predict.map(|Whole(max)| Whole(max.max(-1)));
        shared.max_tokens.or(own).or(shared.n_predict)
    }

    fn check_context(&self, context: usize) -> Result<(), Failure> {
        match self.num_ctx.and_then(Whole::count) {
            Some(wanted) if wanted > context => {
                let place = format!("{}num_ctx", self.chat.shared.place.0);
                let reason = format_args!(
                    "must be at most {context}, the context of the server, not {wanted}: restart the server \
                     with a larger context (-c {wanted})"
                );
                Err(Failure::of(&place, reason))
            }
            _ => Ok(()),
        }
    }
}

/// A message of `/api/chat`.
#[derive(Clone, Debug)]
pub struct ChatMessage(Turn);

crate::object! {
    struct MessageFields {
        /// The text.
        content: Content,
        /// Images, which are refused.
        images: Vec<Value>,
        /// The author.
        role: Option<String>,
        /// The reasoning before an answer.
        thinking: Option<String>,
        /// The call that this result answers.
        tool_call_id: Option<String>,
        /// The calls of tools.
        tool_calls: Vec<Call>,
        /// The tool that gave this result.
        tool_name: Option<String>,
    }
}

impl Read for ChatMessage {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let turn = MessageFields::read(deserializer)?.turn();
        turn.map(ChatMessage).map_err(Failure::into_error)
    }
}

impl MessageFields {
    fn turn(self) -> Result<Turn, Failure> {
        if !self.images.is_empty() {
            return Err(Failure::no_media("image"));
        }
        let role = role(self.role.as_deref(), &ROLES)?;
        let message = Message {
            reasoning: self.thinking.unwrap_or_default(),
            tool_calls: self.tool_calls.into_iter().map(|Call(call)| call).collect(),
            tool_call_id: self.tool_call_id.unwrap_or_default(),
            name: self.tool_name.unwrap_or_default(),
            ..Message::new(role, "")
        };
        Turn { message, content: self.content }.checked()
    }
}

/// A call of a tool.
#[derive(Clone, Debug)]
struct Call(ToolCall);

crate::object! {
    struct CallFields {
        /// The called function.
        function: Option<FunctionFields>,
        /// The identifier that the result refers to.
        id: Option<String>,
    }
}

crate::object! {
    struct FunctionFields {
        /// The arguments.
        arguments: Option<Value>,
        /// The name.
        name: Option<String>,
    }
}

impl Read for Call {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        CallFields::read(deserializer)?.call().map(Call).map_err(Failure::into_error)
    }
}

impl CallFields {
    fn call(self) -> Result<ToolCall, Failure> {
        let function = self.function.ok_or_else(|| Failure::missing("function", "an object"))?;
        let name = function.name.ok_or_else(|| Failure::missing("function.name", "a string"))?;
        let call = tool_call(self.id.unwrap_or_default(), name, function.arguments);
        call.map_err(|failure| failure.within("function"))
    }
}

/// The format of an answer.
#[derive(Clone, Debug)]
pub struct Format(Option<Given>);

impl Read for Format {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::read(deserializer)?;
        match &value {
            Value::String(format) if format.is_empty() => Ok(Format(None)),
            Value::String(format) if format == "json" => {
                Ok(Format(Some(Given::json_object("format"))))
            }
            Value::Object(_) => Ok(Format(Some(Given::schema("format", &value)))),
            _ => Err(Failure::wrong("", "\"json\" or a JSON schema", &value).into_error()),
        }
    }
}

/// The reasoning before an answer.
#[derive(Clone, Debug)]
pub enum Think {
    /// Switched on or off.
    Switch(bool),
    /// With this effort.
    Effort(String),
}

impl Read for Think {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::read(deserializer)? {
            Value::Bool(is_on) => Ok(Think::Switch(is_on)),
            Value::String(effort) => Ok(Think::Effort(effort)),
            other => {
                let expected = "true, false, \"low\", \"medium\" or \"high\"";
                Err(Failure::wrong("", expected, &other).into_error())
            }
        }
    }
}

/// Returns the arguments of a call as an object. It is empty if the call was truncated.
pub fn arguments(text: &str) -> Map<String, Value> {
    rope_cpu::json::parse(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::read::of_value;

    fn read(request: Value) -> Result<Ollama, String> {
        of_value(request).map_err(|failure| ApiError::from(failure).message)
    }

    #[test]
    fn messages_have_names_of_their_own() {
        let request = read(json!({ "messages": [{
            "role": "assistant", "content": "", "thinking": "t",
            "tool_calls": [{ "function": { "name": "f", "arguments": { "n": 1 } } }],
        }] }));
        let ChatMessage(turn) = &request.unwrap().fields.messages[0];
        assert_eq!(turn.message.reasoning, "t");
        let call = ToolCall { id: String::new(), name: "f".into(), arguments: "{\"n\":1}".into() };
        assert_eq!(turn.message.tool_calls, [call]);
        let error = read(json!({ "messages": [{ "images": ["x"] }] })).unwrap_err();
        assert!(error.contains("image input is not supported"), "{error}");
    }

    #[test]
    fn options_may_stand_beside_the_other_fields() {
        for request in [
            json!({ "options": { "num_predict": 5, "stop": ["x"] } }),
            json!({ "num_predict": 5, "stop": "x", "options": null }),
        ] {
            let options = read(request).unwrap().options;
            assert_eq!(options.tokens_max(), Some(Whole(5)));
            assert_eq!(options.chat.shared.stop.0, ["x"]);
        }
    }

    #[test]
    fn a_larger_context_is_an_error_with_both_sizes() {
        let options = |size| read(json!({ "options": { "num_ctx": size } })).unwrap().options;
        assert!(options(64).check_context(64).is_ok());
        let error = ApiError::from(options(65).check_context(64).unwrap_err());
        assert_eq!(error.field.as_deref(), Some("options.num_ctx"));
        assert!(error.message.contains("64") && error.message.contains("65"), "{error:?}");
        assert!(error.message.contains("a larger context (-c 65)"), "{error:?}");
    }

    #[test]
    fn fields_that_require_a_stored_state_are_refused() {
        for (given, refused) in [
            (json!({ "template": "", "context": [] }), None),
            (json!({ "template": "x" }), Some("\"template\": not supported")),
            (json!({ "context": [1] }), Some("use /api/chat")),
            (json!({ "options": { "tfs_z": 1.0 } }), None),
            (json!({ "options": { "tfs_z": 0.9 } }), Some("\"options.tfs_z\": not supported")),
            (json!({ "options": "x" }), Some("\"options\": must be an object, not string \"x\"")),
        ] {
            let error = read(given.clone()).err();
            assert_eq!(error.is_some(), refused.is_some(), "{given}: {error:?}");
            assert!(error.unwrap_or_default().contains(refused.unwrap_or_default()), "{given}");
        }
    }
}
