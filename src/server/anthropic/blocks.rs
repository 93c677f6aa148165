//! Messages of Anthropic's interface, made of blocks.

use rope_cpu::chat::{Message, Role, ToolCall};
use serde::{Deserializer, de::SeqAccess};
use serde_json::Value;
use tracing::warn;

use crate::server::{
    chat::{Turn, role},
    read::{Failure, Read, Shape, elements, of_value},
};

/// Roles of messages. Anthropic's API has no system messages: their text is in a field.
const ROLES: [Role; 3] = [Role::User, Role::Assistant, Role::System];

/// A string, or the texts of a list of text blocks.
#[derive(Clone, Debug, Default)]
pub struct Text {
    /// The joined text of all blocks.
    pub text: String,
    /// Whether a block has a `cache_control`.
    pub is_marked: bool,
}

impl Shape for Text {
    fn expected() -> String {
        "a string or a list of blocks of type \"text\"".into()
    }

    fn text(text: String) -> Result<Self, String> {
        Ok(Text { text, is_marked: false })
    }

    fn list<'de, A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        let blocks: Vec<TextBlock> = elements(list)?;
        let is_marked = blocks.iter().any(|TextBlock(block)| block.is_marked);
        Ok(Text { text: blocks.into_iter().map(|block| block.0.text).collect(), is_marked })
    }
}

crate::object! {
    struct TextBlockFields {
        /// Counts the tokens written to the cache.
        cache_control: Option<Value>,
        /// The text.
        text: Option<String>,
        /// `text`.
        kind ["type"]: Option<String>,
    }
}

struct TextBlock(Text);

impl Read for TextBlock {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let TextBlockFields { cache_control, text, kind } = TextBlockFields::read(deserializer)?;
        let text = match kind.as_deref() {
            Some("text") => text.ok_or_else(|| Failure::missing("text", "a string")),
            Some("image") => Err(Failure::no_media("image")),
            kind => Err(Failure::unless_one_of("type", "\"text\"", kind)),
        };
        let text = text.map_err(Failure::into_error)?;
        Ok(TextBlock(Text { text, is_marked: cache_control.is_some() }))
    }
}

/// A message, converted to one or more messages of the conversation.
#[derive(Clone, Debug)]
pub struct GivenMessage {
    /// The messages of the conversation.
    pub turns: Vec<Turn>,
    /// Whether a block has a `cache_control`.
    pub is_marked: bool,
}

crate::object! {
    struct MessageFields {
        /// A text or a list of blocks.
        content: Option<Blocks>,
        /// The author.
        role: Option<String>,
    }
}

impl Read for GivenMessage {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        MessageFields::read(deserializer)?.message().map_err(Failure::into_error)
    }
}

impl MessageFields {
    /// Tool results become separate messages. They answer earlier calls, so they come first.
    fn message(self) -> Result<GivenMessage, Failure> {
        let role = role(self.role.as_deref(), &ROLES)?;
        let content = self.content;
        let content = content.ok_or_else(|| Failure::missing("content", Blocks::expected()))?;
        let blocks = match content {
            Blocks::Text(text) => {
                return Ok(GivenMessage { turns: vec![Turn::new(role, text)], is_marked: false });
            }
            Blocks::List(blocks) => blocks,
        };
        let (mut parts, mut turns) = (Vec::new(), Vec::new());
        let mut rest = Message::new(role, "");
        let is_marked = blocks.iter().any(|block| block.is_marked);
        for GivenBlock { block, .. } in blocks {
            match block {
                Block::Text(text) => parts.push(text),
                Block::Thinking(text) => rest.reasoning += &text,
                Block::Call(call) => rest.tool_calls.push(call),
                Block::Result(tool_call_id, text) => {
                    let message = Message { tool_call_id, ..Message::new(Role::Tool, "") };
                    turns.push(Turn { message, content: text.into() });
                }
                Block::Skipped => {}
            }
        }
        let is_empty = parts.is_empty() && rest.tool_calls.is_empty() && rest.reasoning.is_empty();
        if !is_empty || turns.is_empty() {
            turns.push(Turn { message: rest, content: parts.into() }.checked()?);
        }
        Ok(GivenMessage { turns, is_marked })
    }
}

/// The content of a message.
#[derive(Clone, Debug)]
enum Blocks {
    Text(String),
    List(Vec<GivenBlock>),
}

impl Shape for Blocks {
    fn expected() -> String {
        "a string or a list of blocks".into()
    }

    fn text(text: String) -> Result<Self, String> {
        Ok(Blocks::Text(text))
    }

