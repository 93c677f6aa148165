//! Reads the arguments of a call, piece by piece.

use std::fmt::Debug;

use super::cursor::{Cursor, Read, Stop};

/// Parses arguments, and writes them as a JSON object.
pub trait Arguments: Debug + Send {
    /// Parses the start of `text`, and appends its meaning to `object`. If `complete`, no more text
    /// follows.
    fn read(&mut self, text: &str, complete: bool, object: &mut String) -> Progress;
}

/// How far a text was parsed as arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The number of bytes read.
    pub read: usize,
    /// Whether the arguments end here.
    pub done: bool,
}

impl Progress {
    /// Parses whole steps until one is the last.
    pub fn of_steps(
        text: &str,
        complete: bool,
        mut step: impl FnMut(&mut Cursor) -> Read<bool>,
    ) -> Self {
        let mut cursor = Cursor::new(text, complete);
        loop {
            let mut ahead = cursor.clone();
            let done = match step(&mut ahead) {
                Ok(false) => {
                    cursor = ahead;
                    continue;
                }
                Ok(true) => {
                    cursor = ahead;
                    true
                }
                // Text that is not an argument ends the arguments, unless more text may continue
                // it.
                Err(stop) => stop == Stop::Other && !complete,
            };
            return Self { read: cursor.position(), done };
        }
    }
}

/// No arguments in the text: an empty object.
#[derive(Debug)]
pub struct Nothing;

impl Arguments for Nothing {
    fn read(&mut self, _: &str, _: bool, object: &mut String) -> Progress {
        *object += "{}";
        Progress { read: 0, done: true }
    }
}

/// A JSON object, passed on as written. Checks only braces and strings: a front end or a grammar
/// checks the rest.
#[derive(Debug, Default)]
pub struct JsonObject {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Arguments for JsonObject {
    fn read(&mut self, text: &str, _: bool, object: &mut String) -> Progress {
        for (at, byte) in text.bytes().enumerate() {
            if self.in_string {
                self.in_string = byte != b'"' || self.escaped;
                self.escaped = byte == b'\\' && !self.escaped;
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => continue,
            }
            if self.depth == 0 {
                *object += &text[..=at];
                return Progress { read: at + 1, done: true };
            }
        }
        *object += text;
        Progress { read: text.len(), done: false }
    }
}
