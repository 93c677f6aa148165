//! Parses llama.cpp's GBNF: rules `name ::= ...` with texts, classes of characters, references to
//! rules and tokens, groups, alternatives and repetition. Comments start with `#`.

use std::collections::HashMap;

use super::rules::{Class, Node, NodeId, Reference, Rules};
use crate::error::{Error, Position};

/// Maximum nesting of groups.
const DEPTH_MAX: usize = 256;

/// Maximum number in a repetition.
const REPETITION_MAX: u32 = 1 << 20;

/// Returns the rules of a grammar.
///
/// # Errors
/// Returns an error with the position of the mistake.
pub fn parse(text: &str) -> Result<Rules, Error> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
        nodes: Vec::new(),
        names: HashMap::new(),
        rules: Vec::new(),
    };
    parser.space(true);
    while parser.peek().is_some() {
        parser.rule()?;
    }
    parser.finish()
}

struct Parser<'t> {
    text: &'t str,
    /// The position in bytes.
    at: usize,
    /// The number of groups around the position.
    depth: usize,
    nodes: Vec<Node>,
    names: HashMap<&'t str, usize>,
    rules: Vec<Rule>,
}

struct Rule {
    /// The position of the first occurrence of the name, in bytes.
    at: usize,
    body: Option<NodeId>,
}

impl<'t> Parser<'t> {
    fn finish(self) -> Result<Rules, Error> {
        let Some(&root) = self.names.get("root") else {
            return Err(self.error(self.text.len(), "there is no rule `root`"));
        };
        let bodies = self.rules.iter().map(|rule| {
            rule.body.ok_or_else(|| {
                let name = word(&self.text[rule.at..]);
                self.error(rule.at, format!("there is no rule `{name}`"))
            })
        });
        let bodies = bodies.collect::<Result<_, _>>()?;
        Ok(Rules { bodies, root, nodes: self.nodes })
    }

    fn rule(&mut self) -> Result<(), Error> {
        let start = self.at;
        let rule = self.name()?.ok_or_else(|| self.expected("the name of a rule"))?;
        self.space(false);
        if !self.rest().starts_with("::=") {
            return Err(self.expected("`::=` after the name of a rule"));
        }
        self.at += 3;
        self.space(true);
        let body = self.choice()?;
        if self.rules[rule].body.replace(body).is_some() {
            let name = word(&self.text[start..]);
            return Err(self.error(start, format!("the rule `{name}` is defined twice")));
        }
        match self.peek() {
            None => {}
            Some('\r' | '\n') => self.space(true),
            Some(_) => return Err(self.expected("the end of the line, or a part of the rule")),
        }
        Ok(())
    }

    /// Parses alternatives.
    fn choice(&mut self) -> Result<NodeId, Error> {
        let mut options = vec![self.sequence()?];
        while self.take('|') {
            self.space(true);
            options.push(self.sequence()?);
        }
        Ok(self.one_of(options, Node::Choice))
    }

    fn sequence(&mut self) -> Result<NodeId, Error> {
        let mut items = Vec::new();
        while let Some(c) = self.peek() {
            let item = match c {
                '"' => self.literal()?,
                '[' => self.class()?,
                '<' | '!' => self.token()?,
                '(' => self.group()?,
                '.' => {
                    self.at += 1;
                    self.add(Node::Class(Class::new(vec![('\0', char::MAX)])))
                }
                '*' | '+' | '?' | '{' => {
                    let start = self.at;
                    let (least, most) = self.repetition()?;
                    let item = items.pop().ok_or_else(|| {
                        self.error(start, format!("`{c}` must follow what is repeated"))
                    })?;
                    self.add(Node::Repeat(item, least, most))
                }
                _ => match self.name()? {
                    Some(rule) => self.add(Node::Rule(rule)),
                    None => break,
                },
            };
            items.push(item);
            self.space(self.depth > 0);
        }
        Ok(self.one_of(items, Node::Sequence))
    }

    fn group(&mut self) -> Result<NodeId, Error> {
        let start = self.at;
        if self.depth == DEPTH_MAX {
            return Err(self.error(start, format!("more than {DEPTH_MAX} nested groups")));
        }
        self.depth += 1;
        self.at += 1;
        self.space(true);
        let node = self.choice()?;
        if !self.take(')') {
            return Err(match self.peek() {
                None => self.error(start, "the group has no `)`"),
                Some(_) => self.expected("`)`, or a part of the group"),
            });
        }
        self.depth -= 1;
        Ok(node)
    }

