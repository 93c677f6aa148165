//! The sources of the prompt, and its escapes.

use std::{
    ffi::OsString,
    io::{self, IsTerminal},
};

use super::args::PromptArgs;
use crate::cli::{error::Error, escapes::resolve, note, text};
use rope_cpu::platform;

/// Returns the prompt: the texts of the command line and then a file, each on a new line. Without
/// them, reads standard input; `None` at a terminal.
///
/// # Errors
/// If a file cannot be read.
pub fn prompt(args: &PromptArgs) -> Result<Option<Vec<u8>>, Error> {
    let piped = args.prompt.is_empty() && !io::stdin().is_terminal();
    let file = args.file.as_deref().or(piped.then_some("-".as_ref()));
    let file = file.map(text::input).transpose()?;
    Ok(joined(&args.prompt, args.opening.no_escape, file))
}

/// Returns the texts of the command line and then the one of a file, each on a new line.
pub fn joined(texts: &[OsString], no_escape: bool, file: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let texts = texts.iter().map(|text| text.as_encoded_bytes());
    let texts = texts.map(|text| if no_escape { text.into() } else { resolve(text) });
    texts.chain(file).reduce(|mut before, text| {
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
