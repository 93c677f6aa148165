//! The line editor of conversations: its history, and the commands that a line can be.

use std::{fs, path::PathBuf};

use rustyline::{
    Behavior, Config, Editor, Helper,
    completion::Completer,
    error::ReadlineError,
    highlight::{CmdKind, Highlighter},
    hint::Hinter,
    history::DefaultHistory,
    validate::{ValidationContext, ValidationResult, Validator},
};

use super::screen::USER_COLOR;
use crate::cli::{error::Error, note};
use rope_cpu::platform::{self, interrupt};

/// A line that the user entered.
#[derive(Debug, PartialEq, Eq)]
pub enum UserInput {
    /// Text for the model.
    Text(String),
    /// `/clear`: remove all turns.
    Clear,
    /// `/drop N`: remove the N oldest turns.
    Drop(usize),
    /// `/help`.
    Help,
    /// `/exit`, Ctrl-D, Ctrl-C twice, or SIGTERM.
    Exit,
    /// An unknown command, or one with an invalid value: the error message.
    Invalid(String),
}

/// The text of `/help`.
pub const HELP: &str = "\
/clear   remove all messages and answers
/drop N  remove the N oldest messages and their answers; N is 1 if omitted
/exit    exit, as Ctrl-D
Ctrl-C   stop the answer; twice at the prompt: exit
A line that ends with \\ continues on the next. Arrow keys edit, and recall earlier lines.";

/// A line editor on the terminal, with the history of earlier runs.
pub struct LineEditor {
    editor: Editor<EditorHelper, DefaultHistory>,
    history: Option<PathBuf>,
}

impl LineEditor {
    /// Creates a line editor. If there is no folder for the history, it is not saved.
    pub fn new(color: bool, stdout_is_terminal: bool) -> Result<Self, Error> {
        // If stdout is redirected, the user's input must not be written to it.
        let behavior = if stdout_is_terminal { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = Config::builder().behavior(behavior).build();
        let mut editor = Editor::with_config(config).map_err(Error::failed)?;
        editor.set_helper(Some(EditorHelper { color }));
        let history = platform::state_directory().and_then(|directory| {
            fs::create_dir_all(&directory).ok()?;
            Some(directory.join("history"))
        });
        if let Some(path) = history.as_deref().filter(|path| path.exists())
            && let Err(e) = editor.load_history(path)
        {
            note(format_args!("note: cannot read the history in {}: {e}", path.display()));
        }
        Ok(LineEditor { editor, history })
    }

    /// Reads a line.
    ///
    /// # Errors
    /// If the terminal fails.
    pub fn read(&mut self) -> Result<UserInput, Error> {
        let mut interrupted = false;
        loop {
            let Some(line) = interrupt::read_line(|| self.editor.readline("> ")) else {
                return Ok(UserInput::Exit);
            };
            match line {
                Ok(line) => {
                    let line = line.replace("\\\n", "\n");
                    if line.trim().is_empty() {
                        interrupted = false;
                        continue;
                    }
                    self.remember(&line);
                    return Ok(parse(line));
                }
                Err(ReadlineError::Interrupted) if !interrupted => {
                    interrupted = true;
                    note("(press Ctrl-C again or Ctrl-D, or enter /exit, to exit)");
                }
                Err(ReadlineError::Interrupted | ReadlineError::Eof) => return Ok(UserInput::Exit),
                Err(ReadlineError::Signal(_)) => {} // a resized window, or SIGTERM, which is handled above
                Err(e) => return Err(Error::failed(format_args!("cannot read a line: {e}"))),
            }
        }
    }

    /// Saves a line in the history. A failure is noted once, and the conversation continues.
    fn remember(&mut self, line: &str) {
        if self.editor.add_history_entry(line).unwrap_or(false)
            && let Some(path) = &self.history
            && let Err(e) = self.editor.append_history(path)
        {
            note(format_args!("note: cannot write the history to {}: {e}", path.display()));
            self.history = None;
        }
    }
}

fn parse(line: String) -> UserInput {
    let word = line.trim();
    let is_command = word.strip_prefix('/').is_some_and(|name| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic() || c == '?')
    });
    let (command, value) = word.split_once(char::is_whitespace).unwrap_or((word, ""));
    if command == "/drop" {
        return match (value.trim(), value.trim().parse()) {
            ("", _) => UserInput::Drop(1),
            (_, Ok(turns @ 1..)) => UserInput::Drop(turns),
            (value, _) => {
                UserInput::Invalid(format!("/drop {value}: must be a whole number of at least 1"))
            }
        };
    }
    match word {
        "/clear" => UserInput::Clear,
        "/exit" | "/quit" | "/bye" => UserInput::Exit,
        "/help" | "/?" => UserInput::Help,
        _ if is_command => {
            UserInput::Invalid(format!("{word} is not a command: /help lists the commands"))
        }
        _ => UserInput::Text(line),
    }
}

/// The color of lines, and the rule for lines that continue.
struct EditorHelper {
    color: bool,
}

impl Helper for EditorHelper {}

impl Completer for EditorHelper {
    type Candidate = String;
}

impl Hinter for EditorHelper {
    type Hint = String;
}

impl Validator for EditorHelper {
    fn validate(&self, line: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        Ok(match line.input().ends_with('\\') {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

impl Highlighter for EditorHelper {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> std::borrow::Cow<'l, str> {
        match self.color {
            true => format!("{}{line}{}", USER_COLOR.0, USER_COLOR.1).into(),
            false => line.into(),
        }
    }

    fn highlight_char(&self, _: &str, _: usize, _: CmdKind) -> bool {
        self.color
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_one_word_after_a_slash() {
        assert_eq!(parse("/clear".into()), UserInput::Clear);
        assert_eq!(parse(" /exit ".into()), UserInput::Exit);
        assert_eq!(parse("/?".into()), UserInput::Help);
        assert_eq!(parse("/drop".into()), UserInput::Drop(1));
        assert_eq!(parse(" /drop  12 ".into()), UserInput::Drop(12));
        for wrong in ["/regen", "/drop 0", "/drop -1", "/drop it", "/drop 1 2"] {
            let UserInput::Invalid(message) = parse(wrong.into()) else { panic!("{wrong}") };
            assert!(message.starts_with(wrong), "{message}");
        }
        for text in
            ["/drops 1", "drop 1", "/", "/etc/passwd is a file", "/usr/bin", "what is /clear?", "a"]
        {
            assert_eq!(parse(text.into()), UserInput::Text(text.into()));
        }
    }
}
