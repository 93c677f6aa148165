//! One message of a conversation, for chat templates.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::Error as _};
use serde_json::{Map, Value as Json, json};

use super::error::Error;

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions for the whole conversation.
    System,
    /// Instructions, under the name that newer models use. For templates without this role, it is
    /// `system`.
    Developer,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

impl Role {
    /// Returns the name that templates read.
    pub fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::Developer => "developer",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A message of a conversation. An empty text means none.
///
/// The serialized form is the one that templates and OpenAI's API share. `content` is a text, or a
/// list of text parts, which are joined by line breaks. The arguments of `tool_calls` are a JSON
/// object or its text. Keys that no template uses are skipped.
///
/// ```
/// use rope_cpu_chat::{Message, Role};
///
/// let message: Message = serde_json::from_str(r#"{"role": "user", "content": "Hello!"}"#)?;
/// assert_eq!(message, Message::new(Role::User, "Hello!"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Given")]
pub struct Message {
    /// The author.
    pub role: Role,
    /// The text.
    pub content: String,
    /// The reasoning before an answer.
    pub reasoning: String,
    /// The calls that an answer makes.
    pub tool_calls: Vec<ToolCall>,
    /// The identifier of the call that this message answers.
    pub tool_call_id: String,
    /// The name of the tool whose result this is.
    pub name: String,
}

/// A tool call by the model.
///
/// ```
/// use rope_cpu_chat::{Message, Role, ToolCall, call_id};
///
/// let (id, arguments) = (call_id(1), r#"{"city": "Oslo"}"#.to_string());
/// let call = ToolCall { id: id.clone(), name: "weather".into(), arguments };
/// let asks = Message { tool_calls: vec![call], ..Message::new(Role::Assistant, "") };
/// let result = Message { tool_call_id: id, ..Message::new(Role::Tool, "-3 degrees") };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// The identifier that the result refers to. Templates of Mistral models accept only nine
    /// letters and digits: see [`call_id`].
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments: a JSON object as text.
    pub arguments: String,
}

/// Returns an identifier of nine letters and digits, which every template accepts. Each number
/// below 62^9 has a different identifier.
///
/// ```
/// assert_eq!(rope_cpu_chat::call_id(61), "z00000000");
/// ```
pub fn call_id(mut number: u64) -> String {
    const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let digit = |_| {
        let digit = DIGITS[(number % 62) as usize];
        number /= 62;
        char::from(digit)
    };
    (0..9).map(digit).collect()
}

impl Message {
    /// Creates a message with only a text.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
            reasoning: String::new(),
            tool_calls: Vec::new(),
            tool_call_id: String::new(),
            name: String::new(),
        }
    }

    /// Returns the bytes of all texts.
    pub(super) fn bytes(&self) -> usize {
        let calls = self.tool_calls.iter();
        let calls = calls.map(|call| call.id.len() + call.name.len() + call.arguments.len());
        let texts = [&self.content, &self.reasoning, &self.tool_call_id, &self.name];
        self.role.name().len() + texts.map(String::len).iter().sum::<usize>() + calls.sum::<usize>()
    }

    /// Returns the message for a template with this `shape`.
    ///
    /// # Errors
    /// If the arguments of a call are not a JSON object, and the template needs one.
    pub(super) fn to_json(&self, shape: Shape) -> Result<Json, Error> {
        let role = match self.role {
            Role::Developer if !shape.developer => Role::System,
            role => role,
        };
        let mut message = Map::new();
        message.insert("role".into(), json!(role));
        message.insert("content".into(), content(&self.content, shape.parts));
        if shape.thinking && !self.reasoning.is_empty() {
            let mut thinking = self.reasoning.clone();
            // Templates refuse a call after both text and reasoning. They write either as
            // reasoning.
            if !self.tool_calls.is_empty() && !self.content.is_empty() {
                thinking += &format!("\n\n{}", self.content);
                message.insert("content".into(), content("", shape.parts));
            }
            message.insert("thinking".into(), json!(thinking));
        }
        if !self.reasoning.is_empty() {
            message.insert("reasoning_content".into(), json!(self.reasoning));
        }
        for (key, text) in [("tool_call_id", &self.tool_call_id), ("name", &self.name)] {
            if !text.is_empty() {
                message.insert(key.into(), json!(text));
            }
        }
        if !self.tool_calls.is_empty() {
            let calls = self.tool_calls.iter().map(|call| call.to_json(shape));
            message.insert("tool_calls".into(), calls.collect::<Result<_, _>>()?);
        }
        Ok(Json::Object(message))
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shape = Shape { developer: true, thinking: false, parts: false, objects: false };
        self.to_json(shape).map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// Returns the text of a message for templates, as a list of one part if `parts`.
pub(super) fn content(text: &str, parts: bool) -> Json {
    if parts { json!([{"type": "text", "text": text}]) } else { json!(text) }
}

/// The form of messages that a template needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Whether it knows the role `developer`.
    pub developer: bool,
    /// Whether it takes reasoning as `thinking`.
    pub thinking: bool,
    /// Whether it takes texts only as lists of parts.
    pub parts: bool,
    /// Whether it takes the arguments of calls as objects, not as text.
    pub objects: bool,
}

