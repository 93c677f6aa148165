//! The files that `/read` puts before the next question.

use std::path::PathBuf;

use crate::cli::{error::Error, note, text};
use rope_cpu::{
    platform::{interrupt, processors::plural},
    tokenizer::{Ends, Special, Tokenizer},
};

/// Files before the next question, in the order in which they were read.
#[derive(Default)]
pub struct Files(Vec<Queued>);

/// A file and its text.
struct Queued {
    path: PathBuf,
    text: Vec<u8>,
    tokens: usize,
}

impl Files {
    /// Adds a file, and notes its number of tokens.
    ///
    /// # Errors
    /// If the file cannot be read, is binary, or has more than `capacity` tokens, and after Ctrl-C.
    pub fn read(
        &mut self,
        path: PathBuf,
        tokenizer: &Tokenizer,
        capacity: usize,
    ) -> Result<(), Error> {
        if text::is_stdin(&path) {
            return Err(Error::usage("/read -: standard input is this terminal; give a file"));
        }
        let text = text::text_only(&path)?;
        let tokens = count(&text, tokenizer, capacity)
            .map_err(|reason| Error::usage(format_args!("/read {}: {reason}", path.display())))?;
        note(format_args!(
            "(read {}: {}, before the next question)",
            path.display(),
            plural(tokens, "token")
        ));
        self.0.push(Queued { path, text, tokens });
        Ok(())
    }

    /// Returns the texts of all files, with an empty line after each.
    pub fn text(&self) -> Vec<u8> {
        self.0.iter().flat_map(|file| [&file.text[..], b"\n\n"].concat()).collect()
    }

    /// Removes all files.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Removes the last file, since the question is too long with it, and prints a note.
    pub fn drop_last(&mut self) {
        let Some(Queued { path, tokens, .. }) = self.0.pop() else { return };
        let rest = match self.0.len() {
            0 => String::new(),
            rest => format!("; {} left before it", plural(rest, "file")),
        };
        note(format_args!(
            "(dropped {}, {}, so that the next question can fit{rest})",
            path.display(),
            plural(tokens, "token")
        ));
    }
}

/// Counts the tokens of a text in parts, so that Ctrl-C can stop it and counting stops early once
/// the context is full. Several parts differ from the whole by a few tokens.
fn count(text: &[u8], tokenizer: &Tokenizer, capacity: usize) -> Result<usize, String> {
    let (mut rest, mut tokens) = (text, 0);
    while !rest.is_empty() {
        let (part, after) = rest.split_at(part(rest));
        tokens += tokenizer.encode(part, Special::Parse, Ends::Omit).len();
        rest = after;
        if tokens > capacity {
            let least = if rest.is_empty() { "" } else { "over " };
            return Err(format!(
                "{least}{tokens} tokens do not fit in the context of {capacity}; give a shorter \
                 file, or start with -f FILE -c auto, which fits the context to it"
            ));
        }
        if interrupt::raised() {
            return Err("interrupted".into());
        }
    }
    Ok(tokens)
}

/// Returns the length of the first part of a text: up to the last line end in its first bytes.
fn part(text: &[u8]) -> usize {
    const BYTES: usize = 1 << 18;
    let Some(first) = text.get(..BYTES) else { return text.len() };
    first.iter().rposition(|byte| *byte == b'\n').map_or(BYTES, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_end_with_lines() {
        let text = "some words\n".repeat(1 << 16);
        let (mut rest, mut parts) = (text.as_bytes(), 0);
        while !rest.is_empty() {
            let (first, after) = rest.split_at(part(rest));
            assert!(first.ends_with(b"\n") && first.len() <= 1 << 18);
            (rest, parts) = (after, parts + 1);
        }
        assert_eq!(parts, 3);
        assert_eq!(part(&[b'a'; 1 << 19]), 1 << 18);
    }
}
