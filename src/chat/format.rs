//! Formats of calls of tools and reasoning: one file each, and [`FORMATS`] lists them.
//!
//! Which format a template has is seen in the call that it renders: it is the first in the list that
//! reads it. A new format is a new file and its line.

mod gemma4;
mod generic;
mod harmony;
mod hermes;
mod json_call;
mod llama3;
mod mistral;
mod qwen3_coder;

use std::fmt::Debug;

use super::{
    Message, Parser, Tool, Tools,
    grammar::Lark,
    parser::{Block, Cursor, Read},
    reasoning::Markers,
};
use crate::Token;

pub(super) use generic::GENERIC;
pub(super) use json_call::{FENCE, WholeAnswer, WholeAnswerReader};

/// All formats. The first that reads a template's call is taken, [`GENERIC`] if none does.
pub(super) const FORMATS: &[&dyn Dialect] = &[
    &harmony::Harmony,
    &gemma4::Gemma4,
    &qwen3_coder::Qwen3Coder,
    &hermes::Hermes,
    &mistral::Mistral,
    &llama3::Llama3,
];

/// One way to write calls.
pub(super) trait Dialect: Debug + Sync {
    /// The name, for messages and tests.
    fn name(&self) -> &'static str;

    /// The texts that may begin a call, or another part of an answer. Templates write the first.
    fn openers(&self) -> &'static [&'static str];

    /// The texts that may be control tokens.
    fn markers(&self) -> &'static [&'static str];

    /// Reads from an opener to where arguments or text begin.
    fn begin(&self, cursor: &mut Cursor, place: Place, tools: &[Tool]) -> Read<Block>;

    /// Reads what follows the arguments of a call, as far as it belongs to it. Returns whether another
    /// call follows without an opener.
    fn end(&self, cursor: &mut Cursor) -> Read<bool>;

    /// Adds the rules of `answer`: what follows reasoning.
    fn grammar(&self, lark: &mut Lark, tools: &Tools);

    /// The markers of reasoning, if the format has its own.
    fn reasoning(&self) -> Option<Markers> {
        None
    }

    /// Returns messages in which calls and tools are text, for templates that do not read them. `system` says
    /// whether the template reads system messages.
    fn describe(&self, messages: &[Message], tools: &[Tool], system: bool) -> Option<Vec<Message>> {
        let _ = (messages, tools, system);
        None
    }
}

/// The place of an opener in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// At the beginning of an answer, or after nothing but reasoning and calls.
    Start,
    /// After text.
    Middle,
    /// After a call that another one follows without an opener.
    Next,
}

/// A format of calls of tools and reasoning, which [`Template::format`](super::Template::format) finds.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    pub(super) dialect: &'static dyn Dialect,
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

    /// Returns the text that ends reasoning where its limit is reached, see [`Budget`](super::Budget);
    /// `None` if the model does not reason.
    pub fn reasoning_end(&self) -> Option<&'static str> {
        let markers = self.markers.or_else(|| self.dialect.reasoning());
        markers.filter(|_| self.reasons).map(|markers| markers.forced)
    }

    /// Leaves reasoning in the text, with its markers.
    pub fn without_reasoning(self) -> Self {
        Self { reasons: false, ..self }
    }

    /// Returns a prompt after which the model answers without reasoning: with an empty block of reasoning at
    /// its end, unless the template has written one.
    pub fn skip_reasoning(&self, prompt: String) -> String {
        match self.markers {
            Some(markers) if markers.opened_by(&prompt) => prompt + markers.end,
            Some(markers) if !prompt.trim_end().ends_with(markers.end) => {
                prompt + markers.start + markers.end
            }
            _ => prompt,
        }
    }

    /// Returns the texts that the parser must see. Where one is a control token of the vocabulary, the
    /// answer's text must contain its name.
    pub fn markers(&self) -> impl Iterator<Item = &'static str> {
        let reasoning = self.markers.into_iter().flat_map(|markers| [markers.start, markers.end]);
        self.dialect.markers().iter().copied().chain(reasoning)
    }

    /// Returns a parser for the answer to a prompt.
    pub fn parser(&self, prompt: &str, tools: &Tools) -> Parser {
        Parser::new(self.dialect, self.markers, self.reasons, prompt, tools)
    }

    /// Returns a grammar in llguidance's form of Lark that the answer to a prompt must have, so that its
    /// calls are valid; `None` if every answer is possible. `control` returns the control token with
    /// a name: the grammar refers to it by its number.
    ///
    /// # Errors
    /// A schema that does not permit to write the grammar.
    pub fn grammar(
        &self,
        prompt: &str,
        tools: &Tools,
        control: &dyn Fn(&str) -> Option<Token>,
    ) -> Option<String> {
        tools.callable().next()?;
        let mut lark = Lark::new(control, self.markers, prompt);
        self.dialect.grammar(&mut lark, tools);
        Some(lark.finish())
    }
}
