//! Python literals, converted to and from JSON.

use serde_json::{Value as Json, json};

use crate::{
    arguments::{Arguments, Progress},
    cursor::{Cursor, Read, Stop},
};

/// Converts a literal to JSON; `None` if the text is not a literal.
pub fn to_json(text: &str) -> Option<String> {
    // A word ends only at another character.
    let text = format!("{text} ");
    let mut cursor = Cursor::new(&text, true);
    let (mut literal, mut json) = (Literal::default(), String::new());
    while !literal.step(&mut cursor, &mut json).ok()? {}
    cursor.rest().trim().is_empty().then_some(json)
}

/// Converts JSON to a literal.
pub fn from_json(json: &Json) -> String {
    let list = |items: Vec<String>| items.join(", ");
    match json {
        Json::Null => "None".into(),
        Json::Bool(true) => "True".into(),
        Json::Bool(false) => "False".into(),
        Json::Array(items) => format!("[{}]", list(items.iter().map(from_json).collect())),
        Json::Object(members) => {
            let members =
                members.iter().map(|(key, value)| format!("{}: {}", json!(key), from_json(value)));
            format!("{{{}}}", list(members.collect()))
        }
        Json::Number(_) | Json::String(_) => json.to_string(),
    }
}

/// Parses a literal.
#[derive(Debug, Default)]
struct Literal {
    /// The quotation mark of the string that the reader is in.
    quote: Option<&'static str>,
    /// The number of open brackets.
    depth: usize,
    /// Set after a comma. A trailing comma is allowed.
    comma: bool,
}

const QUOTES: [&str; 4] = ["\"\"\"", "'''", "\"", "'"];

impl Literal {
    /// Reads a part. Returns whether the literal ends there.
    fn step(&mut self, cursor: &mut Cursor, json: &mut String) -> Read<bool> {
        if let Some(quote) = self.quote {
            return self.text(quote, cursor, json);
        }
        cursor.space();
        let sign = cursor.peek()?;
        match sign {
            ',' | ':' | ']' | '}' | ')' if self.depth == 0 => return Err(Stop::Other),
            ']' | '}' | ')' => {
                (self.comma, self.depth) = (false, self.depth - 1);
                json.push(if sign == '}' { '}' } else { ']' });
            }
            ',' if self.comma => return Err(Stop::Other),
            ',' => self.comma = true,
            ':' => json.push(':'),
            _ => {
                let mut quote = None;
                for mark in QUOTES {
                    if quote.is_none() && cursor.maybe(mark)? {
                        quote = Some(mark);
                    }
                }
                let word = match sign {
                    '[' | '{' | '(' => "",
                    _ if quote.is_some() => "",
                    _ => cursor.word(|c| c.is_whitespace() || ",:()[]{}\"'".contains(c))?,
                };
                *json += if self.comma { "," } else { "" };
                self.comma = false;
                match sign {
                    '{' => json.push('{'),
                    '[' | '(' => json.push('['),
                    _ if quote.is_some() => json.push('"'),
                    _ => *json += &scalar(word),
                }
                self.quote = quote;
                if quote.is_some() {
                    return Ok(false);
                }
                if !word.is_empty() {
                    return Ok(self.depth == 0);
                }
                self.depth += 1;
            }
        }
        cursor.eat(sign.encode_utf8(&mut [0; 4]))?;
        Ok(self.depth == 0)
    }

    /// Reads a part of a text.
    fn text(&mut self, quote: &'static str, cursor: &mut Cursor, json: &mut String) -> Read<bool> {
        let mark = &quote[..1];
        let rest = cursor.rest();
        let plain = rest.find(['\\', mark.as_bytes()[0].into()]).map_or(rest, |at| &rest[..at]);
        let mut add = |text: &str| {
            let quoted = json!(text).to_string();
            *json += &quoted[1..quoted.len() - 1];
        };
        if !plain.is_empty() {
            add(plain);
            cursor.eat(plain)?;
            return Ok(false);
        }
        if cursor.maybe("\\")? {
            let sign = cursor.peek()?;
            cursor.eat(sign.encode_utf8(&mut [0; 4]))?;
            match sign {
                'n' => add("\n"),
                't' => add("\t"),
                'r' => add("\r"),
                'b' => add("\u{8}"),
                'f' => add("\u{c}"),
                '\n' => {}
                '\\' | '\'' | '"' | '/' => add(sign.encode_utf8(&mut [0; 4])),
                // JSON combines surrogates itself.
                'u' => *json += &format!("\\u{}", hex(cursor, 4)?),
                'x' => *json += &format!("\\u00{}", hex(cursor, 2)?),
                _ => add(&format!("\\{sign}")),
            }
            return Ok(false);
        }
        if !cursor.maybe(quote)? {
            cursor.eat(mark)?;
            add(mark);
            return Ok(false);
        }
        json.push('"');
        self.quote = None;
        Ok(self.depth == 0)
    }
}