impl ToolCall {
    fn to_json(&self, shape: Shape) -> Result<Json, Error> {
        let arguments = match shape.objects {
            true => Json::Object(self.object()?),
            false => json!(self.arguments),
        };
        let mut call = Map::new();
        if !self.id.is_empty() {
            call.insert("id".into(), json!(self.id));
        }
        call.insert("type".into(), json!("function"));
        call.insert("function".into(), json!({"name": self.name, "arguments": arguments}));
        Ok(Json::Object(call))
    }

    /// Returns the arguments as an object, which is empty for an empty text.
    pub(super) fn object(&self) -> Result<Map<String, Json>, Error> {
        if self.arguments.trim().is_empty() {
            return Ok(Map::new());
        }
        rope_cpu_json::parse(&self.arguments)
            .map_err(|reason| Error::CallArguments { name: self.name.clone(), reason })
    }
}

/// A message in its serialized form.
#[derive(Deserialize)]
struct Given {
    role: Role,
    /// Null is an empty text.
    #[serde(default, deserialize_with = "given")]
    content: Option<Json>,
    reasoning_content: Option<String>,
    tool_calls: Option<Vec<GivenCall>>,
    tool_call_id: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct GivenCall {
    #[serde(default)]
    id: String,
    #[serde(rename = "type", default = "function")]
    kind: String,
    function: GivenFunction,
}

#[derive(Deserialize)]
struct GivenFunction {
    name: String,
    arguments: Json,
}

fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

fn function() -> String {
    "function".into()
}

impl TryFrom<Given> for Message {
    type Error = String;

    fn try_from(given: Given) -> Result<Self, String> {
        let role = given.role;
        let tool_calls = given.tool_calls.unwrap_or_default();
        if !tool_calls.is_empty() && role != Role::Assistant {
            return Err(format!("a message of role {role} has tool calls: only assistant may"));
        }
        let content = match given.content {
            Some(content) => text(content)?,
            None if !tool_calls.is_empty() => String::new(),
            None => return Err(format!("a message of role {role} has no content")),
        };
        let tool_calls =
            tool_calls.into_iter().map(ToolCall::try_from).collect::<Result<_, _>>()?;
        Ok(Self {
            role,
            content,
            reasoning: given.reasoning_content.unwrap_or_default(),
            tool_calls,
            tool_call_id: given.tool_call_id.unwrap_or_default(),
            name: given.name.unwrap_or_default(),
        })
    }
}

impl TryFrom<GivenCall> for ToolCall {
    type Error = String;

