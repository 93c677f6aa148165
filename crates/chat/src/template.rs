//! A template, its capabilities, and the prompts that it renders.

use std::sync::OnceLock;

use jiff::Zoned;
use minijinja::{Value, context};
use serde_json::Value as Json;

use super::{
    builtin::BUILTIN,
    capabilities::{self, Capabilities},
    dialect::Dialect,
    engine,
    error::Error,
    format::Format,
    generation,
    message::{Message, Shape},
    reasoning::Markers,
    tools::Tool,
    value,
};

/// A template, ready to render conversations.
///
/// In almost all templates, one more message only extends the text. The time that a template may
/// ask for is fixed when you compile it. So the tokens of a conversation start with the tokens of
/// its earlier turns, and you compute only the new ones.
///
/// ```
/// use rope_cpu_chat::{Message, Role, Template, builtin};
///
/// let template = Template::new(builtin("chatml")?, "", "<|im_end|>")?;
/// let prompt = template.render(&[Message::new(Role::User, "Hello!")], &[], true)?;
/// assert_eq!(prompt, "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n");
/// # Ok::<(), rope_cpu_chat::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Template {
    source: String,
    bos: String,
    eos: String,
    arguments: Vec<(String, Value)>,
    /// The bytes of the arguments.
    arguments_bytes: usize,
    /// The time that templates may ask for. If it were not fixed, midnight would change the start
    /// of a conversation.
    now: Zoned,
    /// Whether texts are lists of parts, found on first use.
    parts: OnceLock<bool>,
    /// The capabilities, found on first use.
    capabilities: OnceLock<Capabilities>,
}

impl Template {
    /// Compiles a template. `bos` and `eos` are the texts of those tokens, or empty.
    ///
    /// # Errors
    ///
    /// If the source is invalid. The error names the line.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, Error> {
        let source = generation::strip(source);
        engine::check(&source).map_err(|reason| Error::Syntax { reason })?;
        let (bos, eos) = (bos.into(), eos.into());
        let (arguments, arguments_bytes) = (Vec::new(), 0);
        let (now, parts, capabilities) = (Zoned::now(), OnceLock::new(), OnceLock::new());
        Ok(Self { source, bos, eos, arguments, arguments_bytes, now, parts, capabilities })
    }

    /// Adds variables for the template from a JSON object, for example `{"enable_thinking":
    /// false}`. Later values replace earlier values of the same name.
    ///
    /// # Errors
    ///
    /// If the text is not a JSON object.
    ///
    /// ```
    /// # use rope_cpu_chat::Template;
    /// let template = Template::new("{{ language }}", "", "")?;
    /// let template = template.arguments(r#"{"language": "English"}"#)?;
    /// assert_eq!(template.render(&[], &[], true)?, "English");
    /// # Ok::<(), rope_cpu_chat::Error>(())
    /// ```
    pub fn arguments(mut self, object: &str) -> Result<Self, Error> {
        self.arguments_bytes += object.len();
        let object: serde_json::Map<String, serde_json::Value> =
            rope_cpu_json::parse(object).map_err(Error::Arguments)?;
        self.arguments.extend(object.into_iter().map(|(k, v)| (k, value::from_json(&v))));
        Ok(self)
    }

    /// Sets the template's time to now. Call it when a conversation starts.
    pub fn now(self) -> Self {
        Self { now: Zoned::now(), ..self }
    }

    /// Renders a conversation with `tools`. With `add_generation_prompt`, the text ends where the
    /// answer starts.
    ///
    /// The text may start with BOS; the tokenizer adds it only once.
    ///
    /// If the template does not describe tools, or writes calls in an unknown format, the system
    /// message describes the tools. If the template does not use system messages, the first message
    /// does. Calls and results are then text in the conversation. If a template describes tools but
    /// does not write calls, the calls are written into the messages' text.
    ///
    /// # Errors
    ///
    /// If the template fails or refuses the conversation. Some templates refuse system messages, or
    /// roles that do not alternate; the error has their message. If the arguments of a call are not
    /// a JSON object, and the template needs one.
    pub fn render(
        &self,
        messages: &[Message],
        tools: &[Tool],
        add_generation_prompt: bool,
    ) -> Result<String, Error> {
        // Only calls need the other capabilities.
        let calls = !tools.is_empty() || messages.iter().any(|m| !m.tool_calls.is_empty());
        let capabilities = calls.then(|| self.capabilities());
        let described = capabilities.and_then(|c| c.dialect.describe(messages, tools, c.system));
        let shape = Shape {
            developer: self.source.contains("developer"),
            thinking: self.source.contains("message.thinking"),
            parts: self.parts(),
            objects: capabilities.is_some_and(|capabilities| capabilities.objects),
        };
        let skips_calls = capabilities.filter(|c| !c.calls && described.is_none());
        let written = skips_calls.map(|c| written(&*c.dialect, messages)).transpose()?;
        let (messages, tools) = match (&described, &written) {
            (Some(described), _) => (described.as_slice(), &[][..]),
            (None, Some(written)) => (written.as_slice(), tools),
            (None, None) => (messages, tools),
        };
        let bytes = messages.iter().map(Message::bytes).sum();
        let messages = messages.iter().map(|m| m.to_json(shape)).collect::<Result<_, _>>()?;
        // transformers passes `tools` even if there are none.
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

    /// Returns the format for reasoning and calls.
    pub fn format(&self) -> Format {
        let dialect = self.capabilities().dialect.clone();
        let own = dialect.reasoning().is_some();
        let markers = Markers::of(&self.source).filter(|_| !own);
        Format { dialect, markers, reasons: true }
    }

    fn capabilities(&self) -> &Capabilities {
        self.capabilities.get_or_init(|| {
            let end = Markers::of(&self.source).map(|markers| markers.end);
            Capabilities::new(self.parts(), end, |messages, tools, prompt| {
                self.render_json(messages, tools, 0, prompt)
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

    /// Renders messages. `tools` may be null. `bytes` counts the bytes of the messages.
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
            // Like llama.cpp: without it, Llama 3 and others use a date from their training.
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

/// Returns messages with their calls in the text, for a template that does not write calls.
fn written(dialect: &dyn Dialect, messages: &[Message]) -> Result<Vec<Message>, Error> {
    let written = |message: &Message| {
        let mut written = message.clone();
        if !message.tool_calls.is_empty() {
            written.content += &dialect.write(&message.tool_calls)?;
            written.tool_calls.clear();
        }
        Ok(written)
    };
    messages.iter().map(written).collect()
}

/// Returns the source of a built-in template: see [`names`](super::names).
///
/// # Errors
/// If no built-in template has the name.
///
/// ```
/// let error = rope_cpu_chat::builtin("nonsense").unwrap_err();
/// assert!(error.to_string().contains("chatml"));
/// assert!(rope_cpu_chat::builtin("chatml")?.contains("<|im_start|>"));
/// # Ok::<(), rope_cpu_chat::Error>(())
/// ```
pub fn builtin(name: &str) -> Result<&'static str, Error> {
    let found = BUILTIN.iter().find(|(known, _)| *known == name);
    found.map(|(_, source)| *source).ok_or_else(|| Error::Name { name: name.into() })
}
