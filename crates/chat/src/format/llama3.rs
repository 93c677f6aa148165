//! Llama 3.1 and later: `{"name": "f", "parameters": {}}`, at the start of an answer or after
//! `<|python_tag|>`. `;` separates several calls.

use super::json_call;
use crate::{
    cursor::{Cursor, Read, Stop},
    dialect::{Block, Dialect, Place},
    grammar::Lark,
    tools::{Tool, Tools},
};

const TAG: &str = "<|python_tag|>";

#[derive(Debug)]
pub struct Llama3;

impl Dialect for Llama3 {
    fn name(&self) -> &'static str {
        "llama3"
    }

    fn openers(&self) -> Vec<&str> {
        vec!["{", TAG]
    }

    fn markers(&self) -> Vec<&str> {
        vec![TAG]
    }

    fn begin(&self, cursor: &mut Cursor, place: Place, tools: &[Tool]) -> Read<Block> {
        if cursor.maybe(TAG)? {
            cursor.space();
        } else if place == Place::Middle {
            return Err(Stop::Other);
        }
        json_call::begin(cursor, &["parameters"], tools)
    }

    fn end(&self, cursor: &mut Cursor) -> Read<bool> {
        json_call::end(cursor)?;
        let mut ahead = cursor.clone();
        ahead.space();
        if ahead.maybe(";")? {
            *cursor = ahead;
        }
        Ok(false)
    }

    fn grammar(&self, lark: &mut Lark, tools: &Tools) {
        let calls: Vec<_> =
            tools.callable().map(|tool| lark.json_call(&[], "parameters", tool)).collect();
        let separator = lark.spaced(&[";"]);
        lark.leading_calls(Some(TAG), &calls, &separator, tools);
    }
}
