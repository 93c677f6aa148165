//! The sources of the prompt, and its escapes.

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
};

use super::args::PromptArgs;
use crate::cli::{error::Error, escapes::resolve, note, text};
use rope_cpu::platform;

/// The parts of a prompt: the texts of the command line, and a file.
#[derive(Default)]
pub struct Parts {
    texts: Option<Vec<u8>>,
    file: Option<Vec<u8>>,
}

impl Parts {
    /// Returns the prompt: the texts, then the file on a new line. `None` without either.
    pub fn prompt(&self) -> Option<Vec<u8>> {
        lines(self.texts.iter().chain(&self.file).cloned())
    }

    /// Returns the prompt with the file before the texts, if there are both.
    pub fn file_first(&self) -> Option<Vec<u8>> {
        let (texts, file) = (self.texts.as_ref()?, self.file.as_ref()?);
        lines([file, texts].into_iter().cloned())
    }
}

/// Returns the parts of the prompt. Without texts and a file on the command line, reads standard input,
/// unless it is a terminal.
///
/// # Errors
/// If a file cannot be read.
pub fn parts(args: &PromptArgs) -> Result<Parts, Error> {
    let piped = args.prompt.is_empty() && !io::stdin().is_terminal();
    let file = args.file.as_deref().or(piped.then_some("-".as_ref()));
    let file = file.map(text::input).transpose()?;
    Ok(Parts { texts: joined(&args.prompt, args.opening.no_escape, None), file })
}

/// Returns the texts of the command line and then the one of a file, each on a new line.
pub fn joined(texts: &[OsString], no_escape: bool, file: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let texts = texts.iter().map(|text| text.as_encoded_bytes());
    let texts = texts.map(|text| if no_escape { text.into() } else { resolve(text) });
    lines(texts.chain(file))
}

/// Joins texts, each on a new line.
fn lines(texts: impl Iterator<Item = Vec<u8>>) -> Option<Vec<u8>> {
    texts.reduce(|mut before, text| {
        if !before.ends_with(b"\n") {
            before.push(b'\n');
        }
        before.extend(text);
        before
    })
}

/// Prints a note if standard input has text that is not read, and returns whether it has. Does not
/// wait for input, since under a service or a build it may never arrive or stop.
pub fn notes_input_left(args: &PromptArgs) -> bool {
    let given = !args.prompt.is_empty() || args.file.is_some();
    let reads = args.file.as_deref().is_some_and(text::is_stdin);
    let left = given && !reads && platform::input_is_ready();
    if left {
        note(
            "note: standard input is not read, since -p or -f gives the prompt; add -f - to read it, after \
             the text of -p",
        );
    }
    left
}
