//! A position in a growing text.

/// Why reading stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// More text may make it match.
    More,
    /// The text does not match.
    Other,
}

/// A result of reading.
pub type Read<T> = Result<T, Stop>;

/// A position in a text that grows until `complete`.
///
/// After an error, the cursor stays where the last success left it.
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

    /// Returns the bytes before the cursor.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Returns the text after the cursor.
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

    /// Returns the next character, without reading it.
    pub fn peek(&self) -> Read<char> {
        self.rest().chars().next().ok_or(self.stop())
    }

    /// Reads up to and including `end`. Returns the text before it.
    pub fn until(&mut self, end: &str) -> Read<&'t str> {
        let rest = self.rest();
        let (text, _) = rest.split_once(end).ok_or(self.stop())?;
        self.at += text.len() + end.len();
        Ok(text)
    }

    /// Reads the characters of a name, up to a character for which `ends` holds.
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
        let text = rope_cpu_json::parse(&rest[..end]).map_err(|_| Stop::Other)?;
        self.at += end;
        Ok(text)
    }

    /// Returns the reason to stop if the text ends too early.
    fn stop(&self) -> Stop {
        if self.complete { Stop::Other } else { Stop::More }
    }
}
