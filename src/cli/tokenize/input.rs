//! Where the text or the tokens come from.

use std::{
    fs,
    io::{self, Read},
    path::PathBuf,
};

use super::Error;
use crate::cli::{escapes, text};
use rope_cpu::Token;

/// The text to take apart.
#[derive(Debug, clap::Args)]
pub(super) struct InputArgs {
    /// The text
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,

    /// The file whose text is taken, to the last newline; -: stdin
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Read the text from standard input, whatever else is given
    #[arg(long)]
    stdin: bool,

    /// Leave \n, \t, \x41 and the like as they are
    #[arg(long)]
    no_escape: bool,
}

impl InputArgs {
    /// The text, with its escapes resolved, from the first of standard input, the file and the
    /// command line that is asked for.
    pub fn text(&self) -> Result<String, Error> {
        let from_stdin = self.stdin || self.file.as_deref().is_some_and(text::is_stdin);
        let (what, bytes) = if from_stdin {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes).map_err(Error::Stdin)?;
            ("standard input".into(), bytes)
        } else if let Some(path) = &self.file {
            let bytes = fs::read(path);
            let bytes = bytes.map_err(|source| Error::Read { path: path.clone(), source })?;
            (path.display().to_string(), bytes)
        } else if let Some(prompt) = &self.prompt {
            ("--prompt".into(), prompt.clone().into_bytes())
        } else {
            return Err(Error::NoText);
        };
        let bytes = if self.no_escape { bytes } else { escapes::resolve(&bytes) };
        String::from_utf8(bytes).map_err(|e| Error::Utf8 { what, at: e.utf8_error().valid_up_to() })
    }
}

/// Numbers of tokens between spaces, commas or brackets: what `--ids` prints, or a plain list.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, Error> {
    text.split(|c: char| c.is_whitespace() || "[],".contains(c))
        .filter(|number| !number.is_empty())
        .map(|number| number.parse().map_err(|_| Error::Number { text: number.into() }))
        .collect()
}
