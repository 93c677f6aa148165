//! Conversations: what all chat interfaces share, from the typed request to the prompt.

use std::sync::Arc;

use rope_cpu::{
    Token,
    chat::{Message, Role, Tool, ToolCall, ToolChoice, Tools},
    chat_answer::{self, ChatAnswer},
};
use serde::{Deserializer, de::SeqAccess};
use serde_json::{Map, Value};
use tracing::info;

use super::{
    app::App,
    blocks::Reader,
    echoes::{self, Asked},
    error::ApiError,
    grammars::{self, Given},
    owner::Owner,
    parameters::{Limit, Parameters, Shared},
    read::{Failure, Read, Shape, elements, of_value},
    volatile,
};

/// The roles of messages.
pub const ROLES: [Role; 5] =
    [Role::System, Role::Developer, Role::User, Role::Assistant, Role::Tool];

/// Maximum tools of a request. Each is checked and compiled before the answer starts.
const TOOLS_MAX: usize = 1024;

crate::object! {
    /// The fields that all chat interfaces share.
    pub struct ChatFields {
        /// Whether the prompt ends with the beginning of an answer; true by default.
        add_generation_prompt: Option<bool>,
        /// Parameters of the chat template.
        chat_template_kwargs: Option<Map<String, Value>>,
        /// Whether the answer continues the last message, which must be one of the assistant.
        continue_final_message: Option<bool>,
        /// Whether an answer may have more than one call of a tool.
        parallel_tool_calls: Option<bool>,
        /// Maximum tokens of reasoning, or -1 for the server's limit.
        reasoning_budget_tokens: Option<Limit>,
        /// The effort of reasoning, a parameter of the chat template; `none` switches reasoning
        /// off.
        reasoning_effort: Option<String>,
        /// Whether reasoning is separated from the text; `none` leaves it there.
        reasoning_format: Option<ReasoningFormat>,
        /// Another name of `reasoning_budget_tokens`.
        thinking_budget_tokens: Option<Limit>,
        ..shared: Shared,
    }
}

/// Whether reasoning is separated from the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasoningFormat {
    is_separate: bool,
}

impl ReasoningFormat {
    fn of_name(name: &str) -> Option<Self> {
        match name {
            "none" => Some(ReasoningFormat { is_separate: false }),
            "auto" | "deepseek" | "deepseek-legacy" => Some(ReasoningFormat { is_separate: true }),
            _ => None,
        }
    }
}

impl Read for ReasoningFormat {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::read(deserializer)?;
        let expected = "none, auto or deepseek";
        let unknown = || Failure::wrong("", expected, &name.as_str().into()).into_error();
        Self::of_name(&name).ok_or_else(unknown)
    }
}

/// A conversation to answer. Each chat interface fills one from its own types.
#[derive(Clone, Debug, Default)]
pub struct ChatRequest {
    /// The messages.
    pub turns: Vec<Turn>,
    /// The tools that the client runs.
    pub tools: Vec<Tool>,
    /// Choice of the tools that the answer calls.
    pub choice: ToolChoice,
    /// Maximum tokens of the answer, if the request sets it.
    pub tokens_max: Option<Limit>,
    /// A grammar from a field of one interface only.
    pub format: Option<Given>,
    /// The fields that all interfaces share.
    pub fields: ChatFields,
}

/// A message, with its text still in parts.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The message without its text.
    pub message: Message,
    /// The text.
    pub content: Content,
}

/// The text of a message: a string, or the texts of a list of parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Whether the field is present, even as null.
    is_given: bool,
    /// The texts of the parts, in order.
    pub parts: Vec<String>,
}

/// A conversation as text, with what parses its answer.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// Its text, and what its answer must follow.
    pub answer: ChatAnswer,
    /// The conversation; `None` if the text has the start of the answer.
    pub asked: Option<Arc<Asked>>,
    /// The index and the text of the first line that has changed since the client's last request.
    pub changed: Option<(usize, String)>,
}

