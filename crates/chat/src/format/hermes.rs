//! Hermes, Qwen 2.5 and Qwen 3: `<tool_call>{"name": "f", "arguments": {}}</tool_call>`.

use super::json_call;
use crate::{
    cursor::{Cursor, Read},
    dialect::{Block, Dialect, Place},
    grammar::Lark,
    tools::{Tool, Tools},
};

#[derive(Debug)]
pub struct Hermes;

impl Dialect for Hermes {
    fn name(&self) -> &'static str {
        "hermes"
    }

    fn openers(&self) -> Vec<&str> {
        vec!["<tool_call>"]
    }

    fn markers(&self) -> Vec<&str> {
        vec!["<tool_call>", "</tool_call>"]
    }

    fn begin(&self, cursor: &mut Cursor, _: Place, tools: &[Tool]) -> Read<Block> {
        cursor.eat("<tool_call>")?;
        cursor.space();
        json_call::doubled(cursor)?;
        json_call::begin(cursor, &["arguments"], tools)
    }

    fn end(&self, cursor: &mut Cursor) -> Read<bool> {
        json_call::end(cursor)?;
        let mut ahead = cursor.clone();
        ahead.space();
        // The end of a doubled brace.
        ahead.maybe("}")?;
        ahead.space();
        ahead.eat("</tool_call>")?;
        *cursor = ahead;
        Ok(false)
    }

    fn grammar(&self, lark: &mut Lark, tools: &Tools) {
        let calls = tools.callable().map(|tool| {
            format!("{} {}", lark.json_call(&[], "arguments", tool), lark.spaced(&["</tool_call>"]))
        });
        let calls = calls.collect::<Vec<_>>();
        lark.marked_calls("<tool_call>", &calls, tools);
    }
}
