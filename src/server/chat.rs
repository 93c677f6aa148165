//! Conversations and their prompts.

use std::sync::Arc;

use rope_cpu::{Token, chat::Message};
use serde_json::Value;

use super::{
    app::App,
    blocks::Reader,
    error::ApiError,
    fields::{Fields, TEMPLATE_ARGUMENTS},
    parameters::Parameters,
};

/// The names of the largest number of tokens of an answer.
const NAMES_OF_MAX: [&str; 3] = ["max_completion_tokens", "max_tokens", "n_predict"];

/// The roles of messages.
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// A conversation that is to be answered.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The messages.
    pub messages: Vec<Message>,
    /// The beginning of the answer, from a last message of the assistant.
    pub begun: Option<String>,
    /// Whether the text ends where an answer begins.
    pub generation_prompt: bool,
    /// Further parameters of the chat template, as a JSON object.
    pub template_arguments: Option<String>,
}

/// A request for an answer to a conversation.
pub struct Request {
    /// The tokens of the conversation, up to where the answer begins.
    pub prompt: Vec<Token>,
    /// The parameters of the answer.
    pub parameters: Parameters,
}

impl Request {
    /// Reads a request in OpenAI's form.
    ///
    /// # Errors
    /// If a field is of the wrong type or out of range, or the conversation has no prompt: see
    /// [`Conversation::render`].
    pub async fn read(fields: &Fields, app: &Arc<App>) -> Result<Self, ApiError> {
        let prompt = Conversation::read(fields)?.prompt(app.clone()).await?;
        Request::of_prompt(prompt, fields, app)
    }

    /// Returns a request to continue a prompt, without a chat template.
    ///
    /// # Errors
    /// If a field is of the wrong type or out of range.
    pub fn of_prompt(prompt: Vec<Token>, fields: &Fields, app: &App) -> Result<Self, ApiError> {
        Ok(Request { prompt, parameters: Parameters::read(fields, app, &NAMES_OF_MAX)? })
    }

    /// Returns a reader for an answer.
    pub fn reader(&self) -> Reader {
        Reader::default()
    }
}

impl Conversation {
    /// Reads the messages of a request in OpenAI's form.
    ///
    /// # Errors
    /// If there are none, or one of them is of another form.
    pub fn read(fields: &Fields) -> Result<Self, ApiError> {
        let messages = fields.list("messages")?;
        let messages = messages.ok_or_else(|| ApiError::field("messages", "a list"))?;
        let begun = begun(fields, messages)?;
        let finished = messages.len() - usize::from(begun.is_some());
        let messages: Result<Vec<_>, _> = messages[..finished].iter().map(message).collect();
        let template_arguments = fields.object(TEMPLATE_ARGUMENTS)?;
        Ok(Conversation {
            messages: messages?,
            generation_prompt: begun.is_some() || fields.switch("add_generation_prompt", true)?,
            begun,
            template_arguments: template_arguments.map(|a| Value::Object(a.clone()).to_string()),
        })
    }

    /// Returns the text of the conversation up to where the answer begins.
    ///
    /// # Errors
    /// If the model has no chat template, or it fails or refuses the conversation.
    pub async fn render(self, app: Arc<App>) -> Result<String, ApiError> {
        // A template may take a while: it must not block other requests.
        let rendered = tokio::task::spawn_blocking(move || {
            let template = app.template.as_ref().map_err(ApiError::unsupported)?;
            let rendered = match &self.template_arguments {
                None => template.render(&self.messages, self.generation_prompt),
                Some(arguments) => template
                    .clone()
                    .arguments(arguments)
                    .and_then(|template| template.render(&self.messages, self.generation_prompt)),
            };
            rendered
                .map(|text| text + self.begun.as_deref().unwrap_or_default())
                .map_err(ApiError::invalid)
        });
        rendered.await.map_err(ApiError::internal)?
    }

    /// Returns the tokens of the conversation up to where the answer begins.
    ///
    /// # Errors
    /// As for [`Conversation::render`].
    pub async fn prompt(self, app: Arc<App>) -> Result<Vec<Token>, ApiError> {
        let text = self.render(app.clone()).await?;
        Ok(app.tokenizer()?.encode_chat(&text))
    }
}

/// Returns the text of a last message of the assistant, which the answer continues.
fn begun(fields: &Fields, messages: &[Value]) -> Result<Option<String>, ApiError> {
    let wanted = fields.switch("continue_final_message", false)?;
    if wanted && fields.switch("add_generation_prompt", true)? {
        return Err(ApiError::invalid(
            "\"continue_final_message\": \"add_generation_prompt\" must be false with it",
        ));
    }
    let is_answer = |message: &&Value| message["role"] == "assistant";
    match messages {
        [.., before, last] if is_answer(&before) && is_answer(&last) => Err(ApiError::field(
            "messages",
            "a list with at most one message of the assistant at its end",
        )),
        [.., last] if is_answer(&last) => {
            // As llama-server has it; parts of other messages are lines.
            Ok(Some(content(&Fields::from_value("messages", last)?, "\n\n")?))
        }
        _ if wanted => Err(ApiError::invalid(
            "\"continue_final_message\": the last message must be one of the assistant",
        )),
        _ => Ok(None),
    }
}

fn message(value: &Value) -> Result<Message, ApiError> {
    let fields = Fields::from_value("messages", value)?;
    let role = fields.text("role")?.unwrap_or_default();
    if !ROLES.contains(&role) {
        return Err(ApiError::field(
            "role",
            format_args!("one of {}, not {role:?}", ROLES.join(", ")),
        ));
    }
    Ok(Message::new(role, content(&fields, "\n")?))
}

/// Returns the text of a message: a string, or the texts of a list of parts with `separator` between.
fn content(fields: &Fields, separator: &str) -> Result<String, ApiError> {
    match fields.get("content") {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let texts: Result<Vec<_>, _> = parts.iter().map(part).collect();
            Ok(texts?.join(separator))
        }
        Some(_) => Err(ApiError::field("content", "a string or a list of parts")),
    }
}

fn part(part: &Value) -> Result<&str, ApiError> {
    match part["type"].as_str() {
        Some("text" | "input_text" | "output_text") => part["text"]
            .as_str()
            .ok_or_else(|| ApiError::field("content", "a list of parts with a \"text\"")),
        Some("image_url" | "input_image") => Err(ApiError::no_images()),
        Some(kind) => Err(ApiError::invalid(format_args!(
            "\"content\": a part of type {kind:?} is not supported, only \"text\""
        ))),
        None => Err(ApiError::field("content", "a list of parts with a \"type\"")),
    }
}