/// A request ready for the scheduler.
pub struct Request {
    /// The tokens before the answer.
    pub prompt: Vec<Token>,
    /// The parameters of the answer.
    pub parameters: Parameters,
    /// The conversation; `None` for a prompt without a chat template.
    rendered: Option<Arc<Rendered>>,
}

impl Rendered {
    /// Returns the tokens of the text.
    ///
    /// # Errors
    /// If the model has no tokenizer.
    pub fn tokens(&self, app: &App) -> Result<Vec<Token>, ApiError> {
        let tokenizer = app.tokenizer()?;
        let tokens = app.echoes.encode(Owner::current(), tokenizer, &self.answer.text);
        if let Some((index, line)) = &self.changed
            && let Some((before, _)) = self.answer.text.split_once(line.as_str())
        {
            let cost = tokens.len().saturating_sub(tokenizer.encode_chat(before).len());
            info!(
                target: "cache", line = index + 1, tokens = cost,
                text = app.options.logs_prompts.then_some(line),
                "a line of the first message has changed since the last request, and all tokens after it \
                 are processed again; --move-volatile moves such lines to the end"
            );
        }
        Ok(tokens)
    }
}

impl Request {
    /// Returns a request that continues a prompt without a chat template.
    pub fn of_prompt(prompt: Vec<Token>, parameters: Parameters) -> Self {
        Request { prompt, parameters, rendered: None }
    }

    /// Returns a reader for an answer.
    pub fn reader(&self) -> Reader {
        Reader::new(self.rendered.as_ref().map(|rendered| rendered.answer.parser()))
    }
}

impl ChatRequest {
    /// Returns the prompt and the parameters of the answer.
    ///
    /// # Errors
    /// If a value is out of range, or the conversation has no prompt: see [`render`](Self::render).
    pub fn prepare(self, app: &Arc<App>) -> Result<Request, ApiError> {
        let mut parameters = self.parameters(app)?;
        let given = self.given();
        let given = grammars::one(&given)?;
        let rendered = self.render(app)?;
        let prompt = match parameters.request.reuse {
            true => rendered.tokens(app)?,
            false => app.tokenizer()?.encode_chat(&rendered.answer.text),
        };
        grammars::limit(&mut parameters.request.limits, &rendered.answer, given, app)?;
        let rendered = (!app.options.listen.skip_chat_parsing).then(|| Arc::new(rendered));
        parameters.conversation = rendered.clone();
        Ok(Request { prompt, parameters, rendered })
    }

    /// Returns the parameters of the answer that do not depend on the conversation.
    ///
    /// # Errors
    /// If a value is out of range.
    pub fn parameters(&self, app: &App) -> Result<Parameters, ApiError> {
        Parameters::new(&self.fields.shared, self.tokens_max, app)
    }

    fn given(&self) -> Vec<Given> {
        let mut given = self.fields.shared.given();
        given.extend(self.format.clone());
        given
    }