    fn list<'de, A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        elements(list).map(Blocks::List)
    }
}

#[derive(Clone, Debug)]
struct GivenBlock {
    block: Block,
    is_marked: bool,
}

#[derive(Clone, Debug)]
enum Block {
    Text(String),
    Thinking(String),
    Call(ToolCall),
    /// The result of the call with this identifier.
    Result(String, String),
    /// A block that the model cannot read.
    Skipped,
}

crate::object! {
    struct BlockFields {
        /// Counts the tokens written to the cache.
        cache_control: Option<Value>,
        /// The result of a tool.
        content: Option<Value>,
        /// The context of a document.
        context: Option<String>,
        /// The identifier of a call.
        id: Option<String>,
        /// The arguments of a call.
        input: Option<Value>,
        /// The name of the called tool.
        name: Option<String>,
        /// The text of a document.
        source: Option<Source>,
        /// The text.
        text: Option<String>,
        /// The reasoning.
        thinking: Option<String>,
        /// The title of a document.
        title: Option<String>,
        /// The call that this result answers.
        tool_use_id: Option<String>,
        /// The type.
        kind ["type"]: Option<String>,
    }
}

crate::object! {
    struct Source {
        /// A list of text blocks.
        content: Option<Value>,
        /// The text.
        data: Option<String>,
        /// `text` or `content`.
        kind ["type"]: Option<String>,
    }
}

impl Read for GivenBlock {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = BlockFields::read(deserializer)?;
        let is_marked = fields.cache_control.is_some();
        let block = fields.block().map_err(Failure::into_error)?;
        Ok(GivenBlock { block, is_marked })
    }
}

impl BlockFields {
    fn block(self) -> Result<Block, Failure> {
        let required = |name: &str, value: Option<String>| {
            value.ok_or_else(|| Failure::missing(name, "a string"))
        };
        match self.kind.as_deref().unwrap_or_default() {
            "text" => required("text", self.text).map(Block::Text),
            "document" => self.document().map(Block::Text),
            // Encrypted, so only Anthropic's models can read it.
            "redacted_thinking" => Ok(Block::Skipped),
            kind if of_server(kind) => {
                warn!(target: "tools", kind, "skipped: a block of a tool that does not run on the client");
                Ok(Block::Skipped)
            }
            "thinking" => Ok(Block::Thinking(self.thinking.unwrap_or_default())),
            "tool_use" => {
                let arguments = match self.input {
                    None => "{}".into(),
                    Some(Value::Object(input)) => Value::Object(input).to_string(),
                    Some(other) => return Err(Failure::wrong("input", "an object", &other)),
                };
                let (id, name) = (required("id", self.id)?, required("name", self.name)?);
                Ok(Block::Call(ToolCall { id, name, arguments }))
            }
            "tool_result" => {
                let id = required("tool_use_id", self.tool_use_id)?;
                Ok(Block::Result(id, text("content", self.content)?))
            }
            "image" => Err(Failure::no_media("image")),
            _ => {
                let expected =
                    "text, document, thinking, redacted_thinking, tool_use or tool_result";
                Err(Failure::unless_one_of("type", expected, self.kind.as_deref()))
            }
        }
    }

    /// Returns the text of a document, with its title.
    fn document(self) -> Result<String, Failure> {
        let source = self.source.ok_or_else(|| Failure::missing("source", "an object"))?;
        let content = match source.kind.as_deref() {
            Some("text") => {
                source.data.ok_or_else(|| Failure::missing("source.data", "a string"))?
            }
            Some("content") => {
                text("content", source.content).map_err(|failure| failure.within("source"))?
            }
            kind => {
                let expected = "text or content: the model reads only text";
                return Err(Failure::unless_one_of("source.type", expected, kind));
            }
        };
        let lines = [self.title, self.context].into_iter().flatten();
        let heads: String = lines.map(|line| line + "\n\n").collect();
        Ok(heads + &content + "\n\n")
    }
}

/// Returns the text of a string or of a list of text blocks in a field.
fn text(name: &str, value: Option<Value>) -> Result<String, Failure> {
    let text = value.map(|value| of_value::<Text>(value).map_err(|failure| failure.within(name)));
    Ok(text.transpose()?.unwrap_or_default().text)
}

/// Returns whether a block belongs to a tool that runs on Anthropic's servers.
fn of_server(kind: &str) -> bool {
    kind == "server_tool_use" || (kind.ends_with("_tool_result") && kind != "tool_result")
}
