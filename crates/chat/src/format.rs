//! Formats of tool calls and reasoning: one file each, listed in [`known`].
//!
//! A template has the first format in the list that parses the call it renders. If there is none,
//! the format is derived from rendered calls. To add a format that cannot be derived, add a file
//! and a line to the list.

pub(super) mod derived;
mod gemma4;
pub(super) mod generic;
mod harmony;
mod hermes;
pub(super) mod json_call;
mod lfm2;
mod llama3;
mod mistral;
mod pattern;
mod python;
mod qwen3_coder;
mod tags;

use std::sync::Arc;

use serde_json::Value as Json;

use super::{
    dialect::Dialect,
    grammar::{Lark, Token},
    parser::Parser,
    reasoning::Markers,
    tools::Tools,
};

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
