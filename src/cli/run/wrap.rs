//! Wrapping of words at the right edge of a terminal, while text arrives in pieces.
//!
//! A word is shown as far as it has arrived. Once it does not fit, it is erased and shown on the
//! next line. A word longer than a line is left to the terminal.

use std::env;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Minimum width for wrapping; a narrower terminal breaks lines itself.
const LEAST: usize = 20;

/// Returns the number of columns of the terminal; `None` if lines are not wrapped.
pub fn columns() -> Option<usize> {
    if env::var_os("TERM").is_some_and(|terminal| terminal == "dumb") {
        return None; // it cannot move the cursor
    }
    let (width, _) = terminal_size::terminal_size_of(std::io::stdout())?;
    Some(usize::from(width.0)).filter(|columns| *columns >= LEAST)
}

/// Returns `text` with its lines wrapped at words, if the terminal's are.
pub fn filled(text: &str) -> String {
    columns().map_or_else(|| text.into(), |columns| fill(text, columns))
}

/// Returns `text` with lines of at most `columns` where its words allow that.
fn fill(text: &str, columns: usize) -> String {
    let lines = text.lines().map(|line| {
        let (mut filled, mut width) = (String::new(), 0);
        for (i, word) in line.split(' ').enumerate() {
            let more = word.width();
            if width > 0 && width + 1 + more > columns {
                filled.push('\n');
                width = 0;
            } else if i > 0 {
                filled.push(' ');
                width += 1;
            }
            filled += word;
            width += more;
        }
        filled
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The position of the cursor, and the word before it.
#[derive(Default)]
pub struct Wrap {
    columns: usize,
    /// The column of the cursor, from 0.
    column: usize,
    /// The part of the last word that is shown; empty after a space.
    word: String,
    /// The width of `word`.
    width: usize,
    /// Whether the word is longer than a line.
    long: bool,
}

impl Wrap {
    /// Returns the characters that show `text` after earlier texts, in a terminal of `columns`.
    pub fn push(&mut self, text: &str, columns: usize) -> String {
        if self.columns != columns {
            self.columns = columns;
            self.column %= columns;
            self.end_word();
        }
        let mut shown = String::with_capacity(text.len());
        for character in text.chars() {
            self.show(character, &mut shown);
        }
        shown
    }

    fn show(&mut self, character: char, shown: &mut String) {
        // The last column stays free: after it, terminals differ in where the cursor is.
        let edge = self.columns - 1;
        match character {
            '\n' | '\r' => {
                self.end_word();
                self.column = 0;
                shown.push(character);
            }
            ' ' | '\t' => {
                self.end_word();
                let next =
                    if character == ' ' { self.column + 1 } else { (self.column / 8 + 1) * 8 };
                // At the edge, the end of the line takes the place of a space.
                if next <= edge {
                    self.column = next;
                    shown.push(character);
                }
            }
            _ => {
                let width = character.width().unwrap_or(0);
                // Scripts with wide characters have no spaces, so a line may end before each of
                // them.
                if width == 2 {
                    self.end_word();
                }
                self.break_line(width, edge, shown);
                shown.push(character);
                self.word.push(character);
                self.width += width;
                self.column += width;
                if width == 2 {
                    self.end_word();
                }
            }
        }
    }

    /// Starts a new line if a character of this width does not fit.
    fn break_line(&mut self, width: usize, edge: usize, shown: &mut String) {
        if self.long {
            if self.column + width > self.columns {
                self.column = 0; // the terminal starts a line
            }
        } else if self.column + width > edge {
            if self.width > 0 && self.width == self.column {
                self.long = true;
                return;
            }
            if self.width > 0 {
                *shown += &format!("\x1b[{}D\x1b[K", self.width);
            }
            shown.push('\n');
            *shown += &self.word;
            self.column = self.width;
        }
    }

    fn end_word(&mut self) {
        self.word.clear();
        self.width = 0;
        self.long = false;
    }
}

#[cfg(test)]
mod tests {
    use super::{Wrap, fill};

    /// Shows `text` on a terminal of 20 columns, in pieces of `length` characters; returns its
    /// lines.
    fn lines(text: &str, length: usize) -> Vec<String> {
        let mut wrap = Wrap::default();
        let characters: Vec<char> = text.chars().collect();
        let pieces = characters.chunks(length).map(String::from_iter);
        let shown: String = pieces.map(|piece: String| wrap.push(&piece, 20)).collect();
        let mut lines = vec![String::new()];
        let mut rest = shown.chars();
        while let Some(character) = rest.next() {
            let line = lines.last_mut().unwrap();
            match character {
                '\n' => lines.push(String::new()),
                // Back by a number of columns, then clear the rest of the line.
                '\x1b' => {
                    let sequence: String = rest.by_ref().take_while(|c| *c != 'K').collect();
                    let back = sequence.trim_start_matches('[').split('D').next().unwrap();
                    for _ in 0..back.parse::<usize>().unwrap() {
                        line.pop();
                    }
                }
                _ => line.push(character),
            }
        }
        lines
    }

    #[test]
    fn words_are_not_cut_however_they_arrive() {
        let text = "The sea is a vast and mysterious realm.\n  indented words, and more of them\n";
        let expected = [
            "The sea is a vast ",
            "and mysterious ",
            "realm.",
            "  indented words, ",
            "and more of them",
            "",
        ];
        for length in [1, 2, 3, 7, 100] {
            assert_eq!(lines(text, length), expected, "pieces of {length}");
        }
    }

    #[test]
    fn spaces_at_the_edge_are_left_out() {
        // 19 columns are used; the space would be the 20th.
        assert_eq!(lines("a word of length 19   and", 1), ["a word of length 19", "and"]);
        assert_eq!(lines("a word of length 19 \nand", 1), ["a word of length 19", "and"]);
    }

    #[test]
    fn a_word_longer_than_a_line_is_left_to_the_terminal() {
        let address = "https://example.org/a/long/address";
        assert_eq!(lines(&format!("see {address} now"), 4), ["see ", &format!("{address} now")]);
    }

    #[test]
    fn whole_texts_are_filled_by_words() {
        assert_eq!(fill("one two three", 7), "one two\nthree");
        assert_eq!(fill("one two\nthree", 80), "one two\nthree");
        assert_eq!(fill("a longword b", 4), "a\nlongword\nb");
        assert_eq!(fill("  indented", 20), "  indented");
        assert_eq!(fill("", 20), "");
    }

    #[test]
    fn wide_characters_need_no_spaces() {
        assert_eq!(lines("海は広大で神秘的な領域です", 1), ["海は広大で神秘的な", "領域です"]);
    }
}