    /// Returns the conversation as text, up to the start of the answer.
    ///
    /// # Errors
    /// If the tools are invalid or too many, or the chat template is missing, fails or refuses the
    /// conversation.
    pub fn render(self, app: &App) -> Result<Rendered, ApiError> {
        let begun = self.begun()?;
        let ChatRequest { mut turns, tools, choice, fields, .. } = self;
        if begun.is_some() {
            turns.pop();
        }
        let instructs = |turn: &Turn| matches!(turn.message.role, Role::System | Role::Developer);
        if let Some(text) = &app.options.requests.system_prompt
            && !turns.iter().any(instructs)
        {
            turns.insert(0, Turn::new(Role::System, text.clone()));
        }
        let mut messages: Vec<_> = turns.into_iter().map(Turn::into_message).collect();
        messages.iter_mut().for_each(echoes::space);
        if !app.options.requests.keep_volatile {
            volatile::remove(&mut messages);
        }
        let mut changed = app.changing.watch(&messages);
        if app.options.requests.move_volatile {
            app.changing.shift(&mut messages);
            changed = None;
        }
        if tools.len() > TOOLS_MAX {
            let expected = format!("a list of at most {TOOLS_MAX} tools, not {}", tools.len());
            return Err(ApiError::field("tools", expected));
        }
        let format = ReasoningFormat::of_name(&app.options.listen.reasoning_format);
        let separates = fields.reasoning_format.or(format).is_none_or(|format| format.is_separate);
        let reasoning_max = fields.reasoning_budget_tokens.or(fields.thinking_budget_tokens);
        let reasoning_max =
            reasoning_max.and_then(Limit::count).or(app.options.requests.reasoning_budget);
        let is_parallel = fields.parallel_tool_calls.unwrap_or(false);
        let tools = Tools::new(tools, choice, is_parallel).map_err(ApiError::invalid)?;
        let ends_open = begun.is_some() || fields.add_generation_prompt.unwrap_or(true);
        let arguments = fields.template_arguments();
        let reasons = arguments.get("enable_thinking") != Some(&Value::Bool(false));

        let template = app.template.as_ref().map_err(ApiError::unsupported)?;
        let template = template.clone().now().arguments(&Value::Object(arguments).to_string());
        let template = template.map_err(ApiError::invalid)?;
        let request = chat_answer::ChatRequest {
            messages: &messages,
            tools,
            opens: ends_open,
            begun: begun.as_deref(),
            thinks: app.options.requests.reasons() && reasons,
            separates,
            reasoning_max,
        };
        let answer = ChatAnswer::new(&template, request).map_err(ApiError::invalid)?;
        let asked = (begun.is_none() && ends_open).then(|| Arc::new(Asked { template, messages }));
        Ok(Rendered { answer, asked, changed })
    }

    /// Returns the text of a final assistant message, which the answer continues.
    fn begun(&self) -> Result<Option<String>, ApiError> {
        let wanted = self.fields.continue_final_message.unwrap_or(false);
        if wanted && self.fields.add_generation_prompt.unwrap_or(true) {
            return Err(ApiError::invalid(
                "\"continue_final_message\": \"add_generation_prompt\" must be false with it",
            ));
        }
        let is_answer = |turn: &Turn| turn.message.role == Role::Assistant;
        match &self.turns[..] {
            [.., before, last] if is_answer(before) && is_answer(last) => Err(ApiError::field(
                "messages",
                "a list with at most one message of the assistant at its end",
            )),
            [.., last] if is_answer(last) && !last.message.tool_calls.is_empty() => {
                Err(ApiError::field("messages", "a list in which the results of calls follow them"))
            }
            // As in llama-server. Parts of other messages are joined as lines.
            [.., last] if is_answer(last) => Ok(Some(last.content.parts.join("\n\n"))),
            _ if wanted => Err(ApiError::invalid(
                "\"continue_final_message\": the last message must be one of the assistant",
            )),
            _ => Ok(None),
        }
    }
}

impl ChatFields {
    /// Sets a parameter of the chat template, unless the request gives it.
    pub fn set_template_argument(&mut self, name: &str, value: impl Into<Value>) {
        let arguments = self.chat_template_kwargs.get_or_insert_default();
        arguments.entry(name).or_insert(value.into());
    }

    /// Returns the parameters of the chat template, with the effort of reasoning.
    fn template_arguments(self) -> Map<String, Value> {
        let mut arguments = self.chat_template_kwargs.unwrap_or_default();
        match self.reasoning_effort.as_deref() {
            None | Some("") => {}
            Some("none") => {
                arguments.insert("enable_thinking".into(), false.into());
            }
            Some(effort) => {
                arguments.entry("reasoning_effort").or_insert(effort.into());
            }
        }
        arguments
    }
}

impl Turn {
    /// Creates a message.
    pub fn new(role: Role, content: impl Into<Content>) -> Self {
        Turn { message: Message::new(role, ""), content: content.into() }
    }

