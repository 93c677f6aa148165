//! Formats of tool calls and reasoning: one file each, listed in [`known`].
//!
//! A template has the first format in the list that parses the call it renders. If there is none,
//! the format is derived from rendered calls. To add a format that cannot be derived, add a file
//! and a line to the list.

pub(super) mod derived;
mod gemma4;
mod generic;
mod harmony;
mod hermes;
mod json_call;
mod lfm2;
mod llama3;
mod mistral;
mod pattern;
mod python;
mod qwen3_coder;
mod tags;

use std::{cmp::Reverse, fmt::Debug, sync::Arc};

use serde_json::Value as Json;

use super::{
    Error, Message, Parser, Tool, ToolCall, Tools,
    grammar::Lark,
    parser::{Block, Cursor, Read, Stop},
    reasoning::Markers,
};
use crate::Token;

pub(super) use generic::Generic;
pub(super) use json_call::{FENCE, WholeAnswer, WholeAnswerReader};

/// Returns all known formats in the order of detection.
pub(super) fn known() -> [Arc<dyn Dialect>; 7] {
    [
        Arc::new(harmony::Harmony),
        Arc::new(gemma4::Gemma4),
        Arc::new(lfm2::Lfm2),
        Arc::new(qwen3_coder::Qwen3Coder),
        Arc::new(hermes::Hermes),
        Arc::new(mistral::Mistral),
        Arc::new(llama3::Llama3),
    ]
}

/// A way to write tool calls.
pub(super) trait Dialect: Debug + Send + Sync {
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
pub(super) enum Place {
    /// At the start of an answer, or after nothing but reasoning and calls.
    Start,
    /// After text.
    Middle,
    /// After a call, without an opener.
    Next,
}

/// How a model writes tool calls and reasoning. [`Template::format`](super::Template::format)
/// returns it.
///
/// ```
/// # use rope_cpu_chat::Template;
/// let format = Template::new("{{ '<think></think>' }}", "", "")?.format();
/// assert!(format.reasons());
/// assert_eq!(format.skip_reasoning("Hello!".into()), "Hello!<think></think>");
/// # Ok::<(), rope_cpu_chat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Format {
    pub(super) dialect: Arc<dyn Dialect>,
    pub(super) markers: Option<Markers>,
    pub(super) reasons: bool,
}

impl Format {
    /// Returns the name of the format.
    pub fn name(&self) -> &'static str {
        self.dialect.name()
    }

    /// Returns whether the model may reason before it answers.
    pub fn reasons(&self) -> bool {
        self.reasoning_end().is_some()
    }

    /// Returns the text that ends reasoning at its limit: see [`Budget`](super::Budget). `None` if
    /// the model does not reason.
    pub fn reasoning_end(&self) -> Option<&'static str> {
        let markers = self.markers.or_else(|| self.dialect.reasoning());
        markers.filter(|_| self.reasons).map(|markers| markers.forced)
    }

    /// Returns a format that leaves reasoning in the text, with its markers.
    pub fn without_reasoning(self) -> Self {
        Self { reasons: false, ..self }
    }

    /// Returns a prompt for an answer without reasoning. Adds an empty block of reasoning, unless
    /// the template has written one.
    pub fn skip_reasoning(&self, prompt: String) -> String {
        match self.markers {
            Some(markers) if markers.opened_by(&prompt) => prompt + markers.end,
            Some(markers) if !prompt.trim_end().ends_with(markers.end) => {
                prompt + markers.start + markers.end
            }
            _ => prompt,
        }
    }

    /// Returns the texts that the parser must see. If one of them is a token of the vocabulary, put
    /// its name into the text of the answer.
    pub fn markers(&self) -> impl Iterator<Item = &str> {
        let reasoning = self.markers.into_iter().flat_map(|markers| [markers.start, markers.end]);
        self.dialect.markers().into_iter().chain(reasoning)
    }

    /// Returns a parser for the answer to a prompt.
    pub fn parser(&self, prompt: &str, tools: &Tools) -> Parser {
        Parser::new(self.dialect.clone(), self.markers, self.reasons, prompt, tools)
    }

    /// Returns a grammar in llguidance's Lark for the answer to a prompt. It makes the answer's
    /// calls valid. Returns `None` if no tool may be called.
    ///
    /// `schema` is the JSON schema of an answer without calls; `None` allows any text. `control`
    /// returns the token of a marker that is a single token. The grammar then refers to the token
    /// by number, and allows no other spelling.
    ///
    /// # Errors
    /// If a tool's schema cannot become a grammar.
    pub fn grammar(
        &self,
        prompt: &str,
        tools: &Tools,
        schema: Option<&Json>,
        control: &dyn Fn(&str) -> Option<Token>,
    ) -> Option<String> {
        tools.callable().next()?;
        let schema = schema.filter(|_| !tools.required());
        let mut lark = Lark::new(control, self.markers, prompt, schema);
        self.dialect.grammar(&mut lark, tools);
        Some(lark.finish())
    }
}

/// Parses the name of a tool, if `after` parses the text after it.
fn named<'t>(
    cursor: &mut Cursor,
    tools: &'t [Tool],
    mut after: impl FnMut(&mut Cursor) -> Read<()>,
) -> Read<&'t Tool> {
    // A tool's name may be a prefix of another one.
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
