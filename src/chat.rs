//! Chat templates: a conversation as the text the model was trained on.
//!
//! A model file brings its template as Jinja source, written for Hugging Face's `transformers`;
//! it runs here with the same functions, filters and white-space rules. A template that fails is an
//! error. Another template is never put in its place: the model would read a form that it does not
//! know, and nobody would see why it answers badly.

mod engine;
mod generation;
mod value;

use jiff::Zoned;
use minijinja::{Value, context};
use serde::{Deserialize, Serialize};
use thiserror::Error;

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
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user` or `assistant`.
    pub role: String,
    /// The text of the message.
    pub content: String,
}

impl Message {
    /// A message of any role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
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
        Ok(Self { source, bos, eos, arguments, arguments_bytes, now: Zoned::now() })
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

    /// The text of a conversation; up to where the answer begins if `add_generation_prompt`.
    ///
    /// It may or may not begin with BOS: [`Tokenizer::encode_chat`] adds it once.
    ///
    /// # Errors
    ///
    /// A template that fails, or that refuses the conversation, as some do for system messages or
    /// roles that do not take turns; the message is the template's own.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, Error> {
        let texts = messages.iter().map(|m| m.role.len() + m.content.len()).sum::<usize>();
        let bytes = texts + self.arguments_bytes + self.bos.len() + self.eos.len();
        let count = messages.len();
        let messages: Value = messages
            .iter()
            .map(|m| context! { role => m.role.as_str(), content => m.content.as_str() })
            .collect();
        // transformers passes `tools` and `documents` even where there are none.
        let given = context! {
            messages,
            add_generation_prompt,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
            tools => (),
            documents => (),
        };
        let arguments: std::collections::BTreeMap<_, _> =
            self.arguments.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let context = context! { ..Value::from(arguments), ..given };
        let given = engine::Given { context, messages: count, bytes };
        engine::render(&self.source, given, &self.now).map_err(|failure| match failure.refused {
            true => Error::Refused { message: failure.reason },
            false => Error::Render { reason: failure.reason },
        })
    }
}

/// The names of the templates that come with this program.
pub fn names() -> String {
    BUILTIN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
