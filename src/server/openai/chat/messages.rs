//! Messages of chat completions.

use rope_cpu::chat::{Message, Role, ToolCall, call_id};
use serde::Deserializer;
use serde_json::Value;

use crate::server::{
    chat::{Content, ROLES, Turn, role, tool_call},
    openai::tools::custom_arguments,
    read::{Failure, Read},
};

/// Returns the messages. Results of functions refer to the last call.
pub fn turns(messages: Vec<ChatMessage>) -> Vec<Turn> {
    let mut last_call = String::new();
    let turn = |(index, message): (usize, ChatMessage)| {
        let ChatMessage { mut turn, legacy } = message;
        match (legacy, turn.message.tool_calls.first_mut()) {
            (Some(Legacy::Call), Some(call)) => {
                // The same in every request of a conversation, so that the prompts share a prefix.
                last_call = call_id(index as u64);
                call.id = last_call.clone();
            }
            (Some(Legacy::Result), _) => turn.message.tool_call_id = last_call.clone(),
            _ => {}
        }
        turn
    };
    messages.into_iter().enumerate().map(turn).collect()
}

/// A message.
#[derive(Clone, Debug)]
pub struct ChatMessage {
    turn: Turn,
    legacy: Option<Legacy>,
}

/// The part of the older API that a message uses, with functions instead of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Legacy {
    /// `function_call`.
    Call,
    /// The role `function`.
    Result,
}

crate::object! {
    struct GivenMessage {
        /// The text.
        content: Content,
        /// The call of a function.
        function_call: Option<Called>,
        /// The name of the tool that gave this result.
        name: Option<String>,
        /// The reasoning before an answer.
        reasoning_content: Option<String>,
        /// The author.
        role: Option<String>,
        /// The call that this result answers.
        tool_call_id: Option<String>,
        /// The calls of tools.
        tool_calls: Vec<GivenCall>,
    }
}

impl Read for ChatMessage {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        GivenMessage::read(deserializer)?.message().map_err(Failure::into_error)
    }
}

impl GivenMessage {
    fn message(self) -> Result<ChatMessage, Failure> {
        let is_result = self.role.as_deref() == Some("function");
        if is_result && self.name.is_none() {
            return Err(Failure::missing("name", "a string"));
        }
        let role = if is_result { Role::Tool } else { role(self.role.as_deref(), &ROLES)? };
        let mut tool_calls: Vec<_> = self.tool_calls.into_iter().map(|call| call.0).collect();
        let mut legacy = is_result.then_some(Legacy::Result);
        if let Some(call) = self.function_call {
            tool_calls = vec![call.call(String::new()).map_err(|e| e.within("function_call"))?];
            legacy = Some(Legacy::Call);
        }
        let message = Message {
            tool_calls,
            name: self.name.unwrap_or_default(),
            reasoning: self.reasoning_content.unwrap_or_default(),
            tool_call_id: self.tool_call_id.unwrap_or_default(),
            ..Message::new(role, "")
        };
        Ok(ChatMessage { turn: Turn { message, content: self.content }.checked()?, legacy })
    }
}

/// A call of a tool in a message.
#[derive(Clone, Debug)]
struct GivenCall(ToolCall);

crate::object! {
    struct CallFields {
        /// A call of a custom tool.
        custom: Option<CustomCall>,
        /// A call of a function.
        function: Option<Called>,
        /// The identifier that the result refers to.
        id: Option<String>,
        /// `function` or `custom`.
        kind ["type"]: Option<String>,
    }
}

crate::object! {
    struct Called {
        /// A JSON object, or its text.
        arguments: Option<Value>,
        /// The name.
        name: Option<String>,
    }
}

crate::object! {
    struct CustomCall {
        /// The text.
        input: Option<String>,
        /// The name.
        name: Option<String>,
    }
}

impl Read for GivenCall {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        CallFields::read(deserializer)?.call().map(GivenCall).map_err(Failure::into_error)
    }
}

impl CallFields {
    fn call(self) -> Result<ToolCall, Failure> {
        let id = self.id.unwrap_or_default();
        if let Some(CustomCall { input, name }) = self.custom {
            let name = name.ok_or_else(|| Failure::missing("custom.name", "a string"))?;
            let input = input.ok_or_else(|| Failure::missing("custom.input", "a string"))?;
            return Ok(ToolCall { id, name, arguments: custom_arguments(&input) });
        }
        let function = self.function.ok_or_else(|| Failure::missing("function", "an object"))?;
        match self.kind.as_deref() {
            None | Some("function") => function.call(id).map_err(|e| e.within("function")),
            kind => Err(Failure::unless_one_of("type", "function or custom", kind)),
        }
    }
}

impl Called {
    fn call(self, id: String) -> Result<ToolCall, Failure> {
        let name = self.name.ok_or_else(|| Failure::missing("name", "a string"))?;
        tool_call(id, name, self.arguments)
    }
}
