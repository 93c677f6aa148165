//! Conversations and their prompts.

use std::sync::Arc;

use rope_cpu::{
    Token,
    chat::{Format, Message, Parser, Role, Tool, ToolChoice, Tools},
    json::parse,
};
use serde_json::{Value, json};
use tracing::warn;

use super::{
    app::App,
    blocks::Reader,
    error::ApiError,
    fields::{Fields, TEMPLATE_ARGUMENTS, objects},
    grammars,
    openai::tools::{custom_arguments, custom_function},
    parameters::Parameters,
    reasoning::{self, Reasoning},
    volatile,
};

/// The names of the largest number of tokens of an answer.
const NAMES_OF_MAX: [&str; 3] = ["max_completion_tokens", "max_tokens", "n_predict"];

/// The roles of messages.
pub const ROLES: [Role; 5] =
    [Role::System, Role::Developer, Role::User, Role::Assistant, Role::Tool];

/// A conversation that is to be answered.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The messages.
    pub messages: Vec<Message>,
    /// The beginning of the answer, from a last message of the assistant.
    pub begun: Option<String>,
    /// Whether the text ends where an answer begins.
    pub generation_prompt: bool,
    /// The tools that the answer may call.
    pub tools: Tools,
    /// Whether the model may reason before it answers.
    pub reasons: bool,
    /// Further parameters of the chat template, as a JSON object.
    pub template_arguments: String,
}

/// The text of a conversation, with what reads the answer.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The text up to where the answer begins.
    pub text: String,
    /// The form in which the model writes reasoning and calls of tools.
    format: Format,
    tools: Tools,
}

/// A request for an answer to a conversation.
pub struct Request {
    /// The tokens of the conversation, up to where the answer begins.
    pub prompt: Vec<Token>,
    /// The parameters of the answer.
    pub parameters: Parameters,
    /// The conversation; `None` for a prompt without a chat template.
    rendered: Option<Rendered>,
}

impl Rendered {
    /// Returns the tokens of the text.
    ///
    /// # Errors
    /// If the model has no tokenizer.
    pub fn tokens(&self, app: &App) -> Result<Vec<Token>, ApiError> {
        Ok(app.tokenizer()?.encode_chat(&self.text))
    }

    /// Returns the form in which the model writes reasoning and calls of tools.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Returns a parser for the answer.
    pub fn parser(&self) -> Parser {
        self.format.parser(&self.text, &self.tools)
    }
}

impl Request {
    /// Reads a request in OpenAI's form.
    ///
    /// # Errors
    /// If a field is of the wrong type or out of range, or the conversation has no prompt: see
    /// [`Conversation::render`].
    pub async fn read(fields: &Fields, app: &Arc<App>) -> Result<Self, ApiError> {
        let mut rendered = Conversation::read(fields)?.render(app.clone()).await?;
        let with_reasoning = rendered.clone();
        match fields.text("reasoning_format")?.unwrap_or(&app.options.reasoning_format) {
            "none" => rendered.format = rendered.format.without_reasoning(),
            "auto" | "deepseek" | "deepseek-legacy" => {}
            _ => return Err(fields.error("reasoning_format", "none, auto or deepseek")),
        }
        let prompt = rendered.tokens(app)?;
        let mut request = Request::of_prompt(prompt, fields, app)?;
        let Rendered { text, format, tools } = &rendered;
        let limits = &mut request.parameters.limits;
        limits.preserved = grammars::markers(format, app)?;
        let of_tools = grammars::of_tools(format, text, tools, fields, app)?;
        let tokens_max = reasoning::tokens_max(fields, app.options.reasoning_max)?;
        // The grammar of calls includes reasoning; others are for what follows it.
        let is_free = of_tools.is_none() && limits.constraint.is_some();
        limits.constraint = of_tools.or(limits.constraint.take());
        if with_reasoning.format.reasons() && (tokens_max.is_some() || is_free) {
            let tokenizer = app.tokenizer()?;
            let reasoning = Reasoning::new(with_reasoning, tokens_max, is_free, tokenizer)?;
            request.parameters.reasoning = Some(reasoning);
        }
        Ok(Request { rendered: (!app.options.skips_parsing).then_some(rendered), ..request })
    }

    /// Returns a request to continue a prompt, without a chat template.
    ///
    /// # Errors
    /// If a field is of the wrong type or out of range.
    pub fn of_prompt(prompt: Vec<Token>, fields: &Fields, app: &App) -> Result<Self, ApiError> {
        let parameters = Parameters::read(fields, app, &NAMES_OF_MAX)?;
        Ok(Request { prompt, parameters, rendered: None })
    }

