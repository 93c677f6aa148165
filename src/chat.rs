//! Chat templates: a conversation as the text the model was trained on.
//!
//! A model file brings its template as Jinja source, written for Hugging Face's `transformers`;
//! it runs here with the same functions, filters and white-space rules. A template that fails is an
//! error. Another template is never put in its place: the model would read a form that it does not
//! know, and nobody would see why it answers badly.
//!
//! An answer is text, reasoning and calls of tools. How a model writes them is the template's
//! [`Format`]: its [`Parser`] reads an answer while it is generated, and its grammar makes calls valid.

mod capabilities;
mod engine;
mod format;
mod generation;
mod grammar;
mod message;
mod parser;
mod reasoning;
mod tools;
mod value;

use std::sync::OnceLock;

use jiff::Zoned;
use minijinja::{Value, context};
use serde_json::Value as Json;
use thiserror::Error;

use capabilities::Capabilities;
pub use format::Format;
use message::Shape;
pub use message::{Message, Role, ToolCall, call_id};
pub use parser::{Event, Parser};
pub use reasoning::Budget;
pub use tools::{Tool, ToolChoice, Tools};

use crate::gguf::{Metadata, MetadataError};
use crate::{json, tokenizer::Tokenizer};

const KEY: &str = "tokenizer.chat_template";

/// Templates by name, for models whose file has none.
const BUILTIN: &[(&str, &str)] = &[
    ("chatml", include_str!("chat/chatml.jinja")),
    ("llama3", include_str!("chat/llama3.jinja")),
    ("gemma", include_str!("chat/gemma.jinja")),
    ("command-r", include_str!("chat/command-r.jinja")),
];

/// Why there is no text.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum Error {
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error("{name:?} is not a chat template that comes with this program: {} are", names())]
    Name { name: String },
    #[error("the chat template is not valid: {reason}")]
    Syntax { reason: String },
    #[error("the chat template refuses this conversation: {message}")]
    Refused { message: String },
    #[error("the chat template fails: {reason}")]
    Render { reason: String },
    #[error("the arguments for the chat template are not a JSON object: {0}")]
    Arguments(serde_json::Error),
    #[error("the arguments of the call of {name} are not a JSON object: {reason}")]
    CallArguments { name: String, reason: serde_json::Error },
    #[error(
        "{name:?} is not a name for a tool: it has 1 to 128 letters (a to z), digits and `_-.:/`"
    )]
    ToolName { name: String },
    #[error("there are two tools with the name {name}, twice the same is not possible")]
    ToolTwice { name: String },
    #[error("a tool must be called, but there are no tools")]
    ToolsMissing,
    #[error("the tool {name:?} that must be called is not there: the tools are {known}")]
    ToolUnknown { name: String, known: String },
}

/// A template, ready to render conversations.
///
/// Rendering one more message extends the text of those before, in all but a few models, and the
/// time that a template may ask for is the time at which it was made: so the tokens of a
/// conversation begin with those of its earlier turns, and the caller computes only what is new.
#[derive(Clone, Debug)]
pub struct Template {
    source: String,
    bos: String,
    eos: String,
    arguments: Vec<(String, Value)>,
    /// The bytes of the arguments.
    arguments_bytes: usize,
    /// The time that templates may ask for: fixed, or midnight would change the beginning of a
    /// conversation.
    now: Zoned,
    /// Whether texts are lists of parts, found when it is first needed.
    parts: OnceLock<bool>,
    /// Found when they are first needed.
    capabilities: OnceLock<Capabilities>,
}

