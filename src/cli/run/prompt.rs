//! Where the prompt comes from, and what of it is taken literally.

use std::io::{self, IsTerminal};

use super::args::PromptArgs;
use crate::cli::{error::Error, escapes, note, text};
use rope_cpu::platform::input;

/// The prompt: the text of the command line, then that of a file on a line of its own, or without
/// either of them that of standard input; `None` if it is to be typed.
///
/// # Errors
/// A file that cannot be read, and text that is not UTF-8.
pub fn prompt(args: &PromptArgs) -> Result<Option<String>, Error> {
    let typed = args.prompt.as_ref().map(|text| unescaped("--prompt", text, args)).transpose()?;
    let read = args.file.as_ref().map(|path| text::input(path)).transpose()?;
    match (typed, read) {
        (Some(mut typed), Some(read)) => {
            if !typed.ends_with('\n') {
                typed.push('\n');
            }
            Ok(Some(typed + &read))
        }
        (None, None) if !io::stdin().is_terminal() => text::stdin().map(Some),
        (typed, read) => Ok(typed.or(read)),
    }
}

/// Notes that there is text on standard input which is not read, and returns whether that is so. It is
/// not waited for, as under a service or a build it may never come nor end.
pub fn notes_input_left(args: &PromptArgs) -> bool {
    let given = args.prompt.is_some() || args.file.is_some();
    let reads = args.file.as_deref().is_some_and(text::is_stdin);
    let left = given && !reads && input::waits();
    if left {
        note(
            "note: standard input is not read, since -p or -f gives the prompt; -f - reads it, after the \
             text of -p",
        );
    }
    left
}

/// The system message, if there is one.
///
/// # Errors
/// As [`prompt`].
pub fn system(args: &PromptArgs) -> Result<Option<String>, Error> {
    match (&args.system_prompt, &args.system_prompt_file) {
        (Some(text), _) => unescaped("--system-prompt", text, args).map(Some),
        (None, Some(path)) => text::file(path).map(Some),
        (None, None) => Ok(None),
    }
}

/// What a text typed on the command line stands for.
pub fn unescaped(option: &str, text: &str, args: &PromptArgs) -> Result<String, Error> {
    if args.no_escape {
        return Ok(text.into());
    }
    String::from_utf8(escapes::resolve(text.as_bytes())).map_err(|_| {
        Error::usage(format_args!(
            "{option}: its \\x escapes make bytes that are not UTF-8; --no-escape leaves them as \
             they are"
        ))
    })
}