    /// Returns a reader for an answer.
    pub fn reader(&self) -> Reader {
        Reader::new(self.rendered.as_ref().map(Rendered::parser))
    }
}

/// Refuses a conversation without messages. Anthropic's interface permits one, as llama-server's does.
///
/// # Errors
/// If there is no message.
pub fn require_messages(fields: &Fields) -> Result<(), ApiError> {
    match fields.list("messages")? {
        Some([_, ..]) => Ok(()),
        _ => Err(fields.error("messages", "a list of at least one message")),
    }
}

impl Conversation {
    /// Reads the messages of a request in OpenAI's form.
    ///
    /// # Errors
    /// If there are none, or one of them is of another form.
    pub fn read(fields: &Fields) -> Result<Self, ApiError> {
        let messages = fields.objects("messages")?;
        let messages = messages.ok_or_else(|| fields.error("messages", "a list"))?;
        let begun = begun(fields, &messages)?;
        let finished = messages.len() - usize::from(begun.is_some());
        let messages: Result<Vec<_>, _> = messages[..finished].iter().map(message).collect();
        let mut arguments = fields.object(TEMPLATE_ARGUMENTS)?.cloned().unwrap_or_default();
        reasoning::add_effort(fields, &mut arguments)?;
        let reasons = arguments.get("enable_thinking") != Some(&Value::Bool(false));
        Ok(Conversation {
            messages: messages?,
            generation_prompt: begun.is_some() || fields.switch("add_generation_prompt", true)?,
            begun,
            tools: tools(fields)?,
            reasons,
            template_arguments: Value::Object(arguments).to_string(),
        })
    }

    /// Returns the text of the conversation up to where the answer begins.
    ///
    /// # Errors
    /// If the model has no chat template, or it fails or refuses the conversation.
    pub async fn render(mut self, app: Arc<App>) -> Result<Rendered, ApiError> {
        if !app.options.keeps_volatile {
            volatile::remove(&mut self.messages);
        }
        let template = app.template.as_ref().map_err(ApiError::unsupported)?;
        let template = template.clone().now().arguments(&self.template_arguments);
        let template = template.map_err(ApiError::invalid)?;
        let tools = self.tools.all();
        let text = template.render(&self.messages, tools, self.generation_prompt);
        let mut text = text.map_err(ApiError::invalid)?;
        if !(app.options.reasoning && self.reasons) && self.generation_prompt {
            text = template.format().skip_reasoning(text);
        }
        text += self.begun.as_deref().unwrap_or_default();
        Ok(Rendered { text, format: template.format(), tools: self.tools })
    }
}

/// Returns the text of a last message of the assistant, which the answer continues.
fn begun(fields: &Fields, messages: &[Fields]) -> Result<Option<String>, ApiError> {
    let wanted = fields.switch("continue_final_message", false)?;
    if wanted && fields.switch("add_generation_prompt", true)? {
        return Err(ApiError::invalid(
            "\"continue_final_message\": \"add_generation_prompt\" must be false with it",
        ));
    }
    let is_answer = |message: &&Fields| message.get("role").is_some_and(|it| it == "assistant");
    match messages {
        [.., before, last] if is_answer(&before) && is_answer(&last) => Err(ApiError::field(
            "messages",
            "a list with at most one message of the assistant at its end",
        )),
        [.., last] if is_answer(&last) => {
            // As llama-server has it; parts of other messages are lines.
            Ok(Some(content(last, "content", "\n\n")?))
        }
        _ if wanted => Err(ApiError::invalid(
            "\"continue_final_message\": the last message must be one of the assistant",
        )),
        _ => Ok(None),
    }
}

fn message(fields: &Fields) -> Result<Message, ApiError> {
    // The parts are checked here, for errors that name what is not supported.
    role(fields, &ROLES)?;
    content(fields, "content", "")?;
    for name in ["reasoning_content", "tool_call_id", "name"] {
        fields.text(name)?;
    }
    let mut calls = Vec::new();
    for call in fields.objects("tool_calls")?.unwrap_or_default() {
        call.text("id")?;
        if let Some(custom) = call.within("custom")? {
            let (name, input) = (custom.required_text("name")?, custom.required_text("input")?);
            let function = json!({ "name": name, "arguments": custom_arguments(input) });
            calls.push(json!({ "id": call.get("id"), "type": "function", "function": function }));
            continue;
        }
        let function = call.within("function")?;
        function.ok_or_else(|| call.error("function", "an object"))?.required_text("name")?;
        calls.push(json!(call));
    }
    let mut message = json!(fields);
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    parse(&message.to_string()).map_err(|e| fields.invalid(e))
}

