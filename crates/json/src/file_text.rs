//! Text from a file, for messages.

use std::fmt;

/// Maximum characters that a message shows of a text.
const CHARS_MAX: usize = 200;

/// Text from a file, for messages. Control characters are escaped and a long text is shortened, so
/// it can neither change nor fill a terminal. The original text is dropped, so nothing can print
/// it.
///
/// ```
/// # use rope_cpu_json::FileText;
/// let name = FileText::from("blk.0\u{1b}]0;title\u{7}");
/// assert_eq!(name.to_string(), r"blk.0\u{1b}]0;title\u{7}");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FileText(Box<str>);

impl FileText {
    /// Returns a text with at most `chars_max` characters of `text`.
    pub fn shortened(text: &str, chars_max: usize) -> Self {
        let end = text.char_indices().nth(chars_max).map(|(end, _)| end);
        let shown = text[..end.unwrap_or(text.len())].escape_debug().to_string();
        // Quotation marks need no escape here.
        let shown = shown.replace("\\'", "'").replace("\\\"", "\"");
        FileText(if end.is_some() { shown + "…" } else { shown }.into())
    }

    /// Returns a name in quotation marks.
    pub fn quoted(name: &str) -> Self {
        let FileText(name) = Self::shortened(name, 80);
        FileText(format!("\"{}\"", name.replace('"', "\\\"")).into())
    }
}

impl<T: AsRef<str>> From<T> for FileText {
    fn from(text: T) -> Self {
        Self::shortened(text.as_ref(), CHARS_MAX)
    }
}

impl fmt::Display for FileText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for FileText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_changes_a_terminal_remains() {
        let text: String =
            (0..=0x9f).filter_map(char::from_u32).chain("\u{202e}é'\"".chars()).collect();
        let shown = [FileText::shortened(&text, 500), FileText::quoted(&text), text.clone().into()];
        for shown in shown {
            let all = [shown.to_string(), format!("{shown:?}")].concat();
            assert!(!all.contains(|c: char| c.is_control() || c == '\u{202e}'), "{all}");
        }
        assert!(FileText::shortened(&text, 500).to_string().ends_with("é'\""));
        assert_eq!(FileText::from("a".repeat(300)).to_string(), "a".repeat(200) + "…");
        assert_eq!(FileText::quoted("a\"b").to_string(), r#""a\"b""#);
    }
}