    fn literal(&mut self) -> Result<NodeId, Error> {
        let start = self.at;
        self.at += 1;
        let mut characters = Vec::new();
        while !self.take('"') {
            let c = self.character()?.ok_or_else(|| self.error(start, "the text has no end"))?;
            characters.push(self.add(Node::Class(Class::new(vec![(c, c)]))));
        }
        Ok(self.one_of(characters, Node::Sequence))
    }

    fn class(&mut self) -> Result<NodeId, Error> {
        let start = self.at;
        self.at += 1;
        let negated = self.take('^');
        let no_end = |parser: &Self| parser.error(start, "the class has no `]`");
        let mut ranges = Vec::new();
        while !self.take(']') {
            let range = self.at;
            let first = self.character()?.ok_or_else(|| no_end(self))?;
            let last = match self.rest().as_bytes() {
                [b'-', b']', ..] => first,
                [b'-', ..] => {
                    self.at += 1;
                    self.character()?.ok_or_else(|| no_end(self))?
                }
                _ => first,
            };
            if last < first {
                let text = &self.text[range..self.at];
                return Err(self.error(range, format!("the range `{text}` is in reverse order")));
            }
            ranges.push((first, last));
        }
        let class = Class::new(ranges);
        let class = if negated { class.complement() } else { class };
        if class.is_empty() {
            return Err(self.error(start, "no character is in the class"));
        }
        Ok(self.add(Node::Class(class)))
    }

