//! The sources of the text and of the token IDs.

use std::{ffi::OsString, io, path::PathBuf};

use crate::cli::{error::Error, escapes, text};
use rope_cpu::Token;

/// The options that give the text.
#[derive(Debug, clap::Args)]
pub(super) struct InputArgs {
    /// Text to tokenize
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<OsString>,

    /// Read the text from a file, with its last newline; -: stdin
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Read the text from standard input; -p and -f are ignored
    #[arg(long)]
    stdin: bool,

    /// Do not process escapes such as \n, \t and \x41
    #[arg(long)]
    no_escape: bool,
}

impl InputArgs {
    /// Returns the text of standard input if it is selected, else of the file, else of the command
    /// line, with escapes replaced.
    pub fn text(&self) -> Result<Vec<u8>, Error> {
        let from_stdin = self.stdin || self.file.as_deref().is_some_and(text::is_stdin);
        let bytes = if from_stdin {
            text::whole_stdin().map_err(stdin_error)?
        } else if let Some(path) = &self.file {
            text::whole_file(path).map_err(|error| {
                Error::usage(format_args!("cannot read {}: {error}", path.display()))
            })?
        } else if let Some(prompt) = &self.prompt {
            prompt.as_encoded_bytes().into()
        } else {
            return Err(Error::usage("there is no text: give one of --prompt, --file or --stdin"));
        };
        Ok(if self.no_escape { bytes } else { escapes::resolve(&bytes) })
    }
}

/// Returns the error of a standard input that cannot be read.
pub(super) fn stdin_error(error: io::Error) -> Error {
    Error::usage(format_args!("cannot read standard input: {error}"))
}

/// Parses token IDs separated by spaces, commas or brackets: the output of `--ids`, or a plain
/// list.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, Error> {
    text.split(|c: char| c.is_whitespace() || "[],".contains(c))
        .filter(|number| !number.is_empty())
        .map(|number| {
            number.parse().map_err(|_| {
                Error::usage(format_args!("{number:?} is not a token ID: give a whole number"))
            })
        })
        .collect()
}
