//! Prepares the answer to a conversation: its prompt, its limits, and a parser for its text.
//!
//! ```no_run
//! use rope_cpu::{
//!     chat::{Message, Role},
//!     chat_answer::{ChatAnswer, ChatRequest},
//!     constraint::{self, Constraint},
//!     generate::Limits,
//!     model::Model,
//! };
//!
//! let model = Model::open("model.gguf")?;
//! let template = model.chat_template()?.ok_or("no chat template")?;
//! let messages = [Message::new(Role::User, "Hello!")];
//! let answer = ChatAnswer::new(&template, ChatRequest::new(&messages))?;
//! let prompt = model.tokenizer()?.encode_chat(&answer.text);
//! let vocabulary = constraint::vocabulary(model.tokenizer()?)?;
//! let mut limits = Limits::default();
//! answer.limit(&mut limits, model.tokenizer()?, None, &mut |_, grammar| {
//!     Constraint::new(&vocabulary, grammar)
//! })?;
//! let mut parser = answer.parser(); // reads the text that is generated within these limits
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use thiserror::Error;

use crate::{
    chat::{self, Format, Message, Parser, Template, ToolChoice, Tools},
    constraint::{Constraint, Grammar},
    generate::{Limits, Reasoning},
    tokenizer::Tokenizer,
};

/// A conversation to answer.
#[derive(Clone, Debug)]
pub struct ChatRequest<'m> {
    /// The messages.
    pub messages: &'m [Message],
    /// The tools that the answer may call.
    pub tools: Tools,
    /// Whether the prompt ends with the start of the answer. Otherwise the model writes that as
    /// well.
    pub opens: bool,
    /// The start of the answer, for the model to continue.
    pub begun: Option<&'m str>,
    /// Whether the model may reason before it answers.
    pub thinks: bool,
    /// Whether the parser separates reasoning from the answer.
    pub separates: bool,
    /// Maximum tokens of reasoning.
    pub reasoning_max: Option<usize>,
}

impl<'m> ChatRequest<'m> {
    /// Returns the request for an answer without tools, which may reason.
    pub fn new(messages: &'m [Message]) -> Self {
        ChatRequest {
            messages,
            tools: Tools::default(),
            opens: true,
            begun: None,
            thinks: true,
            separates: true,
            reasoning_max: None,
        }
    }
}

/// A rendered conversation, ready to be answered.
#[derive(Clone, Debug)]
pub struct ChatAnswer {
    /// The text before the answer.
    pub text: String,
    /// The tools that the answer may call.
    pub tools: Tools,
    /// How the model writes reasoning and tool calls.
    format: Format,
    /// How the parser reads them.
    read: Format,
    reasoning_max: Option<usize>,
}

/// The origin of a grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The tools of the request, and its schema if it has one.
    Tools,
    /// The request.
    Request,
}

/// An error for an answer that cannot be limited as requested.
#[derive(Debug, Error)]
pub enum Error<E> {
    /// The request's grammar is not a schema, so it excludes calls.
    #[error("a grammar and tools exclude each other: remove one of them")]
    GrammarAndTools,
    /// The schema is invalid.
    #[error(transparent)]
    Schema(crate::constraint::Error),
    /// The model has no tokens for the end of its reasoning.
    #[error(
        "the model has no tokens for {end:?}, which ends its reasoning: remove the limit of reasoning"
    )]
    NoEnd {
        /// The text that ends reasoning.
        end: &'static str,
    },
    /// A grammar could not be compiled.
    #[error("{0}")]
    Compile(E),
}

impl ChatAnswer {
    /// Renders a conversation.
    ///
    /// # Errors
    /// If the template fails, or refuses the conversation.
    pub fn new(template: &Template, request: ChatRequest<'_>) -> Result<Self, chat::Error> {
        let ChatRequest { messages, tools, begun, thinks, separates, reasoning_max, .. } = request;
        let opens = request.opens || begun.is_some();
        let mut text = template.render(messages, tools.all(), opens)?;
        let format = template.format();
        if !thinks && opens {
            text = format.skip_reasoning(text);
        }
        text += begun.unwrap_or_default();
        let read = if separates { format.clone() } else { format.clone().without_reasoning() };
        Ok(ChatAnswer { text, tools, format, read, reasoning_max })
    }

    /// Returns a parser for the answer.
    pub fn parser(&self) -> Parser {
        self.read.parser(&self.text, &self.tools)
    }

    /// Adds the conversation's requirements to the limits of the answer: a grammar of its tool
    /// calls or the request's `grammar`, a limit on reasoning, and the tokens that mark parts of
    /// the answer. `compile` compiles a grammar.
    ///
    /// # Errors
    /// If the grammar is invalid or excludes the tools, or the model cannot end its reasoning.
    pub fn limit<E>(
        &self,
        limits: &mut Limits,
        tokenizer: &Tokenizer<'_>,
        grammar: Option<&Grammar>,
        compile: &mut dyn FnMut(Origin, &Grammar) -> Result<Constraint, E>,
    ) -> Result<(), Error<E>> {
        let token = |name: &str| tokenizer.special(name);
        limits.preserved = self.read.markers().filter_map(token).collect();
        let schema = grammar.and_then(Grammar::schema).transpose().map_err(Error::Schema)?;
        let of_tools = self.read.grammar(&self.text, &self.tools, schema.as_ref(), &token);
        if of_tools.is_some() && grammar.is_some() && schema.is_none() {
            return Err(Error::GrammarAndTools);
        }
        // The grammar of calls includes reasoning. Other grammars start after it.
        let is_free = of_tools.is_none() && grammar.is_some();
        let constraint = match (of_tools, grammar) {
            (Some(of_tools), _) => Some(compile(Origin::Tools, &Grammar::Lark(of_tools))),
            (None, Some(grammar)) => Some(compile(Origin::Request, grammar)),
            (None, None) => None,
        };
        limits.constraint = constraint.transpose().map_err(Error::Compile)?;
        if self.format.reasons() && (self.reasoning_max.is_some() || is_free) {
            let (format, max) = (self.format.clone(), self.reasoning_max);
            let limited = Reasoning::new(format, &self.text, &self.tools, max, is_free, tokenizer);
            let end = self.format.reasoning_end().unwrap_or_default();
            limits.reasoning = Some(limited.ok_or(Error::NoEnd { end })?);
        }
        Ok(())
    }

    /// Finds the first tool with a schema that cannot be compiled. Returns its index, and its name
    /// with the error. Returns `None` if all tools compile. It searches by halves, so it does not
    /// compile each tool.
    pub fn refused_tool(
        &self,
        tokenizer: &Tokenizer<'_>,
        refused: &mut dyn FnMut(&Grammar) -> Option<String>,
    ) -> Option<(usize, String)> {
        let token = |name: &str| tokenizer.special(name);
        let mut error = |tools: &[chat::Tool]| {
            let tools = Tools::new(tools.to_vec(), ToolChoice::Auto, false).ok()?;
            let grammar = self.read.grammar(&self.text, &tools, None, &token)?;
            refused(&Grammar::Lark(grammar))
        };
        let (mut index, mut rest) = (0, self.tools.all());
        while rest.len() > 1 {
            let (first, second) = rest.split_at(rest.len() / 2);
            rest = match error(first) {
                Some(_) => first,
                None => {
                    index += first.len();
                    second
                }
            };
        }
        let [tool] = rest else { return None };
        Some((index, format!("{:?}: {}", tool.name, error(rest)?)))
    }
}
