//! Mistral: `[TOOL_CALLS][{"name": "f", "arguments": {}}]`, and since 2025 `[TOOL_CALLS]f[ARGS]{}`,
//! with `[CALL_ID]` and an identifier before the arguments in some models.

use super::json_call;
use crate::{
    cursor::{Cursor, Read},
    dialect::{Block, Dialect, Place},
    grammar::Lark,
    tools::{Tool, Tools},
};

const MARKER: &str = "[TOOL_CALLS]";

#[derive(Debug)]
pub struct Mistral;

impl Dialect for Mistral {
    fn name(&self) -> &'static str {
        "mistral"
    }

    fn openers(&self) -> Vec<&str> {
        vec![MARKER]
    }

    fn markers(&self) -> Vec<&str> {
        vec![MARKER, "[ARGS]", "[CALL_ID]"]
    }

    fn begin(&self, cursor: &mut Cursor, place: Place, tools: &[Tool]) -> Read<Block> {
        if place != Place::Next {
            cursor.eat(MARKER)?;
        }
        cursor.space();
        if place == Place::Next || cursor.maybe("[")? {
            cursor.space();
            return json_call::begin(cursor, &["arguments"], tools);
        }
        let name = json_call::known(cursor.word(|c| "[{ \n".contains(c))?, tools)?;
        let id = match cursor.maybe("[CALL_ID]")? {
            true => Some(cursor.word(|c| !c.is_alphanumeric())?.to_owned()),
            false => None,
        };
        cursor.maybe("[ARGS]")?;
        cursor.space();
        json_call::call(name, id, cursor.peek()?)
    }

    fn end(&self, cursor: &mut Cursor) -> Read<bool> {
        // In a list, this is the end of an element. In the other form, nothing is here.
        json_call::end(cursor)?;
        let mut ahead = cursor.clone();
        ahead.space();
        let next = ahead.maybe(",")?;
        if !next {
            ahead.eat("]")?;
        }
        *cursor = ahead;
        Ok(next)
    }

    fn grammar(&self, lark: &mut Lark, tools: &Tools) {
        // The vocabulary shows which form a model writes.
        if lark.has("[ARGS]") {
            let calls = tools.callable().map(|tool| {
                let (name, args) = (lark.literal(&tool.name), lark.marker("[ARGS]"));
                format!("{name} {args} {}", lark.schema(&tool.parameters))
            });
            let calls: Vec<_> = calls.collect();
            return lark.marked_calls(MARKER, &calls, tools);
        }
        let calls: Vec<_> =
            tools.callable().map(|tool| lark.json_call(&[], "arguments", tool)).collect();
        lark.rule("call", &calls.join(" | "));
        let [open, comma, close] = ["[", ",", "]"].map(|sign| lark.spaced(&[sign]));
        let more = if tools.parallel() { format!("({comma} call)*") } else { String::new() };
        let list = format!("{open} call {more} {close}");
        lark.marked(MARKER, &list, tools);
    }
}
