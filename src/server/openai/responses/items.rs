//! Conversations of OpenAI's responses, made of items.

use rope_cpu::chat::{Message, Role, ToolCall};
use serde::{Deserializer, de::SeqAccess};
use serde_json::{Map, Value};
use tracing::warn;

use crate::server::{
    chat::{Content, ROLES, Turn, role},
    openai::tools::{Declaration, Declared, LOCAL_SHELL, custom_arguments, flat},
    read::{Failure, Read, Shape, elements},
};

/// Adds an item to the messages. Consecutive items of the model become one message.
pub fn add(turns: &mut Vec<Turn>, declared: &mut Declared, item: Item) {
    match item {
        Item::Message(role, content) => {
            match open_turn(turns).filter(|_| role == Role::Assistant) {
                Some(turn) if turn.content.parts.is_empty() => turn.content = content,
                _ => turns.push(Turn::new(role, content)),
            }
        }
        Item::Reasoning(text) => {
            let mut turn = Turn::new(Role::Assistant, Vec::new());
            turn.message.reasoning = text;
            turns.push(turn);
        }
        Item::Call(call) => match open_turn(turns) {
            Some(turn) => turn.message.tool_calls.push(call),
            None => {
                let mut turn = Turn::new(Role::Assistant, Vec::new());
                turn.message.tool_calls.push(call);
                turns.push(turn);
            }
        },
        Item::Output(tool_call_id, content) => {
            let message = Message { tool_call_id, ..Message::new(Role::Tool, "") };
            turns.push(Turn { message, content });
        }
        Item::Tools(tools) => tools.into_iter().for_each(|tool| declared.add(tool)),
        Item::Skipped => {}
    }
}

/// Returns the last message if it is the model's.
fn open_turn(turns: &mut [Turn]) -> Option<&mut Turn> {
    turns.last_mut().filter(|turn| turn.message.role == Role::Assistant)
}

/// The conversation.
#[derive(Clone, Debug)]
pub enum Input {
    /// A text of the user.
    Text(String),
    /// Items.
    Items(Vec<Item>),
}

impl Shape for Input {
    fn expected() -> String {
        "a string or a list of at least one item".into()
    }

    fn text(text: String) -> Result<Self, String> {
        Ok(Input::Text(text))
    }

    fn list<'de, A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        elements(list).map(Input::Items)
    }
}

/// An item of a conversation.
#[derive(Clone, Debug)]
pub enum Item {
    /// A message with its text.
    Message(Role, Content),
    /// The reasoning before an answer.
    Reasoning(String),
    /// A call of a tool.
    Call(ToolCall),
    /// The result of the call with this identifier.
    Output(String, Content),
    /// Additional tools.
    Tools(Vec<Declaration>),
    /// An item that the model cannot use, such as a call of a tool on OpenAI's servers. Clients
    /// also keep private items in a conversation.
    Skipped,
}

crate::object! {
    struct ItemFields {
        /// The action of a call of the client's shell.
        action: Option<Map<String, Value>>,
        /// The arguments of a call of a function.
        arguments: Option<String>,
        /// The call that this output answers.
        call_id: Option<String>,
        /// The text of a message, or the parts of reasoning.
        content: Option<Value>,
        /// The identifier of the item.
        id: Option<String>,
        /// The text of a call of a custom tool.
        input: Option<String>,
        /// The name of the called tool.
        name: Option<String>,
        /// The namespace of the called tool.
        namespace: Option<String>,
        /// The result of a call.
        output: Content,
        /// The author of a message.
        role: Option<String>,
        /// The parts of a summary of reasoning.
        summary: Option<Vec<Value>>,
        /// Additional tools.
        tools: Vec<Declaration>,
        /// The type.
        kind ["type"]: Option<String>,
    }
}

impl Read for Item {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        ItemFields::read(deserializer)?.item().map_err(Failure::into_error)
    }
}

impl ItemFields {
    fn item(self) -> Result<Item, Failure> {
        match self.kind.as_deref().unwrap_or("message") {
            "message" => {
                let role = role(self.role.as_deref(), &ROLES)?;
                let content = Content::of_value("content", self.content)?;
                Turn::new(role, content.clone()).checked()?;
                Ok(Item::Message(role, content))
            }
            "reasoning" => self.reasoning().map(Item::Reasoning),
            "function_call" => {
                let arguments = self.arguments.as_deref();
                let arguments =
                    arguments.ok_or_else(|| Failure::missing("arguments", "a string"))?;
                self.call(arguments.into())
            }
            "custom_tool_call" => {
                let input = self.input.as_deref();
                let input = input.ok_or_else(|| Failure::missing("input", "a string"))?;
                self.call(custom_arguments(input))
            }
            "local_shell_call" => {
                let action = self.action.clone();
                let mut action = action.ok_or_else(|| Failure::missing("action", "an object"))?;
                for name in ["type", "env", "user"] {
                    action.shift_remove(name);
                }
                let (id, arguments) = (self.call_id()?, Value::Object(action).to_string());
                Ok(Item::Call(ToolCall { id, name: LOCAL_SHELL.into(), arguments }))
            }
            "function_call_output" | "custom_tool_call_output" | "local_shell_call_output" => {
                Ok(Item::Output(self.call_id()?, self.output))
            }
            "additional_tools" => Ok(Item::Tools(self.tools)),
            kind => {
                warn!(target: "tools", kind, "skipped: an item that the model cannot use");
                Ok(Item::Skipped)
            }
        }
    }

    /// Returns the text of reasoning, or of its summary.
    fn reasoning(self) -> Result<String, Failure> {
        let expected = "reasoning with a list of parts that have a \"text\"";
        let content = match self.content {
            None => None,
            Some(Value::Array(parts)) => Some(parts),
            Some(other) => return Err(Failure::wrong("content", expected, &other)),
        };
        let parts = [content, self.summary].into_iter().flatten().find(|parts| !parts.is_empty());
        let parts = parts.unwrap_or_default();
        let text: Option<String> = parts.iter().map(|part| part["text"].as_str()).collect();
        text.ok_or_else(|| Failure::wrong("content", expected, &Value::Array(parts)))
    }

    fn call(&self, arguments: String) -> Result<Item, Failure> {
        let name = self.name.as_deref().ok_or_else(|| Failure::missing("name", "a string"))?;
        let name = flat(self.namespace.as_deref(), name);
        Ok(Item::Call(ToolCall { id: self.call_id()?, name, arguments }))
    }

    /// Returns the identifier of a call. A shell's item may have only the item's identifier.
    fn call_id(&self) -> Result<String, Failure> {
        let is_shell = self.kind.as_deref().is_some_and(|kind| kind.starts_with(LOCAL_SHELL));
        let own = self.id.clone().filter(|_| is_shell);
        self.call_id.clone().or(own).ok_or_else(|| Failure::missing("call_id", "a string"))
    }
}