    fn try_from(given: GivenCall) -> Result<Self, String> {
        let GivenFunction { name, arguments } = given.function;
        if given.kind != "function" {
            return Err(format!(
                "the call of {name:?} has type {:?}: function is possible",
                given.kind
            ));
        }
        let arguments = match arguments {
            Json::String(text) => text,
            Json::Object(_) => arguments.to_string(),
            other => {
                return Err(format!(
                    "the arguments of the call of {name:?} are {other}: a JSON object is expected"
                ));
            }
        };
        Ok(Self { id: given.id, name, arguments })
    }
}

/// Returns the text of a message, with line breaks between parts.
fn text(content: Json) -> Result<String, String> {
    match content {
        Json::Null => Ok(String::new()),
        Json::String(text) => Ok(text),
        Json::Array(parts) => {
            let texts: Vec<_> = parts.into_iter().map(part).collect::<Result<_, _>>()?;
            Ok(texts.join("\n"))
        }
        other => Err(format!("the content {other} is neither a text nor a list of text parts")),
    }
}

fn part(part: Json) -> Result<String, String> {
    let text = |key| part.get(key).and_then(Json::as_str);
    match (text("type"), text("text")) {
        // The last two are from OpenAI's newer API.
        (Some("text" | "input_text" | "output_text"), Some(text)) => Ok(text.into()),
        (Some("text" | "input_text" | "output_text"), None) => {
            Err("a content part with a text has none".into())
        }
        (Some(other), _) => Err(format!("a content part has type {other:?}: text is possible")),
        (None, _) => Err("a content part has no type: text is possible".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Message, String> {
        rope_cpu_json::parse(text).map_err(|error| error.to_string())
    }

    #[test]
    fn parts_are_joined_by_line_breaks() {
        let parts = r#"[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]"#;
        let message = parse(&format!(r#"{{"role": "user", "content": {parts}}}"#)).unwrap();
        assert_eq!(message, Message::new(Role::User, "a\nb"));
        let message = parse(r#"{"role": "assistant", "content": null}"#).unwrap();
        assert_eq!(message, Message::new(Role::Assistant, ""));
    }

    #[test]
    fn arguments_are_an_object_or_its_text() {
        for arguments in [r#"{"a":1.50}"#, r#""{\"a\":1.50}""#] {
            let call = format!(
                r#"{{"id": "x", "type": "function", "function": {{"name": "f", "arguments": {arguments}}}}}"#
            );
            let message =
                format!(r#"{{"role": "assistant", "content": null, "tool_calls": [{call}]}}"#);
            let message = parse(&message).unwrap();
            assert_eq!(message.tool_calls.len(), 1);
            let call = &message.tool_calls[0];
            assert_eq!((call.id.as_str(), call.name.as_str()), ("x", "f"));
            assert_eq!(call.object().unwrap()["a"].as_f64(), Some(1.5));
        }
    }

    #[test]
    fn what_is_not_a_message_is_an_error_that_says_what_is_possible() {
        for (message, reason) in [
            (r#"{"role": "critic", "content": "a"}"#, "`system`, `developer`, `user`"),
            (r#"{"role": "user"}"#, "no content"),
            (r#"{"role": "assistant", "tool_calls": []}"#, "no content"),
            (r#"{"role": "user", "content": 1}"#, "neither a text nor a list"),
            (r#"{"role": "user", "content": [{"type": "image_url"}]}"#, "image_url"),
            (r#"{"role": "user", "content": ["a"]}"#, "no type"),
            (
                r#"{"role": "user", "content": "", "tool_calls":
                    [{"function": {"name": "f", "arguments": {}}}]}"#,
                "only assistant",
            ),
            (
                r#"{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]}"#,
                "JSON object",
            ),
            (
                r#"{"role": "assistant", "tool_calls":
                    [{"type": "x", "function": {"name": "f", "arguments": {}}}]}"#,
                "function is possible",
            ),
        ] {
            let error = parse(message).unwrap_err();
            assert!(error.contains(reason), "{message}: {error}");
        }
    }

    #[test]
    fn a_serialized_message_parses_to_the_same() {
        for text in [
            r#"{"role":"developer","content":"a"}"#,
            r#"{"role":"assistant","content":"","reasoning_content":"r","tool_calls":[{"id":"x","type":"function","function":{"name":"f","arguments":"{}"}}]}"#,
            r#"{"role":"tool","content":"1","tool_call_id":"x","name":"f"}"#,
        ] {
            assert_eq!(serde_json::to_string(&parse(text).unwrap()).unwrap(), text);
        }
    }

    #[test]
    fn identifiers_differ_and_have_nine_letters_or_digits() {
        assert_eq!(call_id(0), "000000000");
        assert_eq!(call_id(61), "z00000000");
        assert_eq!(call_id(u64::MAX).len(), 9);
        assert_ne!(call_id(62), call_id(1));
    }
}
