//! The sources of the prompt, and its escapes.

use std::{
    ffi::OsStr,
    io::{self, IsTerminal},
};

use super::args::PromptArgs;
use crate::cli::{
    error::Error,
    escapes::{resolve, unescaped},
    note, text,
};
use rope_cpu::platform::input;

/// Returns the prompt: the texts of the command line, then that of a file, each on a new line, or without
/// any of them that of standard input; `None` if the user is to enter it.
///
/// # Errors
/// If a file cannot be read.
pub fn prompt(args: &PromptArgs) -> Result<Option<Vec<u8>>, Error> {
    let typed = args.prompt.iter().map(|text| OsStr::as_encoded_bytes(text));
    let typed = typed.map(|text| if args.no_escape { text.into() } else { resolve(text) });
    let mut texts: Vec<Vec<u8>> = typed.collect();
    if let Some(path) = &args.file {
        texts.push(text::input(path)?);
    } else if texts.is_empty() && !io::stdin().is_terminal() {
        texts.push(text::input("-".as_ref())?);
    }
    Ok(texts.into_iter().reduce(|mut before, text| {
        if !before.ends_with(b"\n") {
            before.push(b'\n');
        }
        before.extend(text);
        before
    }))
}

/// Prints a note if standard input has text that is not read, and returns whether it has. Input is not
/// waited for, since under a service or a build it may never arrive or end.
pub fn notes_input_left(args: &PromptArgs) -> bool {
    let given = !args.prompt.is_empty() || args.file.is_some();
    let reads = args.file.as_deref().is_some_and(text::is_stdin);
    let left = given && !reads && input::is_ready();
    if left {
        note(
            "note: standard input is not read, since -p or -f gives the prompt; add -f - to read it, after \
             the text of -p",
        );
    }
    left
}

/// Returns the system message, if one is given.
///
/// # Errors
/// If the file cannot be read or is not UTF-8, or an escape of the command line gives bytes that are not.
pub fn system(args: &PromptArgs) -> Result<Option<String>, Error> {
    match (&args.system_prompt, &args.system_prompt_file) {
        (Some(text), _) => unescaped("--system-prompt", text, args.no_escape).map(Some),
        (None, Some(path)) => text::file(path).map(Some),
        (None, None) => Ok(None),
    }
}
