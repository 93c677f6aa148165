//! A call written as one JSON object: a name and arguments.

use serde_json::{Map, Value as Json};

use crate::{
    arguments::{Arguments, JsonObject, Nothing},
    cursor::{Cursor, Read, Stop},
    dialect::Block,
    grammar::FENCE,
    tools::Tool,
};

/// Parses a call up to its arguments, which have a key from `keys`. The name comes before them. The
/// keys `type` and `id` may come first as well.
pub(super) fn begin(cursor: &mut Cursor, keys: &[&str], tools: &[Tool]) -> Read<Block> {
    let (mut name, mut id) = (None, None);
    cursor.eat("{")?;
    loop {
        cursor.space();
        let key = cursor.string()?;
        cursor.space();
        cursor.eat(":")?;
        cursor.space();
        if keys.contains(&key.as_str()) {
            let name = name.ok_or(Stop::Other)?;
            return call(name, id, cursor.peek()?);
        }
        match key.as_str() {
            "name" => name = Some(known(cursor.string()?, tools)?),
            "id" => id = Some(cursor.string()?),
            "type" => _ = cursor.string()?,
            _ => return Err(Stop::Other),
        }
        cursor.space();
        match (cursor.peek()?, name.take()) {
            ('}', Some(name)) => return Ok(Block::Call { name, id, arguments: Box::new(Nothing) }),
            (_, taken) => name = taken,
        }
        cursor.eat(",")?;
    }
}

/// Parses an opening brace. Returns whether there are two: Qwen2.5-Coder's template shows calls as
/// `{{"name": ..., "arguments": ...}}`, and its model imitates that.
pub(super) fn doubled(cursor: &mut Cursor) -> Read<bool> {
    let mut ahead = cursor.clone();
    let doubled = ahead.maybe("{{")?;
    if doubled {
        cursor.eat("{")?;
    }
    Ok(doubled)
}

/// A call that is the whole answer, without markers: models sometimes forget them.
#[derive(Debug)]
pub(crate) struct WholeAnswer {
    pub name: String,
    pub id: Option<String>,
    /// A JSON object.
    pub arguments: String,
}

/// Parses a [`WholeAnswer`] from a growing text. Reads the arguments only once.
#[derive(Debug, Default)]
pub(crate) struct WholeAnswerReader(Option<Begun>);

/// A call, up to some position in its arguments.
#[derive(Debug)]
struct Begun {
    call: WholeAnswer,
    /// Whether it has a code fence.
    fenced: bool,
    /// Whether its braces are doubled.
    doubled: bool,
    /// The position, in bytes.
    read: usize,
    object: JsonObject,
    /// Whether the arguments end at the position.
    done: bool,
}

impl WholeAnswerReader {
    /// Parses an answer that is one JSON object with the name of a tool and `arguments`, with or
    /// without a code fence. Only white space may surround it. `text` must continue the previous
    /// text.
    pub fn read(&mut self, text: &str, complete: bool, tools: &[Tool]) -> Read<WholeAnswer> {
        let mut begun = match self.0.take() {
            Some(begun) => begun,
            None => Begun::read(text, complete, tools)?,
        };
        let end = begun.end(text, complete);
        if end == Err(Stop::More) {
            self.0 = Some(begun);
            return Err(Stop::More);
        }
        end.map(|()| begun.call)
    }
}

impl Begun {
    /// Parses up to the arguments.
    fn read(text: &str, complete: bool, tools: &[Tool]) -> Read<Self> {
        let mut cursor = Cursor::new(text, complete);
        cursor.space();
        let fenced = cursor.maybe(FENCE)?;
        if fenced {
            cursor.maybe("json")?;
            cursor.space();
        }
        let doubled = doubled(&mut cursor)?;
        let Block::Call { name, id, .. } = begin(&mut cursor, &["arguments"], tools)? else {
            return Err(Stop::Other);
        };
        if cursor.peek()? != '{' {
            return Err(Stop::Other);
        }
        Ok(Begun {
            call: WholeAnswer { name, id, arguments: String::new() },
            fenced,
            doubled,
            read: cursor.position(),
            object: JsonObject::default(),
            done: false,
        })
    }

    /// Parses new parts of the arguments, and the text after them.
    fn end(&mut self, text: &str, complete: bool) -> Read<()> {
        let arguments = &mut self.call.arguments;
        if !self.done {
            let new = self.object.read(&text[self.read..], complete, arguments);
            self.read += new.read;
            self.done = new.done;
        }
        if !self.done {
            return Err(if complete { Stop::Other } else { Stop::More });
        }
        let mut cursor = Cursor::new(&text[self.read..], complete);
        end(&mut cursor)?;
        cursor.space();
        if self.doubled {
            cursor.eat("}")?;
            cursor.space();
        }
        if self.fenced {
            cursor.eat(FENCE)?;
            cursor.space();
        }
        let is_object = || rope_cpu_json::parse::<Map<String, Json>>(arguments).is_ok();
        match complete {
            _ if !cursor.rest().is_empty() => Err(Stop::Other),
            false => Err(Stop::More),
            true if is_object() => Ok(()),
            true => Err(Stop::Other),
        }
    }
}

/// Returns a call whose arguments start with `first`.
pub(super) fn call(name: String, id: Option<String>, first: char) -> Read<Block> {
    let arguments: Box<dyn Arguments> = Box::new(JsonObject::default());
    if first == '{' { Ok(Block::Call { name, id, arguments }) } else { Err(Stop::Other) }
}

/// Returns the name if a tool with this name may be called.
pub(super) fn known(name: impl Into<String>, tools: &[Tool]) -> Read<String> {
    let name = name.into();
    if tools.iter().any(|tool| tool.name == name) { Ok(name) } else { Err(Stop::Other) }
}

/// Parses the rest of the object after the arguments, for example an identifier.
pub(super) fn end(cursor: &mut Cursor) -> Read<()> {
    let mut ahead = cursor.clone();
    ahead.space();
    while ahead.maybe(",")? {
        ahead.space();
        ahead.string()?;
        ahead.space();
        ahead.eat(":")?;
        ahead.space();
        ahead.string()?;
        ahead.space();
    }
    ahead.eat("}")?;
    *cursor = ahead;
    Ok(())
}
