//! Gemma 4: `<|tool_call>call:f{a:1,b:<|"|>text<|"|>}<tool_call|>`, and reasoning in
//! `<|channel>thought\n..<channel|>`. Gemma 3 has no tools.

mod arguments;

use super::json_call;
use crate::{
    cursor::{Cursor, Read, Stop},
    dialect::{Block, Dialect, Place},
    grammar::Lark,
    reasoning::Markers,
    tools::{Tool, Tools},
};
use arguments::{Bare, QUOTE};

const OPEN: &str = "<|tool_call>";
const CLOSE: &str = "<tool_call|>";

const REASONING: Markers =
    Markers { start: "<|channel>thought", end: "<channel|>", forced: "<channel|>" };

#[derive(Debug)]
pub struct Gemma4;

impl Dialect for Gemma4 {
    fn name(&self) -> &'static str {
        "gemma4"
    }

    fn openers(&self) -> Vec<&str> {
        vec![OPEN, "<|channel>"]
    }

    fn markers(&self) -> Vec<&str> {
        vec![OPEN, CLOSE, QUOTE, "<|channel>", "<channel|>"]
    }

    fn begin(&self, cursor: &mut Cursor, _: Place, tools: &[Tool]) -> Read<Block> {
        if cursor.maybe("<|channel>")? {
            cursor.eat("thought")?;
            return Ok(Block::Reasoning(REASONING));
        }
        cursor.eat(OPEN)?;
        cursor.eat("call:")?;
        let name = json_call::known(cursor.word(|c| c == '{' || c.is_whitespace())?, tools)?;
        match cursor.peek()? {
            '{' => Ok(Block::Call { name, id: None, arguments: Box::new(Bare::default()) }),
            _ => Err(Stop::Other),
        }
    }

    fn end(&self, cursor: &mut Cursor) -> Read<bool> {
        cursor.eat(CLOSE)?;
        Ok(false)
    }

    /// The grammar ensures the form of values, but not the schema: values are not JSON.
    fn grammar(&self, lark: &mut Lark, tools: &Tools) {
        lark.reasons(REASONING);
        let [quote, close] = [QUOTE, CLOSE].map(|marker| lark.marker(marker));
        let text = lark.until(QUOTE);
        lark.rule("text", &format!("{quote} {text}"));
        lark.rule("NUMBER", r"/-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?/");
        lark.rule("KEY", r#"/[^:{}\[\],<> \n"]+/"#);
        lark.rule("value", "text | object | list | NUMBER | \"true\" | \"false\" | \"null\"");
        lark.rule("object", "\"{\" (member (\",\" member)*)? \"}\"");
        lark.rule("list", "\"[\" (value (\",\" value)*)? \"]\"");
        lark.rule("member", "(KEY | text) \":\" value");
        let calls = tools.callable().map(|tool| {
            let name = lark.literal(&format!("call:{}", tool.name));
            format!("{name} object {close}")
        });
        let calls = calls.collect::<Vec<_>>();
        lark.marked_calls(OPEN, &calls, tools);
    }

    fn reasoning(&self) -> Option<Markers> {
        Some(REASONING)
    }
}
