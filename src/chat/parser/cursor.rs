//! A place in a text that may still grow.

/// Why something was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The text so far may become it.
    More,
    /// The text is something else.
    Other,
}

/// A result of reading.
pub type Read<T> = Result<T, Stop>;

/// A place in a text that grows until `complete`.
///
/// What is not read is not skipped: after an error the cursor is where the last success left it.
#[derive(Clone, Debug)]
pub struct Cursor<'t> {
    text: &'t str,
    at: usize,
    complete: bool,
}

impl<'t> Cursor<'t> {
    pub fn new(text: &'t str, complete: bool) -> Self {
        Self { text, at: 0, complete }
    }

    /// The bytes before the cursor.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The text after the cursor.
    pub fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Reads `literal`.
    pub fn eat(&mut self, literal: &str) -> Read<()> {
        let rest = self.rest();
        if rest.starts_with(literal) {
            self.at += literal.len();
            return Ok(());
        }
        Err(if literal.starts_with(rest) { self.stop() } else { Stop::Other })
    }

    /// Reads `literal` if it follows.
    pub fn maybe(&mut self, literal: &str) -> Read<bool> {
        match self.eat(literal) {
            Ok(()) => Ok(true),
            Err(Stop::Other) => Ok(false),
            Err(Stop::More) => Err(Stop::More),
        }
    }

    /// Skips white space.
    pub fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// The next character, which is not read.
    pub fn peek(&self) -> Read<char> {
        self.rest().chars().next().ok_or(self.stop())
    }

    /// Reads up to `end`, which is read too, but is not part of the result.
    pub fn until(&mut self, end: &str) -> Read<&'t str> {
        let rest = self.rest();
        let (text, _) = rest.split_once(end).ok_or(self.stop())?;
        self.at += text.len() + end.len();
        Ok(text)
    }

    /// Reads the characters of a name; `ends` says which character cannot be one.
    pub fn word(&mut self, ends: impl Fn(char) -> bool) -> Read<&'t str> {
        let rest = self.rest();
        let len = rest.find(ends).ok_or(self.stop())?;
        self.at += len;
        Ok(&rest[..len])
    }

    /// Reads a JSON string.
    pub fn string(&mut self) -> Read<String> {
        let rest = self.rest();
        if self.peek()? != '"' {
            return Err(Stop::Other);
        }
        let mut escaped = false;
        let end = rest[1..].find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let end = end.ok_or(self.stop())? + 2;
        let text = crate::json::parse(&rest[..end]).map_err(|_| Stop::Other)?;
        self.at += end;
        Ok(text)
    }

    /// Returns the meaning of the end of the text for something that is not complete.
    fn stop(&self) -> Stop {
        if self.complete { Stop::Other } else { Stop::More }
    }
}
