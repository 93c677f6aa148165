//! Texts of a format as words, since models vary the white space between words.

use crate::{
    cursor::{Cursor, Read},
    grammar::Row,
};

/// Stands for the identifier of a call, in a text that becomes a pattern.
pub const ID: char = '\u{1}';

/// Words in sequence, with the white space that a template writes between them.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    words: Vec<(String, Word)>,
    /// The white space after the last word.
    end: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Text(String),
    /// Any number, since templates count calls.
    Number,
    /// The identifier of a call.
    Id,
}

impl Pattern {
    /// Splits a text into markers, signs and other words.
    pub fn new(text: &str) -> Self {
        let mut words = Vec::new();
        let mut rest = text;
        loop {
            let start = rest.trim_start();
            let space = rest[..rest.len() - start.len()].to_owned();
            if start.is_empty() {
                return Self { words, end: space };
            }
            let (word, after) = start.split_at(word_len(start));
            let digits = word.bytes().all(|byte| byte.is_ascii_digit());
            words.push(match word {
                _ if word.starts_with(ID) => (space, Word::Id),
                _ if digits => (space, Word::Number),
                _ => (space, Word::Text(word.into())),
            });
            rest = after;
        }
    }

    pub fn len(&self) -> usize {
        self.words.len()
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the first word, if it is a text.
    pub fn first(&self) -> Option<&str> {
        match self.words.first() {
            Some((_, Word::Text(word))) => Some(word),
            _ => None,
        }
    }

    /// Returns the words that are texts.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.words.iter().filter_map(|(_, word)| match word {
            Word::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Splits the pattern after `at` words.
    pub fn split(&self, at: usize) -> (Self, Self) {
        let (head, tail) = self.words.split_at(at.min(self.len()));
        let part = |words: &[_], end: &str| Self { words: words.to_vec(), end: end.into() };
        match tail {
            [] => (self.clone(), Self::default()),
            tail => (part(head, ""), part(tail, &self.end)),
        }
    }

    /// Returns the pattern without its first word.
    pub fn rest(&self) -> Self {
        Self { words: self.words.iter().skip(1).cloned().collect(), end: self.end.clone() }
    }

    /// Moves the white space before the first word to the end of another pattern.
    pub fn move_space(&mut self, to: &mut Self) {
        if let Some((space, _)) = self.words.first_mut() {
            to.end = std::mem::take(space);
        }
    }

    /// Returns the number of words that both patterns start with.
    pub fn common_start(&self, other: &Self) -> usize {
        let pairs = self.words.iter().zip(&other.words);
        pairs.take_while(|((_, a), (_, b))| a == b).count()
    }

    /// Returns the number of words that both patterns end with.
    pub fn common_end(&self, other: &Self) -> usize {
        let pairs = self.words.iter().rev().zip(other.words.iter().rev());
        pairs.take_while(|((_, a), (_, b))| a == b).count()
    }

    /// Returns a pattern that matches two texts; `None` if they differ in more than single words.
    pub fn merge(&self, other: &Self) -> Option<Self> {
        if self.len() != other.len() {
            return None;
        }
        let pairs = self.words.iter().zip(&other.words);
        let words = pairs.map(|((space, a), (_, b))| {
            let word = if a == b { a.clone() } else { Word::Id };
            (space.clone(), word)
        });
        Some(Self { words: words.collect(), end: self.end.clone() })
    }

    /// Reads the words, with any white space before each. Returns the identifier among them.
    pub fn read(&self, cursor: &mut Cursor) -> Read<Option<String>> {
        let mut id = None;
        for (_, word) in &self.words {
            cursor.space();
            let any = |cursor: &mut Cursor| {
                let word = cursor.word(|c| !(c.is_alphanumeric() || "_-.:".contains(c)))?;
                Ok(word.to_owned())
            };
            match word {
                Word::Text(text) => cursor.eat(text)?,
                Word::Number => _ = any(cursor)?,
                Word::Id => id = Some(any(cursor)?),
            }
        }
        Ok(id.filter(|id| !id.is_empty()))
    }

    /// Adds the words to a grammar.
    pub fn write(&self, row: &mut Row) {
        for (space, word) in &self.words {
            row.literal(space);
            match word {
                Word::Text(text) => row.marker(text),
                Word::Number => row.item("/[0-9]{1,9}/"),
                Word::Id => row.item("/[A-Za-z0-9_-]{1,64}/"),
            }
        }
        row.literal(&self.end);
    }
}

/// Returns the length of the first word of a text that does not start with white space.
fn word_len(text: &str) -> usize {
    let first = text.chars().next().map_or(0, char::len_utf8);
    match text.as_bytes()[0] {
        // Up to the end of the marker, or of its known part.
        b'<' => {
            let end = text[1..].find(['<', '>', ID, '\n']).map_or(text.len(), |at| at + 1);
            end + usize::from(text[end..].starts_with('>'))
        }
        b'[' => {
            let name = text[1..].find(|c: char| !(c.is_ascii_uppercase() || "_/ ".contains(c)));
            match name {
                Some(len @ 2..) if text[1 + len..].starts_with(']') => len + 2,
                _ => 1,
            }
        }
        b'{' | b'}' | b']' | b',' | b':' | b'>' | b'"' => 1,
        _ if text.starts_with(ID) => 1,
        _ => {
            let ends = |c: char| c.is_whitespace() || c == ID || "<[{}],:\">".contains(c);
            text[first..].find(ends).map_or(text.len(), |at| at + first)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let words = Pattern::new(text).words.into_iter();
        words
            .map(|(_, word)| match word {
                Word::Text(text) => text,
                other => format!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn words_are_markers_and_signs() {
        for (text, expected) in [
            ("[TOOL_CALLS][{\"name\": \"", "[TOOL_CALLS] [ { \" name \" : \""),
            ("\">\n<parameter name=\"", "\" > <parameter name=\""),
            ("<a><b>functions.", "<a> <b> functions."),
            (":0<|x|>", ": Number <|x|>"),
            ("{\"id\": \"0\", \"\u{1}\"", "{ \" id \" : \" Number \" , \" Id \""),
        ] {
            assert_eq!(words(text).join(" "), expected);
        }
    }

    #[test]
    fn patterns_share_words_and_not_white_space() {
        let (a, b) = (Pattern::new("</a>\n<b>x"), Pattern::new("</a><c><b>y"));
        assert_eq!((a.common_start(&b), a.common_end(&b)), (1, 0));
        let (a, b) = (Pattern::new("t=\"x\""), Pattern::new("t=\"y\""));
        let merged = a.merge(&b).unwrap();
        let mut cursor = Cursor::new("t= \"z\">", true);
        assert_eq!(merged.read(&mut cursor), Ok(Some("z".into())));
        assert_eq!(cursor.rest(), ">");
        assert!(a.merge(&Pattern::new("t")).is_none());
    }
}