/// Reads hexadecimal digits.
fn hex<'t>(cursor: &mut Cursor<'t>, len: usize) -> Read<&'t str> {
    let mut left = len;
    let digits = cursor.rest().find(|c: char| {
        let ends = left == 0 || !c.is_ascii_hexdigit();
        left = left.saturating_sub(1);
        ends
    });
    match digits {
        Some(found) if found == len => {
            let digits = &cursor.rest()[..len];
            cursor.eat(digits)?;
            Ok(digits)
        }
        Some(_) => Err(Stop::Other),
        None => Err(cursor.peek().map_or(Stop::More, |_| Stop::More)),
    }
}

/// Converts a word to JSON. It is a string, unless it is a number or a constant.
fn scalar(word: &str) -> String {
    match word {
        "True" => "true".into(),
        "False" => "false".into(),
        "None" => "null".into(),
        word if rope_cpu_json::parse::<Json>(word).is_ok() => word.into(),
        word => json!(word).to_string(),
    }
}

/// Parses the arguments of a call, `a=1, b='text')`.
#[derive(Debug, Default)]
pub struct Keywords {
    value: Option<Literal>,
    /// The number of arguments so far.
    count: usize,
}

impl Keywords {
    fn step(&mut self, cursor: &mut Cursor, object: &mut String) -> Read<bool> {
        if let Some(value) = &mut self.value {
            if value.step(cursor, object)? {
                self.value = None;
            }
            return Ok(false);
        }
        cursor.space();
        if self.count > 0 && cursor.maybe(",")? {
            cursor.space();
        }
        if cursor.maybe(")")? {
            *object += if self.count == 0 { "{}" } else { "}" };
            return Ok(true);
        }
        let key = cursor.word(|c| !(c.is_alphanumeric() || "_-.".contains(c)))?;
        cursor.space();
        cursor.eat("=")?;
        if key.is_empty() {
            return Err(Stop::Other);
        }
        *object += if self.count == 0 { "{" } else { ", " };
        *object += &format!("{}: ", json!(key));
        self.count += 1;
        self.value = Some(Literal::default());
        Ok(false)
    }
}

impl Arguments for Keywords {
    fn read(&mut self, text: &str, complete: bool, object: &mut String) -> Progress {
        Progress::of_steps(text, complete, |cursor| self.step(cursor, object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_become_json() {
        for (literal, expected) in [
            ("1", Some("1")),
            (" -1.5e3 ", Some("-1.5e3")),
            ("True", Some("true")),
            ("None", Some("null")),
            ("word", Some("\"word\"")),
            ("''", Some("\"\"")),
            (r#"'a "b" \'c\' \n \d \x41 \u00e9'"#, Some(r#""a \"b\" 'c' \n \\d \u0041 \u00e9""#)),
            ("\"\"\"a \"b\"\nc\"\"\"", Some(r#""a \"b\"\nc""#)),
            (
                "{'a': [1, 'x', (True, None,)], 'b': {}}",
                Some(r#"{"a":[1,"x",[true,null]],"b":{}}"#),
            ),
            ("[1, 2", None),
            ("1 2", None),
            ("'a", None),
            (",", None),
            ("'\\u12'", None),
        ] {
            assert_eq!(to_json(literal).as_deref(), expected, "{literal}");
        }
        let value = json!({"a": [1, null, true, "b\n\"'"], "c": {"d": 1.5}});
        let literal = from_json(&value);
        assert_eq!(literal, r#"{"a": [1, None, True, "b\n\"'"], "c": {"d": 1.5}}"#);
        let again: Json = rope_cpu_json::parse(&to_json(&literal).unwrap()).unwrap();
        assert_eq!(again, value);
    }
}
