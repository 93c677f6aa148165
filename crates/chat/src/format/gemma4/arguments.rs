//! Reads Gemma 4's arguments, with bare keys and marked texts, as JSON.

use serde_json::{Value as Json, json};

use crate::{
    arguments::{Arguments, Progress},
    cursor::{Cursor, Read},
};

/// The text around strings.
pub const QUOTE: &str = "<|\"|>";

/// Reads arguments with bare keys.
#[derive(Debug, Default)]
pub struct Bare {
    depth: usize,
    in_text: bool,
}

impl Bare {
    fn step(&mut self, cursor: &mut Cursor, object: &mut String) -> Read<bool> {
        if self.in_text {
            let rest = cursor.rest();
            let end = rest
                .char_indices()
                .find(|(at, _)| rest[*at..].starts_with(QUOTE) || QUOTE.starts_with(&rest[*at..]));
            let text = end.map_or(rest, |(at, _)| &rest[..at]);
            let quoted = json!(text).to_string();
            *object += &quoted[1..quoted.len() - 1];
            cursor.eat(text)?;
            if text.is_empty() {
                cursor.eat(QUOTE)?;
                *object += "\"";
                self.in_text = false;
            }
            return Ok(false);
        }
        cursor.space();
        match cursor.peek()? {
            sign @ ('{' | '[' | '}' | ']' | ',' | ':') => {
                match sign {
                    '{' | '[' => self.depth += 1,
                    '}' | ']' => self.depth = self.depth.saturating_sub(1),
                    _ => {}
                }
                let mut bytes = [0; 4];
                let sign = sign.encode_utf8(&mut bytes);
                cursor.eat(sign)?;
                *object += sign;
                Ok(self.depth == 0)
            }
            '<' => {
                cursor.eat(QUOTE)?;
                *object += "\"";
                self.in_text = true;
                Ok(false)
            }
            _ => {
                let word = cursor.word(|c| ":,{}[]<".contains(c))?.trim_end();
                cursor.space();
                let key = cursor.peek()? == ':';
                match key || rope_cpu_json::parse::<Json>(word).is_err() {
                    true => *object += &json!(word).to_string(),
                    false => *object += word,
                }
                Ok(false)
            }
        }
    }
}

impl Arguments for Bare {
    fn read(&mut self, text: &str, complete: bool, object: &mut String) -> Progress {
        Progress::of_steps(text, complete, |cursor| self.step(cursor, object))
    }
}
