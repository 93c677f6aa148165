//! The sources of the prompt, and its escapes.

use std::io::{self, IsTerminal};

use super::args::PromptArgs;
use crate::cli::{error::Error, escapes::unescaped, note, text};
use rope_cpu::platform::input;

/// Returns the prompt: the texts of the command line, then that of a file, each on a new line, or without
/// any of them that of standard input; `None` if the user is to enter it.
///
/// # Errors
/// If a file cannot be read, or an escape in a text of the command line is invalid.
pub fn prompt(args: &PromptArgs) -> Result<Option<String>, Error> {
    let typed = args.prompt.iter().map(|text| unescaped("--prompt", text, args.no_escape));
    let mut texts: Vec<_> = typed.collect::<Result<_, _>>()?;
    if let Some(path) = &args.file {
        texts.push(text::input(path)?);
    } else if texts.is_empty() && !io::stdin().is_terminal() {
        texts.push(text::input("-".as_ref())?);
    }
    Ok(texts.into_iter().reduce(|mut before, text| {
        if !before.ends_with('\n') {
            before.push('\n');
        }
        before + &text
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
/// As [`prompt`].
pub fn system(args: &PromptArgs) -> Result<Option<String>, Error> {
    match (&args.system_prompt, &args.system_prompt_file) {
        (Some(text), _) => unescaped("--system-prompt", text, args.no_escape).map(Some),
        (None, Some(path)) => text::file(path).map(Some),
        (None, None) => Ok(None),
    }
}
