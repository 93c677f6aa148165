//! LFM2: calls as in Python, `<|tool_call_start|>[f(a=1, b="text"), g()]<|tool_call_end|>`.

use super::{
    python::{self, Keywords},
    tags::Parameter,
};
use crate::{
    cursor::{Cursor, Read},
    dialect::{Block, Dialect, Place, named},
    error::Error,
    grammar::Lark,
    message::ToolCall,
    tools::{Tool, Tools},
};

const OPEN: &str = "<|tool_call_start|>";
const CLOSE: &str = "<|tool_call_end|>";

#[derive(Debug)]
pub struct Lfm2;

impl Dialect for Lfm2 {
    fn name(&self) -> &'static str {
        "lfm2"
    }

    fn openers(&self) -> Vec<&str> {
        vec![OPEN]
    }

    fn markers(&self) -> Vec<&str> {
        vec![OPEN, CLOSE]
    }

    /// Some templates describe tools but do not write calls.
    fn hints(&self) -> &'static [&'static str] {
        &["<|tool_list_start|>", "List of tools: ["]
    }

    fn write(&self, calls: &[ToolCall]) -> Result<String, Error> {
        let call = |call: &ToolCall| {
            let arguments = call.object()?;
            let arguments = arguments
                .iter()
                .map(|(name, value)| format!("{name}={}", python::from_json(value)));
            Ok(format!("{}({})", call.name, arguments.collect::<Vec<_>>().join(", ")))
        };
        let calls: Vec<_> = calls.iter().map(call).collect::<Result<_, Error>>()?;
        Ok(format!("{OPEN}[{}]{CLOSE}", calls.join(", ")))
    }

    fn begin(&self, cursor: &mut Cursor, place: Place, tools: &[Tool]) -> Read<Block> {
        if place != Place::Next {
            cursor.eat(OPEN)?;
            cursor.space();
            cursor.eat("[")?;
        }
        cursor.space();
        let tool = named(cursor, tools, |after| after.eat("("))?;
        let arguments = Box::new(Keywords::default());
        Ok(Block::Call { name: tool.name.clone(), id: None, arguments })
    }

    fn end(&self, cursor: &mut Cursor) -> Read<bool> {
        let mut ahead = cursor.clone();
        ahead.space();
        if ahead.maybe(",")? {
            *cursor = ahead;
            return Ok(true);
        }
        if ahead.maybe("]")? {
            *cursor = ahead.clone();
        }
        ahead.space();
        ahead.eat(CLOSE)?;
        *cursor = ahead;
        Ok(false)
    }

    fn grammar(&self, lark: &mut Lark, tools: &Tools) {
        let close = lark.marker(CLOSE);
        let calls: Vec<_> = tools.callable().map(|tool| call(lark, tool)).collect();
        lark.rule("call", &calls.join(" | "));
        let more = if tools.parallel() { "(\", \" call)*" } else { "" };
        lark.marked(OPEN, &format!("\"[\" call {more} \"]\" {close}"), tools);
    }
}

/// Writes a call: the required arguments in their order, then optional ones.
fn call(lark: &Lark, tool: &Tool) -> String {
    let argument = |parameter: &Parameter| {
        let mut value = lark.schema(&parameter.schema);
        let constants = [("boolean", "\"True\" | \"False\""), ("null", "\"None\"")];
        for (_, constants) in constants.iter().filter(|(kind, _)| parameter.has_type(kind)) {
            value += &format!(" | {constants}");
        }
        format!("{} ({value})", lark.literal(&format!("{}=", parameter.name)))
    };
    let (required, others): (Vec<_>, Vec<_>) =
        Parameter::of(tool).into_iter().partition(|parameter| parameter.required);
    let required: Vec<_> = required.iter().map(argument).collect();
    let others: Vec<_> = others.iter().map(argument).collect();
    let others = others.join(" | ");
    let arguments = match (required.join(" \", \" "), others.is_empty()) {
        (required, true) => required,
        (required, false) if required.is_empty() => {
            format!("(({others}) (\", \" ({others}))*)?")
        }
        (required, false) => format!("{required} (\", \" ({others}))*"),
    };
    format!("{} {arguments} \")\"", lark.literal(&format!("{}(", tool.name)))
}
