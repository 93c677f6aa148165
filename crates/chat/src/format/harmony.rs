//! gpt-oss, in OpenAI's harmony. An answer is messages in channels,
//! `<|channel|>analysis<|message|>..<|end|><|start|>assistant<|channel|>final<|message|>..`. A call
//! is a message to a function, `<|channel|>commentary to=functions.f
//! <|constrain|>json<|message|>{}<|call|>`.

use super::json_call;
use crate::{
    cursor::{Cursor, Read, Stop},
    dialect::{Block, Dialect, Place},
    grammar::Lark,
    reasoning::Markers,
    tools::{Tool, Tools},
};

const REASONING: Markers =
    Markers { start: "<|channel|>analysis<|message|>", end: "<|end|>", forced: "<|end|>" };

/// Maximum bytes of a message's header: the name of a tool and some words.
const HEADER_MAX: usize = 256;

#[derive(Debug)]
pub struct Harmony;

impl Dialect for Harmony {
    fn name(&self) -> &'static str {
        "harmony"
    }

    fn openers(&self) -> Vec<&str> {
        vec!["<|start|>", "<|channel|>", "<|end|>", "<|return|>", "<|call|>", " to="]
    }

    fn markers(&self) -> Vec<&str> {
        vec!["<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"]
    }

    fn begin(&self, cursor: &mut Cursor, place: Place, tools: &[Tool]) -> Read<Block> {
        for end in ["<|end|>", "<|return|>", "<|call|>"] {
            if cursor.maybe(end)? {
                return Ok(Block::Text);
            }
        }
        if cursor.maybe("<|start|>")? {
            // LLM-jp's models write a space first.
            cursor.space();
            cursor.eat("assistant")?;
        } else if place == Place::Middle && cursor.peek()? == ' ' {
            return Err(Stop::Other);
        }
        let longest = cursor.rest().char_indices().nth(HEADER_MAX + "<|message|>".len());
        let header = match cursor.until("<|message|>") {
            Ok(header) if header.len() <= HEADER_MAX => header,
            Err(Stop::More) if longest.is_none() => return Err(Stop::More),
            _ => return Err(Stop::Other),
        };
        let after = |key| Some(header.rsplit_once(key)?.1);
        let word = |text: &str| {
            text.trim_start()
                .split(|c: char| c.is_whitespace() || c == '<')
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        match after(" to=").map(word) {
            Some(recipient) if recipient != "assistant" => {
                let name = recipient.strip_prefix("functions.").ok_or(Stop::Other)?;
                let name = json_call::known(name, tools)?;
                cursor.space();
                json_call::call(name, None, cursor.peek()?)
            }
            _ => match after("<|channel|>").map(word).as_deref() {
                Some("analysis") => Ok(Block::Reasoning(REASONING)),
                Some("final" | "commentary") | None => Ok(Block::Text),
                Some(_) => Err(Stop::Other),
            },
        }
    }

    fn end(&self, cursor: &mut Cursor) -> Read<bool> {
        let mut ahead = cursor.clone();
        ahead.space();
        if ahead.maybe("<|call|>")? || ahead.maybe("<|end|>")? {
            *cursor = ahead;
        }
        Ok(false)
    }

    fn grammar(&self, lark: &mut Lark, tools: &Tools) {
        let text = lark.until("<|end|>");
        let [start, channel, constrain, message, end] =
            ["<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>"]
                .map(|m| lark.marker(m));
        let calls = tools.callable().map(|tool| {
            let to = lark.literal(&format!(" to=functions.{}", tool.name));
            let arguments = lark.schema(&tool.parameters);
            format!(
                "({channel} \"commentary\" {to} | {to} {channel} \"commentary\") \
                 (\" \"? {constrain}? \"json\")? {message} {arguments}"
            )
        });
        lark.rule("call", &calls.collect::<Vec<_>>().join(" | "));
        let next = format!("{start} \"assistant\"");
        let more = if tools.parallel() { format!(" ({end} {next} call)*") } else { String::new() };
        let last = match tools.required() {
            true => format!("call{more}"),
            false => {
                let text = lark.last_text();
                format!("(call{more} | {channel} \"final\" {message} {text})")
            }
        };
        let part = format!("{channel} (\"analysis\" | \"commentary\") {message} {text} {next}");
        lark.rule("part", &part);
        lark.rule("answer", &format!("part* {last}"));
    }

    fn reasoning(&self) -> Option<Markers> {
        Some(REASONING)
    }
}