    /// Parses a character or escape; `None` at the end of the text.
    fn character(&mut self) -> Result<Option<char>, Error> {
        let Some(c) = self.peek() else { return Ok(None) };
        let start = self.at;
        self.at += c.len_utf8();
        if c != '\\' {
            return Ok(Some(c));
        }
        let Some(escape) = self.peek() else { return Ok(None) };
        self.at += escape.len_utf8();
        let digits = match escape {
            't' => return Ok(Some('\t')),
            'r' => return Ok(Some('\r')),
            'n' => return Ok(Some('\n')),
            '\\' | '"' | '[' | ']' | '-' => return Ok(Some(escape)),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => {
                let known = r#"`\t`, `\r`, `\n`, `\\`, `\"`, `\[`, `\]`, `\-`, `\xHH`, `\uHHHH` and `\UHHHHHHHH`"#;
                let message = format!("`\\{escape}` is no escape: there are {known}");
                return Err(self.error(start, message));
            }
        };
        let hex = self.rest().get(..digits).filter(|s| s.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(hex) = hex else {
            let message = format!("`\\{escape}` must be followed by {digits} hexadecimal digits");
            return Err(self.error(start, message));
        };
        self.at += digits;
        let c = u32::from_str_radix(hex, 16).ok().and_then(char::from_u32);
        c.map(Some).ok_or_else(|| self.error(start, format!("no character has the number {hex}")))
    }

    /// Parses a repetition: the minimum and the maximum.
    fn repetition(&mut self) -> Result<(u32, Option<u32>), Error> {
        for (sign, range) in [('*', (0, None)), ('+', (1, None)), ('?', (0, Some(1)))] {
            if self.take(sign) {
                return Ok(range);
            }
        }
        let start = self.at;
        self.at += 1;
        self.space(self.depth > 0);
        let least = self.number()?;
        let mut most = Some(least);
        if self.take(',') {
            self.space(self.depth > 0);
            most = match self.peek() {
                Some('}') => None,
                _ => Some(self.number()?),
            };
        }
        if !self.take('}') {
            return Err(self.expected("`,` or `}`"));
        }
        if most.is_some_and(|most| most < least) {
            return Err(self.error(start, "the largest number of repetitions is below the least"));
        }
        Ok((least, most))
    }

    fn number(&mut self) -> Result<u32, Error> {
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let number = &self.rest()[..digits];
        let value = number.parse().ok().filter(|value| *value <= REPETITION_MAX);
        let value = value.ok_or_else(|| match digits {
            0 => self.expected("a number"),
            _ => self.error(self.at, format!("{number} is more than {REPETITION_MAX}")),
        })?;
        self.at += digits;
        self.space(self.depth > 0);
        Ok(value)
    }

    fn token(&mut self) -> Result<NodeId, Error> {
        let start = self.at;
        let excluded = self.take('!');
        if self.peek() != Some('<') {
            return Err(self.expected("a token such as `<think>` or `<[7]>` after `!`"));
        }
        let Some(len) = self.rest().find('>') else {
            return Err(self.error(start, "the token has no `>`"));
        };
        let name = self.rest()[..len + 1].to_string();
        self.at += len + 1;
        let position = Position::of(self.text, start);
        Ok(self.add(Node::Token(Reference { name, excluded, position })))
    }

    /// Parses the name of a rule, and returns its number; `None` if there is no name.
    fn name(&mut self) -> Result<Option<usize>, Error> {
        let name = word(self.rest());
        if name.is_empty() {
            return Ok(None);
        }
        let rule = *self.names.entry(name).or_insert_with(|| {
            self.rules.push(Rule { at: self.at, body: None });
            self.rules.len() - 1
        });
        self.at += name.len();
        Ok(Some(rule))
    }

    /// Skips white space and comments, and line breaks if `lines`.
    fn space(&mut self, lines: bool) {
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => self.at += 1,
                '\r' | '\n' if lines => self.at += 1,
                '#' => self.at += self.rest().find(['\r', '\n']).unwrap_or(self.rest().len()),
                _ => break,
            }
        }
    }

    fn add(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Returns the only node of `nodes`, or adds one for all of them.
    fn one_of(&mut self, nodes: Vec<NodeId>, of: fn(Vec<NodeId>) -> Node) -> NodeId {
        match nodes[..] {
            [node] => node,
            _ => self.add(of(nodes)),
        }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Skips `c`. Returns whether it was there.
    fn take(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        self.at += if found { c.len_utf8() } else { 0 };
        found
    }

    fn expected(&self, what: &str) -> Error {
        let found = match self.peek() {
            None => "the end of the grammar".to_string(),
            Some('\r' | '\n') => "the end of the line".to_string(),
            Some(c) => format!("`{c}`"),
        };
        self.error(self.at, format!("expected {what}, but found {found}"))
    }

    fn error(&self, at: usize, message: impl Into<String>) -> Error {
        Error::invalid(Some(Position::of(self.text, at)), message)
    }
}

/// Returns the name of a rule at the start of a text; it may be empty.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_line_and_column() {
        for (text, expected) in [
            ("", "line 1, column 1: there is no rule `root`"),
            ("root ::= a\na ::= b", "line 2, column 7: there is no rule `b`"),
            (
                "root = a",
                "line 1, column 6: expected `::=` after the name of a rule, but found `=`",
            ),
            ("root ::= \"a\nb", "line 1, column 10: the text has no end"),
            ("root ::= [a-", "line 1, column 10: the class has no `]`"),
            ("root ::= [é-a]", "line 1, column 11: the range `é-a` is in reverse order"),
            (
                "root ::= é",
                "line 1, column 10: expected the end of the line, or a part of the rule, but found `é`",
            ),
            ("root ::= (\"é\" | # a\n *)", "line 2, column 2: `*` must follow what is repeated"),
            ("root ::= (a", "line 1, column 10: the group has no `)`"),
            ("root ::= a{,3}", "line 1, column 12: expected a number, but found `,`"),
            (
                "root ::= a{4,3}",
                "line 1, column 11: the largest number of repetitions is below the least",
            ),
            ("root ::= a{99999999999}", "line 1, column 12: 99999999999 is more than 1048576"),
            (
                "root ::= \"\\u12\"",
                "line 1, column 11: `\\u` must be followed by 4 hexadecimal digits",
            ),
            ("root ::= \"\\ud800\"", "line 1, column 11: no character has the number d800"),
            ("root ::= [\\q]", "line 1, column 11: `\\q` is no escape: there are"),
            (
                "root ::= [^\\U00000000-\\U0010FFFF]",
                "line 1, column 10: no character is in the class",
            ),
            ("root ::= !a", "line 1, column 11: expected a token such as"),
            ("root ::= <think", "line 1, column 10: the token has no `>`"),
            (
                "root ::= \"a\"\nroot ::= \"b\"\n",
                "line 2, column 1: the rule `root` is defined twice",
            ),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.starts_with(expected), "{text:?}: {message}");
        }
        let deep = format!("root ::= {}\"a\"{}", "(".repeat(300), ")".repeat(300));
        let message = parse(&deep).unwrap_err().to_string();
        assert_eq!(message, "line 1, column 266: more than 256 nested groups");
    }
}