    /// Checks that a message has what its role requires.
    ///
    /// # Errors
    /// If it has no text, or calls tools without being the assistant's.
    pub fn checked(self) -> Result<Self, Failure> {
        let Turn { message: Message { role, tool_calls, .. }, content } = &self;
        if !tool_calls.is_empty() && *role != Role::Assistant {
            let reason =
                format_args!("a message of role {role} has tool calls: only assistant may");
            return Err(Failure::of("", reason));
        }
        if tool_calls.is_empty() && !content.is_given {
            return Err(Failure::of("", format_args!("a message of role {role} has no content")));
        }
        Ok(self)
    }

    fn into_message(self) -> Message {
        Message { content: self.content.joined("\n"), ..self.message }
    }
}

impl Content {
    /// Returns the text with `separator` between parts.
    pub fn joined(self, separator: &str) -> String {
        match <[String; 1]>::try_from(self.parts) {
            Ok([text]) => text,
            Err(parts) => parts.join(separator),
        }
    }
}

impl Content {
    /// Reads the text of a field that was parsed as a JSON value.
    ///
    /// # Errors
    /// If it is neither a string nor a list of parts.
    pub fn of_value(place: &str, value: Option<Value>) -> Result<Self, Failure> {
        let content = value.map(|value| of_value(value).map_err(|e| e.within(place)));
        content.unwrap_or_else(|| Ok(Content::default()))
    }
}

impl From<Vec<String>> for Content {
    fn from(parts: Vec<String>) -> Self {
        Content { is_given: true, parts }
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        vec![text].into()
    }
}

impl Shape for Content {
    fn expected() -> String {
        "a string or a list of parts".into()
    }

    fn null() -> Option<Self> {
        Some(Vec::new().into())
    }

    fn text(text: String) -> Result<Self, String> {
        Ok(text.into())
    }

    fn list<'de, A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        let parts: Vec<Part> = elements(list)?;
        Ok(parts.into_iter().map(|Part(text)| text).collect::<Vec<_>>().into())
    }
}

/// The text of a part.
struct Part(String);

crate::object! {
    struct GivenPart {
        /// `text`, `input_text` or `output_text`.
        kind ["type"]: Option<String>,
        /// The text.
        text: Option<String>,
    }
}

impl Read for Part {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let GivenPart { kind, text } = GivenPart::read(deserializer)?;
        let text = match kind.as_deref() {
            Some("text" | "input_text" | "output_text") => {
                text.ok_or_else(|| Failure::missing("text", "a string"))
            }
            Some("image_url" | "input_image") => Err(Failure::no_media("image")),
            Some("input_audio") => Err(Failure::no_media("audio")),
            Some("video_url") => Err(Failure::no_media("video")),
            Some("file" | "input_file") => Err(Failure::no_media("file")),
            kind => Err(Failure::unless_one_of("type", "\"text\"", kind)),
        };
        text.map(Part).map_err(Failure::into_error)
    }
}

/// Returns the role of a message.
///
/// # Errors
/// If it is missing or not in `permitted`.
pub fn role(given: Option<&str>, permitted: &[Role]) -> Result<Role, Failure> {
    let found = permitted.iter().find(|role| Some(role.name()) == given);
    found.copied().ok_or_else(|| {
        let permitted: Vec<_> = permitted.iter().map(|role| role.name()).collect();
        let expected = format!("one of {}", permitted.join(", "));
        Failure::unless_one_of("role", expected, given)
    })
}

/// Returns a tool call.
///
/// # Errors
/// If the arguments are neither an object nor a text.
pub fn tool_call(id: String, name: String, arguments: Option<Value>) -> Result<ToolCall, Failure> {
    let expected = "a JSON object or its text";
    let arguments = match arguments {
        Some(Value::String(text)) => text,
        Some(Value::Object(object)) => Value::Object(object).to_string(),
        Some(other) => return Err(Failure::wrong("arguments", expected, &other)),
        None => return Err(Failure::missing("arguments", expected)),
    };
    Ok(ToolCall { id, name, arguments })
}
