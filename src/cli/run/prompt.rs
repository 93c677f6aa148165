//! Where the prompt comes from, and what of it is taken literally.

use std::io::{self, IsTerminal, Read};

use super::args::PromptArgs;
use crate::cli::{
    error::Error,
    escapes,
    text::{file, text},
};

/// The prompt of the command line, of a file or of standard input; `None` if it is to be typed.
///
/// # Errors
/// A file that cannot be read, and text that is not UTF-8.
pub fn prompt(args: &PromptArgs) -> Result<Option<String>, Error> {
    if let Some(text) = &args.prompt {
        return unescaped("--prompt", text, args).map(Some);
    }
    if let Some(path) = &args.file {
        return file(path).map(Some);
    }
    if io::stdin().is_terminal() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    io::stdin()
        .read_to_end(&mut bytes)
        .map_err(|e| Error::failed(format_args!("cannot read standard input: {e}")))?;
    text("standard input", bytes).map(Some)
}

/// The system message, if there is one.
///
/// # Errors
/// As [`prompt`].
pub fn system(args: &PromptArgs) -> Result<Option<String>, Error> {
    match (&args.system_prompt, &args.system_prompt_file) {
        (Some(text), _) => unescaped("--system-prompt", text, args).map(Some),
        (None, Some(path)) => file(path).map(Some),
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
