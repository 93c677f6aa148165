//! Blocks of an answer: text, reasoning and tool calls, in order.

use rope_cpu::chat::{Event, Parser, call_id};

/// A run of text of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Whether the text is for the user, reasoning or a call.
    pub kind: Kind,
    /// The text so far. For a call, its arguments as JSON.
    pub text: String,
    /// Whether the answer ended before the block did. Text ends with the answer.
    pub is_open: bool,
}

impl Block {
    /// Creates a block without text.
    pub fn new(kind: Kind) -> Self {
        Block { kind, text: String::new(), is_open: false }
    }
}

/// The kind of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text for the user.
    Text,
    /// Reasoning before the text.
    Reasoning,
    /// A call of a tool.
    Call {
        /// The identifier that the result refers to.
        id: String,
        /// The name of the tool.
        name: String,
    },
}

/// A change to the blocks of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Index of the block.
    pub block: usize,
    /// The change.
    pub step: Step,
}

/// One change to a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Starts, without text.
    Begin,
    /// Receives more text.
    More(String),
    End,
}

/// Divides the text of an answer into blocks.
#[derive(Debug, Default)]
pub struct Reader {
    /// Parser of the model's format; `None` if the whole answer is text.
    parser: Option<Parser>,
    blocks: Vec<Block>,
    /// Whether the last block can be continued.
    open: bool,
}

impl Reader {
    /// Creates a reader. Without a parser, the whole answer is text.
    pub fn new(parser: Option<Parser>) -> Self {
        Reader { parser, blocks: Vec::new(), open: false }
    }

    /// Adds text. Returns the changes that later text cannot revise.
    pub fn push(&mut self, text: &str) -> Vec<Change> {
        let events = match &mut self.parser {
            Some(parser) => parser.push(text),
            None if text.is_empty() => Vec::new(),
            None => vec![Event::Text(text.into())],
        };
        self.follow(events)
    }

    /// Completes the answer. Returns the last changes.
    pub fn finish(&mut self) -> Vec<Change> {
        let events = self.parser.take().map(Parser::finish).unwrap_or_default();
        let mut changes = self.follow(events);
        if let Some(last) = self.blocks.last_mut() {
            last.is_open = self.open;
        }
        self.close(&mut changes);
        changes
    }

    /// Returns the blocks of a complete answer.
    pub fn read(mut self, text: &str) -> Vec<Block> {
        self.push(text);
        self.finish();
        self.blocks
    }

    /// Returns the blocks so far.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    fn follow(&mut self, events: Vec<Event>) -> Vec<Change> {
        let mut changes = Vec::new();
        for event in events {
            match event {
                Event::Text(text) => self.extend(Kind::Text, &text, &mut changes),
                Event::Reasoning(text) => self.extend(Kind::Reasoning, &text, &mut changes),
                Event::Call { name, id, .. } => {
                    let id = id.unwrap_or_else(|| call_id(getrandom::u64().unwrap_or_default()));
                    self.extend(Kind::Call { id, name }, "", &mut changes);
                }
                Event::Arguments(text) => match self.blocks.last().map(|last| last.kind.clone()) {
                    Some(kind) => self.extend(kind, &text, &mut changes),
                    None => self.extend(Kind::Text, &text, &mut changes),
                },
                Event::CallEnd => self.close(&mut changes),
            }
        }
        changes
    }

    /// Continues the last block if it has this kind, or else starts a new one.
    fn extend(&mut self, kind: Kind, text: &str, changes: &mut Vec<Change>) {
        if !self.open || self.blocks.last().is_none_or(|last| last.kind != kind) {
            self.close(changes);
            self.blocks.push(Block::new(kind));
            self.open = true;
            changes.push(Change { block: self.blocks.len() - 1, step: Step::Begin });
        }
        if let Some(last) = self.blocks.last_mut()
            && !text.is_empty()
        {
            last.text += text;
            changes.push(Change { block: self.blocks.len() - 1, step: Step::More(text.into()) });
        }
    }

    fn close(&mut self, changes: &mut Vec<Change>) {
        if std::mem::take(&mut self.open) {
            changes.push(Change { block: self.blocks.len() - 1, step: Step::End });
        }
    }
}

/// Returns the texts of all blocks of a kind, joined.
pub fn text(blocks: &[Block], kind: &Kind) -> String {
    blocks.iter().filter(|block| block.kind == *kind).map(|block| block.text.as_str()).collect()
}

/// Returns each call: its identifier, its name, and its block, which has the arguments.
pub fn calls(blocks: &[Block]) -> impl Iterator<Item = (&str, &str, &Block)> {
    blocks.iter().filter_map(|block| match &block.kind {
        Kind::Call { id, name } => Some((id.as_str(), name.as_str(), block)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use rope_cpu::chat::{Template, Tool, ToolChoice, Tools};

    use super::*;

    /// A stream delivers a call that is recognised only at the end of the answer.
    #[test]
    fn a_call_that_is_certain_at_the_end_is_a_block() {
        let template = include_str!("../../crates/chat/tests/data/tools/hermes.jinja");
        let format = Template::new(template, "", "").unwrap().format();
        let add =
            Tool { name: "add".into(), description: String::new(), parameters: Default::default() };
        let tools = Tools::new(vec![add], ToolChoice::Auto, false).unwrap();
        let mut reader = Reader::new(Some(format.parser("", &tools)));
        for piece in ["```json\n", "{\"name\": \"add\", ", "\"arguments\": {\"a\": 1}}", "\n```"] {
            assert_eq!(reader.push(piece), []);
        }
        let steps: Vec<_> = reader.finish().into_iter().map(|change| change.step).collect();
        assert_eq!(steps, [Step::Begin, Step::More("{\"a\": 1}".into()), Step::End]);
        let [(_, name, call)] = calls(reader.blocks()).collect::<Vec<_>>()[..] else {
            panic!("{:?}", reader.blocks());
        };
        assert_eq!((name, &call.text[..], call.is_open), ("add", "{\"a\": 1}", false));
    }
}
