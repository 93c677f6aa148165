//! Lines that are typed: editing, history, and what a line of a conversation may ask for.

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

use super::screen::TYPED;
use crate::cli::{error::Error, note};
use rope_cpu::platform::{self, interrupt};

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
pub enum Typed {
    /// Text for the model.
    Text(String),
    /// `/clear`: forget the conversation.
    Clear,
    /// `/drop N`: forget so many of its oldest turns.
    Drop(usize),
    /// `/help`.
    Help,
    /// `/exit`, Ctrl-D, Ctrl-C twice, or SIGTERM.
    Exit,
    /// Another line that begins with a slash and one word, or a command with a wrong value: what is
    /// wrong with it.
    Wrong(String),
}

/// What `/help` says.
pub const HELP: &str = "\
/clear   forget the conversation so far
/drop N  forget its N oldest questions and their answers, without N one
/exit    leave, as Ctrl-D does
Ctrl-C   stop the answer; twice at the prompt: leave
A line that ends with \\ goes on in the next. Arrow keys edit, and find earlier lines.";

/// A prompt on the terminal, with the lines typed in earlier runs.
pub struct Lines {
    editor: Editor<Rules, DefaultHistory>,
    history: Option<PathBuf>,
}

impl Lines {
    /// Prepares the terminal. Without a place for it, the history lasts as long as the program.
    pub fn new(color: bool, stdout_is_terminal: bool) -> Result<Self, Error> {
        // With stdout redirected, what is typed must not end up there.
        let behavior = if stdout_is_terminal { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = Config::builder().behavior(behavior).build();
        let mut editor = Editor::with_config(config).map_err(Error::failed)?;
        editor.set_helper(Some(Rules { color }));
        let history = platform::state_directory().and_then(|directory| {
            fs::create_dir_all(&directory).ok()?;
            Some(directory.join("history"))
        });
        if let Some(path) = history.as_deref().filter(|path| path.exists())
            && let Err(e) = editor.load_history(path)
        {
            note(format_args!("note: cannot read the history in {}: {e}", path.display()));
        }
        Ok(Lines { editor, history })
    }

    /// Waits for a line.
    ///
    /// # Errors
    /// If the terminal fails.
    pub fn read(&mut self) -> Result<Typed, Error> {
        let mut interrupted = false;
        loop {
            let Some(line) = interrupt::line(|| self.editor.readline("> ")) else {
                return Ok(Typed::Exit);
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
                    note("(Ctrl-C again, Ctrl-D or /exit to leave)");
                }
                Err(ReadlineError::Interrupted | ReadlineError::Eof) => return Ok(Typed::Exit),
                Err(ReadlineError::Signal(_)) => {} // the window changed, or SIGTERM, which is seen above
                Err(e) => return Err(Error::failed(format_args!("cannot read a line: {e}"))),
            }
        }
    }

    /// Keeps a line for later runs. One that cannot be kept is no reason to stop.
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

fn parse(line: String) -> Typed {
    let word = line.trim();
    let is_command = word.strip_prefix('/').is_some_and(|name| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic() || c == '?')
    });
    let (command, value) = word.split_once(char::is_whitespace).unwrap_or((word, ""));
    if command == "/drop" {
        return match (value.trim(), value.trim().parse()) {
            ("", _) => Typed::Drop(1),
            (_, Ok(turns @ 1..)) => Typed::Drop(turns),
            (value, _) => Typed::Wrong(format!("/drop {value}: give a whole number, 1 or more")),
        };
    }
    match word {
        "/clear" => Typed::Clear,
        "/exit" | "/quit" | "/bye" => Typed::Exit,
        "/help" | "/?" => Typed::Help,
        _ if is_command => Typed::Wrong(format!("{word} is no command here: /help lists them")),
        _ => Typed::Text(line),
    }
}

/// How lines are shown, and where they end.
struct Rules {
    color: bool,
}

impl Helper for Rules {}

impl Completer for Rules {
    type Candidate = String;
}

impl Hinter for Rules {
    type Hint = String;
}

impl Validator for Rules {
    fn validate(&self, line: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        Ok(match line.input().ends_with('\\') {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

impl Highlighter for Rules {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> std::borrow::Cow<'l, str> {
        match self.color {
            true => format!("{}{line}{}", TYPED.0, TYPED.1).into(),
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
        assert_eq!(parse("/clear".into()), Typed::Clear);
        assert_eq!(parse(" /exit ".into()), Typed::Exit);
        assert_eq!(parse("/?".into()), Typed::Help);
        assert_eq!(parse("/drop".into()), Typed::Drop(1));
        assert_eq!(parse(" /drop  12 ".into()), Typed::Drop(12));
        for wrong in ["/regen", "/drop 0", "/drop -1", "/drop it", "/drop 1 2"] {
            let Typed::Wrong(message) = parse(wrong.into()) else { panic!("{wrong}") };
            assert!(message.starts_with(wrong), "{message}");
        }
        for text in
            ["/drops 1", "drop 1", "/", "/etc/passwd is a file", "/usr/bin", "what is /clear?", "a"]
        {
            assert_eq!(parse(text.into()), Typed::Text(text.into()));
        }
    }
}