impl Template {
    /// Compiles a template. `bos` and `eos` are the texts of those tokens, empty for none.
    ///
    /// # Errors
    ///
    /// A source that is not valid, with its line.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, Error> {
        let source = generation::strip(source);
        engine::check(&source).map_err(|reason| Error::Syntax { reason })?;
        let (bos, eos) = (bos.into(), eos.into());
        let (arguments, arguments_bytes) = (Vec::new(), 0);
        let (now, parts, capabilities) = (Zoned::now(), OnceLock::new(), OnceLock::new());
        Ok(Self { source, bos, eos, arguments, arguments_bytes, now, parts, capabilities })
    }

    /// The template of a model file; `None` if it has none.
    ///
    /// # Errors
    ///
    /// A template that is not valid, or not text.
    pub fn from_metadata(
        metadata: &Metadata,
        tokenizer: &Tokenizer,
    ) -> Result<Option<Self>, Error> {
        let Some(source) = metadata.string(KEY)? else { return Ok(None) };
        Self::for_tokenizer(source, tokenizer).map(Some)
    }

    /// The template of this name, one of [`names`].
    ///
    /// # Errors
    ///
    /// A name that is not known.
    pub fn builtin(name: &str, tokenizer: &Tokenizer) -> Result<Self, Error> {
        let (_, source) = BUILTIN
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| Error::Name { name: name.into() })?;
        Self::for_tokenizer(source, tokenizer)
    }

    /// Compiles a template that may ask for the BOS and EOS texts of a tokenizer.
    ///
    /// # Errors
    ///
    /// A source that is not valid, with its line.
    pub fn for_tokenizer(source: &str, tokenizer: &Tokenizer) -> Result<Self, Error> {
        let text = |token: Option<_>| token.and_then(|t| tokenizer.text(t)).unwrap_or_default();
        Self::new(source, text(tokenizer.bos()), text(tokenizer.eos()))
    }

    /// Gives the template more to read than the conversation, from a JSON object: for example
    /// `{"enable_thinking": false}`. Later ones replace earlier ones of the same name.
    ///
    /// # Errors
    ///
    /// A text that is not a JSON object.
    pub fn arguments(mut self, object: &str) -> Result<Self, Error> {
        self.arguments_bytes += object.len();
        let object: serde_json::Map<String, serde_json::Value> =
            json::parse(object).map_err(Error::Arguments)?;
        self.arguments.extend(object.into_iter().map(|(k, v)| (k, value::from_json(&v))));
        Ok(self)
    }

    /// Sets the time that the template may ask for to the present, for a conversation that begins now.
    pub fn now(self) -> Self {
        Self { now: Zoned::now(), ..self }
    }

    /// The text of a conversation with `tools`; up to where the answer begins if
    /// `add_generation_prompt`.
    ///
    /// It may or may not begin with BOS: [`Tokenizer::encode_chat`] adds it once. Where the template does
    /// not describe tools, or writes calls in a way that is not known here, the system message describes
    /// them (or the first message, if the template does not read system messages), and calls and their results are texts of the conversation.
    ///
    /// # Errors
    ///
    /// A template that fails, or that refuses the conversation, as some do for system messages or
    /// roles that do not take turns; the message is the template's own. A call whose arguments are
    /// not a JSON object, if the template needs one.
    pub fn render(
        &self,
        messages: &[Message],
        tools: &[Tool],
        add_generation_prompt: bool,
    ) -> Result<String, Error> {
        // Only calls need the rest of the capabilities.
        let calls = !tools.is_empty() || messages.iter().any(|m| !m.tool_calls.is_empty());
        let capabilities = calls.then(|| self.capabilities());
        let described = capabilities.and_then(|c| c.dialect.describe(messages, tools, c.system));
        let shape = Shape {
            developer: self.source.contains("developer"),
            thinking: self.source.contains("message.thinking"),
            parts: self.parts(),
            objects: capabilities.is_some_and(|capabilities| capabilities.objects),
        };
        let (messages, tools) = match &described {
            Some(described) => (described.as_slice(), &[][..]),
            None => (messages, tools),
        };
        let bytes = messages.iter().map(Message::bytes).sum();
        let messages = messages.iter().map(|m| m.to_json(shape)).collect::<Result<_, _>>()?;
        // transformers passes `tools` even where there are none.
        let tools = match tools {
            [] => Json::Null,
            tools => tools.iter().map(Tool::to_json).collect(),
        };
        let rendered = self.render_json(&messages, &tools, bytes, add_generation_prompt);
        rendered.map_err(|failure| match failure.refused {
            true => Error::Refused { message: failure.reason },
            false => Error::Render { reason: failure.reason },
        })
    }

    /// Returns the format in which the model writes reasoning and calls.
    pub fn format(&self) -> Format {
        let dialect = self.capabilities().dialect;
        let own = dialect.reasoning().is_some();
        let markers = reasoning::Markers::of(&self.source).filter(|_| !own);
        Format { dialect, markers, reasons: true }
    }

    fn capabilities(&self) -> &Capabilities {
        self.capabilities.get_or_init(|| {
            Capabilities::new(self.parts(), |messages, tools| {
                self.render_json(messages, tools, 0, false)
            })
        })
    }

    fn parts(&self) -> bool {
        *self.parts.get_or_init(|| {
            capabilities::reads_parts_only(&self.source, |messages| {
                self.render_json(messages, &Json::Null, 0, false)
            })
        })
    }

    /// Renders messages, and tools that may be null. `bytes` are those of the messages' texts.
    fn render_json(
        &self,
        messages: &Json,
        tools: &Json,
        bytes: usize,
        add_generation_prompt: bool,
    ) -> Result<String, engine::Failure> {
        let count = messages.as_array().map_or(0, Vec::len);
        let tools_bytes = if tools.is_null() { 0 } else { tools.to_string().len() };
        let bytes = bytes + tools_bytes + self.arguments_bytes + self.bos.len() + self.eos.len();
        let given = context! {
            messages => value::from_json(messages),
            add_generation_prompt,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            tools => value::from_json(tools),
            documents => (),
            // As llama.cpp passes them: Llama 3 and others have a date of their time otherwise.
            date_string => self.now.strftime("%d %b %Y").to_string(),
            datetime => self.now.strftime("%b %d %Y").to_string(),
        };
        let arguments: std::collections::BTreeMap<_, _> =
            self.arguments.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let context = context! { ..Value::from(arguments), ..given };
        let given = engine::Given { context, messages: count, bytes };
        engine::render(&self.source, given, &self.now)
    }
}

/// The names of the templates that come with this program.
pub fn names() -> String {
    BUILTIN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
