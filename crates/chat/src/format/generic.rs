//! The format for templates that do not mention tools, or write calls in an unknown format:
//! `{"tool_call": {"name": "f", "arguments": {}}}`. The system message describes it.

use serde_json::json;

use super::json_call;
use crate::{
    cursor::{Cursor, Read, Stop},
    dialect::{Block, Dialect, Place},
    grammar::Lark,
    message::{Message, Role, ToolCall},
    tools::{Tool, Tools},
};

/// The format for templates without one.
#[derive(Debug)]
pub struct Generic;

impl Dialect for Generic {
    fn name(&self) -> &'static str {
        "generic"
    }

    fn openers(&self) -> Vec<&str> {
        vec!["{"]
    }

    fn markers(&self) -> Vec<&str> {
        vec![]
    }

    fn begin(&self, cursor: &mut Cursor, place: Place, tools: &[Tool]) -> Read<Block> {
        if place == Place::Middle {
            return Err(Stop::Other);
        }
        cursor.eat("{")?;
        cursor.space();
        cursor.eat("\"tool_call\"")?;
        cursor.space();
        cursor.eat(":")?;
        cursor.space();
        json_call::begin(cursor, &["arguments"], tools)
    }

    fn end(&self, cursor: &mut Cursor) -> Read<bool> {
        json_call::end(cursor)?;
        let mut ahead = cursor.clone();
        ahead.space();
        ahead.eat("}")?;
        *cursor = ahead;
        Ok(false)
    }

    fn grammar(&self, lark: &mut Lark, tools: &Tools) {
        let calls = tools.callable().map(|tool| {
            let call = lark.json_call(&["{", "\"tool_call\"", ": "], "arguments", tool);
            format!("{call} {}", lark.spaced(&["}"]))
        });
        let calls: Vec<_> = calls.collect();
        let separator = lark.literal("\n");
        lark.leading_calls(None, &calls, &separator, tools);
    }

    fn describe(&self, messages: &[Message], tools: &[Tool], system: bool) -> Option<Vec<Message>> {
        let calls = || messages.iter().flat_map(|message| &message.tool_calls);
        let plain = |message: &Message| {
            let call = calls().find(|call| !call.id.is_empty() && call.id == message.tool_call_id);
            plain(message, call.map_or(&message.name, |call| &call.name))
        };
        let mut described: Vec<_> = messages.iter().map(plain).collect();
        if !tools.is_empty() {
            let text = description(tools);
            match described.first_mut() {
                Some(Message { role: Role::System | Role::Developer, content, .. }) => {
                    *content = format!("{content}\n\n{text}");
                }
                Some(Message { role: Role::User, content, .. }) if !system => {
                    *content = format!("{text}\n\n{content}");
                }
                _ => described.insert(0, Message::new(Role::System, text)),
            }
        }
        Some(described)
    }
}

/// Describes tools to the model.
fn description(tools: &[Tool]) -> String {
    let tools: Vec<_> = tools.iter().map(|tool| tool.to_json()["function"].to_string()).collect();
    format!(
        "You can call these functions:\n{}\n\nTo call one, answer with nothing but a JSON object of this \
         form:\n{{\"tool_call\": {{\"name\": <name of the function>, \"arguments\": <object of its \
         arguments>}}}}",
        tools.join("\n")
    )
}

/// Returns the message as text. Calls have the model's form, and results are user messages with the
/// name of their tool.
fn plain(message: &Message, tool: &str) -> Message {
    if message.role == Role::Tool {
        let of = if tool.is_empty() { String::new() } else { format!(" of {tool}") };
        return Message::new(Role::User, format!("Result{of}:\n{}", message.content));
    }
    let mut plain = Message { tool_calls: Vec::new(), ..message.clone() };
    for ToolCall { name, arguments, .. } in &message.tool_calls {
        let line = if plain.content.is_empty() { "" } else { "\n" };
        let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
        plain.content += &format!(
            "{line}{{\"tool_call\": {{\"name\": {}, \"arguments\": {arguments}}}}}",
            json!(name)
        );
    }
    plain
}
