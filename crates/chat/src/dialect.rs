//! One way to write calls: what a format tells the parser and the grammar.

use std::{cmp::Reverse, fmt::Debug};

use super::{
    arguments::Arguments,
    cursor::{Cursor, Read, Stop},
    error::Error,
    grammar::Lark,
    message::{Message, ToolCall},
    reasoning::Markers,
    tools::{Tool, Tools},
};

/// A way to write tool calls.
pub trait Dialect: Debug + Send + Sync {
    /// The name, for messages and tests.
    fn name(&self) -> &'static str;

    /// The texts that may start a call or another part of an answer. Templates write the first one.
    fn openers(&self) -> Vec<&str>;

    /// The texts that may be control tokens.
    fn markers(&self) -> Vec<&str>;

    /// Texts in a template that identify the format, if the template does not write calls.
    fn hints(&self) -> &'static [&'static str] {
        &[]
    }

    /// Writes calls as the model does, for templates that describe tools but skip calls.
    ///
    /// # Errors
    /// If arguments are not a JSON object.
    fn write(&self, calls: &[ToolCall]) -> Result<String, Error> {
        let _ = calls;
        Ok(String::new())
    }

    /// Parses from an opener to the start of arguments or text.
    fn begin(&self, cursor: &mut Cursor, place: Place, tools: &[Tool]) -> Read<Block>;

    /// Parses the rest of a call after its arguments. Returns whether another call follows without
    /// an opener.
    fn end(&self, cursor: &mut Cursor) -> Read<bool>;

    /// Adds the rules of `answer`, the part after reasoning.
    fn grammar(&self, lark: &mut Lark, tools: &Tools);

    /// Reasoning markers that belong to the format.
    fn reasoning(&self) -> Option<Markers> {
        None
    }

    /// Returns messages with calls and tools as text, for templates without tools. `system` is set
    /// if the template uses system messages.
    fn describe(&self, messages: &[Message], tools: &[Tool], system: bool) -> Option<Vec<Message>> {
        let _ = (messages, tools, system);
        None
    }
}

/// The place of an opener in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At the start of an answer, or after nothing but reasoning and calls.
    Start,
    /// After text.
    Middle,
    /// After a call, without an opener.
    Next,
}

/// A part of an answer after a marker.
#[derive(Debug)]
pub enum Block {
    Text,
    Reasoning(Markers),
    Call { name: String, id: Option<String>, arguments: Box<dyn Arguments> },
}

/// Parses the name of a tool, if `after` parses the text after it.
pub fn named<'t>(
    cursor: &mut Cursor,
    tools: &'t [Tool],
    mut after: impl FnMut(&mut Cursor) -> Read<()>,
) -> Read<&'t Tool> {
    // A name may start with another.
    let mut longest: Vec<_> = tools.iter().collect();
    longest.sort_by_key(|tool| Reverse(tool.name.len()));
    for tool in longest {
        let mut ahead = cursor.clone();
        match ahead.eat(&tool.name).and_then(|()| after(&mut ahead)) {
            Ok(()) => {
                *cursor = ahead;
                return Ok(tool);
            }
            Err(Stop::More) => return Err(Stop::More),
            Err(Stop::Other) => {}
        }
    }
    Err(Stop::Other)
}
