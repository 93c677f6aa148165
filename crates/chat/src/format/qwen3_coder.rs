//! Qwen3-Coder, Qwen 3.5, Nemotron 3: arguments in tags,
//! `<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>`.

use std::sync::Arc;

use super::{
    json_call,
    pattern::Pattern,
    tags::{Parameter, Tagged, Tags},
};
use crate::{
    cursor::{Cursor, Read, Stop},
    dialect::{Block, Dialect, Place},
    grammar::Lark,
    tools::{Tool, Tools},
};

#[derive(Debug)]
pub struct Qwen3Coder;

impl Dialect for Qwen3Coder {
    fn name(&self) -> &'static str {
        "qwen3-coder"
    }

    /// The model sometimes omits the first opener.
    fn openers(&self) -> Vec<&str> {
        vec!["<tool_call>", "<function="]
    }

    fn markers(&self) -> Vec<&str> {
        vec!["<tool_call>", "</tool_call>"]
    }

    fn begin(&self, cursor: &mut Cursor, _: Place, tools: &[Tool]) -> Read<Block> {
        if cursor.maybe("<tool_call>")? {
            cursor.space();
        }
        cursor.eat("<function=")?;
        let name = cursor.word(|c| c == '>' || c.is_whitespace())?;
        cursor.eat(">")?;
        let tool = tools.iter().find(|tool| tool.name == name).ok_or(Stop::Other)?;
        let name = json_call::known(name, tools)?;
        // The model sometimes omits the first of the two closing tags.
        let tags = Tags {
            name: Pattern::new("<parameter="),
            value: Pattern::new(">"),
            end: Pattern::new("</parameter>"),
            lines: true,
            ends: vec!["</function>".into(), "</tool_call>".into()],
        };
        let arguments = Box::new(Tagged::new(Arc::new(tags), tool));
        Ok(Block::Call { name, id: None, arguments })
    }

    fn end(&self, cursor: &mut Cursor) -> Read<bool> {
        let mut ahead = cursor.clone();
        if ahead.maybe("</function>")? {
            *cursor = ahead.clone();
        }
        ahead.space();
        ahead.eat("</tool_call>")?;
        *cursor = ahead;
        Ok(false)
    }

    fn grammar(&self, lark: &mut Lark, tools: &Tools) {
        let end = "\n</parameter>\n";
        lark.lazy("text_value", &format!("TEXT {}", lark.literal(end)));
        let close = lark.marker("</tool_call>");
        let calls = tools.callable().map(|tool| {
            let mut call = lark.literal(&format!("\n<function={}>\n", tool.name));
            for parameter in Parameter::of(tool) {
                let begin = lark.literal(&format!("<parameter={}>\n", parameter.name));
                let value = match parameter.is_json() {
                    true => format!("{} {}", lark.schema(&parameter.schema), lark.literal(end)),
                    false => "text_value".into(),
                };
                let sign = if parameter.required { "" } else { "?" };
                call += &format!(" ({begin} {value}){sign}");
            }
            format!("{call} \"</function>\\n\" {close}")
        });
        let calls = calls.collect::<Vec<_>>();
        lark.marked_calls("<tool_call>", &calls, tools);
    }
}
