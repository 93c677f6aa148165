//! Conversations: their text before the answer, and what parses the answer.

use std::sync::Mutex;

use pyo3::{prelude::*, sync::MutexExt};
use rope_cpu::{
    Token,
    chat::{self, Event, Message, Template, Tool, ToolChoice, Tools, call_id},
    chat_answer::{ChatAnswer, ChatRequest, Error},
    constraint::Grammar,
    generate::Limits,
    json,
};

use crate::{
    errors::{failed, invalid, of_model},
    loaded::Loaded,
    model::Model,
    request::constraint,
};

/// A conversation, ready for its answer.
#[pyclass(frozen, module = "rope_cpu._native")]
pub struct Conversation {
    /// The tokens of the text.
    #[pyo3(get)]
    pub tokens: Vec<Token>,
    answer: ChatAnswer,
}

/// Reads an answer as text, reasoning and calls.
#[pyclass(frozen, module = "rope_cpu._native")]
pub struct Parser(Mutex<Option<chat::Parser>>);

#[pymethods]
impl Model {
    /// Renders a conversation. Messages, tools and arguments are JSON.
    #[expect(
        clippy::too_many_arguments,
        reason = "arguments of one call, which the package checks"
    )]
    fn conversation(
        &self,
        messages: &str,
        tools: &str,
        tool_choice: &str,
        parallel_tool_calls: bool,
        template: Option<&str>,
        template_kwargs: &str,
        enable_thinking: bool,
        reasoning_budget: Option<usize>,
    ) -> PyResult<Conversation> {
        let loaded = self.loaded()?;
        let messages: Vec<Message> = json::parse(messages).map_err(in_argument("messages"))?;
        let tools: Vec<Tool> = json::parse(tools).map_err(in_argument("tools"))?;
        let choice = match tool_choice {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Required,
            name => ToolChoice::Named(name.into()),
        };
        let tools = Tools::new(tools, choice, parallel_tool_calls).map_err(invalid)?;
        let template = template_of(&loaded, template)?.now().arguments(template_kwargs);
        let template = template.map_err(invalid)?;
        let request = ChatRequest {
            tools,
            thinks: enable_thinking,
            reasoning_max: reasoning_budget,
            ..ChatRequest::new(&messages)
        };
        let answer = ChatAnswer::new(&template, request).map_err(invalid)?;
        let tokens = loaded.tokenizer()?.encode_chat(&answer.text);
        Ok(Conversation { tokens, answer })
    }
}

#[pymethods]
impl Conversation {
    /// The text before the answer.
    #[getter]
    fn text(&self) -> &str {
        &self.answer.text
    }

    /// Returns a parser for the answer.
    fn parser(&self) -> Parser {
        Parser(Mutex::new(Some(self.answer.parser())))
    }
}

impl Conversation {
    /// Adds to the limits of an answer what a conversation requires: a grammar of its calls, a
    /// limit on its reasoning, and the tokens that mark its parts.
    pub fn complete(
        &self,
        loaded: &Loaded,
        grammar: Option<Grammar>,
        limits: &mut Limits,
    ) -> PyResult<()> {
        let mut compile = |_, grammar: &Grammar| constraint(loaded, grammar);
        let tokenizer = loaded.tokenizer()?;
        let limited = self.answer.limit(limits, tokenizer, grammar.as_ref(), &mut compile);
        limited.map_err(|error| match error {
            Error::Compile(error) => error,
            Error::NoEnd { .. } => invalid(format_args!("reasoning_budget: {error}")),
            error => invalid(error),
        })
    }
}

/// A part of an answer: its kind, its text, and the identifier of a call.
type Part = (&'static str, String, String);

#[pymethods]
impl Parser {
    /// Adds text and returns the parts that are certain.
    fn push(&self, py: Python<'_>, piece: &str) -> PyResult<Vec<Part>> {
        let mut parser = self.0.lock_py_attached(py).map_err(failed)?;
        Ok(parser.as_mut().map(|parser| parts(parser.push(piece))).unwrap_or_default())
    }

    /// Ends the answer and returns its last parts.
    fn finish(&self, py: Python<'_>) -> PyResult<Vec<Part>> {
        let mut parser = self.0.lock_py_attached(py).map_err(failed)?;
        Ok(parser.take().map(|parser| parts(parser.finish())).unwrap_or_default())
    }
}

fn parts(events: Vec<Event>) -> Vec<Part> {
    let part = |event| match event {
        Event::Text(text) => ("text", text, String::new()),
        Event::Reasoning(text) => ("reasoning", text, String::new()),
        Event::Call { name, id, .. } => ("call", name, id.unwrap_or_else(new_id)),
        Event::Arguments(text) => ("arguments", text, String::new()),
        Event::CallEnd => ("end", String::new(), String::new()),
    };
    events.into_iter().map(part).collect()
}

fn new_id() -> String {
    call_id(getrandom::u64().unwrap_or_default())
}

fn template_of(loaded: &Loaded, given: Option<&str>) -> PyResult<Template> {
    let tokenizer = loaded.tokenizer()?;
    match given {
        // A text without tags is a name: as a template it would be the same for every message.
        Some(source) if source.contains('{') => chat::template(source, tokenizer),
        Some(name) => chat::builtin(name).and_then(|source| chat::template(source, tokenizer)),
        None => {
            let template = loaded.model.chat_template().map_err(of_model)?;
            let none = "the model has no chat template: give one as chat_template";
            return template.ok_or_else(|| invalid(none));
        }
    }
    .map_err(invalid)
}

fn in_argument<E: std::fmt::Display>(name: &str) -> impl FnOnce(E) -> PyErr {
    move |error| invalid(format_args!("{name}: {error}"))
}