/// Returns the role of a message.
///
/// # Errors
/// If it is missing, or none of `permitted`.
pub fn role<'f>(message: &'f Fields, permitted: &[Role]) -> Result<&'f str, ApiError> {
    let role = message.text("role")?;
    let role = role.filter(|role| permitted.iter().any(|permitted| permitted.name() == *role));
    role.ok_or_else(|| {
        let permitted: Vec<_> = permitted.iter().map(|role| role.name()).collect();
        message.error("role", format_args!("one of {}", permitted.join(", ")))
    })
}

/// Returns the tools of a request in OpenAI's form, and their choice.
fn tools(fields: &Fields) -> Result<Tools, ApiError> {
    let given = fields.objects("tools")?.unwrap_or_default();
    let mut all = Vec::new();
    for given in &given {
        all.extend(tool(given)?);
    }
    let choice = match fields.get("tool_choice") {
        None => ToolChoice::Auto,
        Some(Value::String(choice)) if choice == "auto" => ToolChoice::Auto,
        Some(Value::String(choice)) if choice == "none" => ToolChoice::None,
        Some(Value::String(choice)) if choice == "required" => ToolChoice::Required,
        Some(choice) => tool_choice(choice).ok_or_else(|| {
            fields.error(
                "tool_choice",
                "auto, none, required, or an object that names a function, a custom tool or allowed tools",
            )
        })?,
    };
    let parallel = fields.switch("parallel_tool_calls", false)?;
    Tools::new(all, choice, parallel).map_err(ApiError::invalid)
}

/// Returns the choice of one tool, or of several: `{"type": "allowed_tools", ...}`.
fn tool_choice(choice: &Value) -> Option<ToolChoice> {
    let name = |tool: &Value| {
        let name = tool["function"]["name"].as_str().or_else(|| tool["custom"]["name"].as_str());
        name.map(str::to_string)
    };
    let Some(allowed) = choice.get("allowed_tools") else {
        return name(choice).map(ToolChoice::Named);
    };
    let names = allowed["tools"].as_array()?.iter().map(name).collect::<Option<_>>()?;
    let required = match allowed["mode"].as_str()? {
        "auto" => false,
        "required" => true,
        _ => return None,
    };
    Some(ToolChoice::Among { names, required })
}

/// Returns a tool; `None` if it does not run on the client.
fn tool(given: &Fields) -> Result<Option<Tool>, ApiError> {
    let function = match given.text("type")? {
        Some("function") => given.within("function")?,
        Some("custom") => Fields::of_value(given.place("custom"), &custom_function(given)?)?.into(),
        Some(kind) => {
            warn!(target: "tools", kind, "skipped: it does not run on the client");
            return Ok(None);
        }
        None => return Err(given.error("type", "function or custom")),
    };
    function_tool(&function.ok_or_else(|| given.error("function", "an object"))?).map(Some)
}

/// Returns a tool from the fields of its function.
///
/// # Errors
/// If it has no name, or a field is of the wrong type.
pub fn function_tool(function: &Fields) -> Result<Tool, ApiError> {
    Ok(Tool {
        name: function.required_text("name")?.into(),
        description: function.text("description")?.unwrap_or_default().into(),
        parameters: function.object("parameters")?.cloned().unwrap_or_default(),
    })
}

/// Returns the text in a field of a message: a string, or the texts of a list of parts with `separator`
/// between.
///
/// # Errors
/// If the field is neither, or a part is of a type that is not supported.
pub fn content(fields: &Fields, name: &str, separator: &str) -> Result<String, ApiError> {
    match fields.get(name) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let parts = objects(&fields.place(name), parts)?;
            let texts: Vec<_> = parts.iter().map(part).collect::<Result<_, _>>()?;
            Ok(texts.join(separator))
        }
        Some(_) => Err(fields.error(name, "a string or a list of parts")),
    }
}

fn part(part: &Fields) -> Result<&str, ApiError> {
    match part.text("type")? {
        Some("text" | "input_text" | "output_text") => part.required_text("text"),
        Some("image_url" | "input_image") => Err(ApiError::no_media("image")),
        Some("input_audio") => Err(ApiError::no_media("audio")),
        _ => Err(part.error("type", "\"text\"")),
    }
}
