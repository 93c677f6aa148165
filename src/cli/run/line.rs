//! The line editor of conversations, with its history and completions.

use std::{
    borrow::Cow,
    fs,
    io::ErrorKind,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use rustyline::{
    Behavior, Cmd, ConditionalEventHandler, Config, Context, Editor, Event, EventContext,
    EventHandler, Helper, KeyCode, KeyEvent, Modifiers, RepeatCount,
    completion::{Completer, FilenameCompleter, Pair},
    error::ReadlineError,
    highlight::{CmdKind, Highlighter},
    hint::Hinter,
    history::DefaultHistory,
    validate::Validator,
};

use super::{
    command::{self, Command, Completion},
    screen::USER_COLOR,
    settings,
};
use crate::cli::{error::Error, note};
use rope_cpu::{
    platform::{self, interrupt},
    shelf::Shelf,
};

/// A line that the user entered.
#[derive(Debug, PartialEq, Eq)]
pub enum UserInput {
    /// Text for the model.
    Text(String),
    /// A command.
    Command(Command),
    /// An unknown command, or one with an invalid value: the error message.
    Invalid(String),
}

/// A line editor on the terminal, with the history of earlier runs.
pub struct LineEditor {
    editor: Editor<EditorHelper, DefaultHistory>,
    history: Option<PathBuf>,
    /// Whether the line had text at the last Ctrl-C.
    had_text: Arc<AtomicBool>,
}

impl LineEditor {
    /// Creates a line editor, which completes the names of a shelf. If there is no folder for the
    /// history, it is not saved.
    pub fn new(color: bool, stdout_is_terminal: bool, shelf: Shelf) -> Result<Self, Error> {
        // If stdout is redirected, the user's input must not be written to it.
        let behavior = if stdout_is_terminal { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = Config::builder().behavior(behavior).build();
        let mut editor = Editor::with_config(config).map_err(Error::failed)?;
        editor.set_helper(Some(EditorHelper { color, files: FilenameCompleter::new(), shelf }));
        let enter = KeyEvent(KeyCode::Enter, Modifiers::NONE);
        editor.bind_sequence(enter, EventHandler::Conditional(Box::new(Continuation)));
        let had_text = Arc::new(AtomicBool::new(false));
        let interruption = Box::new(Interruption(had_text.clone()));
        editor.bind_sequence(KeyEvent::ctrl('C'), EventHandler::Conditional(interruption));
        let history = platform::state_directory().and_then(|directory| {
            fs::create_dir_all(&directory).ok()?;
            Some(directory.join("history"))
        });
        if let Some(path) = history.as_deref().filter(|path| path.exists())
            && let Err(e) = editor.load_history(path)
        {
            note(format_args!("note: cannot read the history in {}: {e}", path.display()));
        }
        Ok(LineEditor { editor, history, had_text })
    }

    /// Reads a line: [`Command::Exit`] after Ctrl-D, Ctrl-C twice at an empty line, or SIGTERM. Ctrl-C
    /// at a line with text drops the line.
    ///
    /// # Errors
    /// If the terminal fails.
    pub fn read(&mut self) -> Result<UserInput, Error> {
        let mut interrupted = false;
        loop {
            match self.read_line("")? {
                Line::Entered(line) if line.trim().is_empty() => interrupted = false,
                Line::Entered(line) => {
                    return Ok(match command::parse(&line) {
                        None => UserInput::Text(line),
                        Some(Ok(command)) => UserInput::Command(command),
                        Some(Err(message)) => UserInput::Invalid(message),
                    });
                }
                Line::Interrupted if self.had_text.swap(false, Relaxed) => interrupted = false,
                Line::Interrupted if !interrupted => {
                    interrupted = true;
                    note("(press Ctrl-C again or Ctrl-D, or enter /exit, to exit)");
                }
                Line::Interrupted | Line::End => return Ok(UserInput::Command(Command::Exit)),
            }
        }
    }

    /// Lets the user edit a text; `None` after Ctrl-C or Ctrl-D, or if the text is blank.
    ///
    /// # Errors
    /// If the terminal fails.
    pub fn edit(&mut self, text: &str) -> Result<Option<String>, Error> {
        Ok(match self.read_line(text)? {
            Line::Entered(line) if !line.trim().is_empty() => Some(line),
            _ => None,
        })
    }

    /// Asks a question, and returns whether the answer is yes.
    ///
    /// # Errors
    /// If the terminal fails.
    pub fn confirm(&mut self, question: &str) -> Result<bool, Error> {
        Ok(match self.read_after(&format!("{question} [y/N] "), "")? {
            Line::Entered(line) => ["y", "yes"].contains(&&*line.trim().to_lowercase()),
            Line::Interrupted | Line::End => false,
        })
    }

    /// Reads a line that starts as `text`, and saves it in the history.
    fn read_line(&mut self, text: &str) -> Result<Line, Error> {
        let line = self.read_after("> ", text)?;
        if let Line::Entered(line) = &line
            && !line.trim().is_empty()
        {
            self.remember(line);
        }
        Ok(line)
    }

    /// Reads a line that starts as `text`, after a prompt.
    fn read_after(&mut self, prompt: &str, text: &str) -> Result<Line, Error> {
        loop {
            let read = || self.editor.readline_with_initial(prompt, (text, ""));
            let Some(line) = interrupt::read_line(read) else { return Ok(Line::End) };
            return Ok(match line {
                Ok(line) => Line::Entered(line),
                Err(ReadlineError::Interrupted) => Line::Interrupted,
                Err(ReadlineError::Eof) => Line::End,
                Err(ReadlineError::Signal(_)) => continue, // a resized window, or SIGTERM, which is handled above
                // The line editor holds text only.
                Err(ReadlineError::Io(e)) if e.kind() == ErrorKind::InvalidData => {
                    note("(the line is not UTF-8: enter it again, or /read a file that has it)");
                    continue;
                }
                Err(e) => return Err(Error::failed(format_args!("cannot read a line: {e}"))),
            });
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

/// The result of reading a line.
enum Line {
    Entered(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or SIGTERM.
    End,
}

/// Turns a backslash before Enter into a new line. Other backslashes, as in pasted text, stay.
struct Continuation;

/// Returns whether a line goes on when Enter is pressed at `at`.
fn continues(line: &str, at: usize) -> bool {
    line.ends_with('\\') && at == line.len()
}

impl ConditionalEventHandler for Continuation {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, line: &EventContext) -> Option<Cmd> {
        continues(line.line(), line.pos()).then_some(Cmd::Complete)
    }
}

/// Notes at Ctrl-C whether the line has text, then lets the editor drop the line.
struct Interruption(Arc<AtomicBool>);

impl ConditionalEventHandler for Interruption {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, line: &EventContext) -> Option<Cmd> {
        self.0.store(!line.line().trim().is_empty(), Relaxed);
        None
    }
}

/// The color of lines, and the completion of commands.
struct EditorHelper {
    color: bool,
    files: FilenameCompleter,
    shelf: Shelf,
}

impl EditorHelper {
    /// Returns the names of models that start with `prefix`, in upper or lower case.
    fn models(&self, prefix: &str) -> Vec<String> {
        let is_plain = |name: &String| !name.contains(char::is_control);
        let starts = |name: &String| name.to_lowercase().starts_with(&prefix.to_lowercase());
        let entries = self.shelf.entries().unwrap_or_default().into_iter();
        entries.map(|entry| entry.name).filter(|name| is_plain(name) && starts(name)).collect()
    }
}

impl Helper for EditorHelper {}

impl Completer for EditorHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = &line[..at];
        let pairs = |names: Vec<String>| {
            let pair = |name: String| Pair { display: name.clone(), replacement: name };
            names.into_iter().map(pair).collect()
        };
        if continues(line, at) {
            return Ok((at - 1, pairs(vec!["\n".into()])));
        }
        let Some(rest) = typed.strip_prefix('/') else { return Ok((at, Vec::new())) };
        let Some((name, argument)) = rest.split_once(' ') else {
            return Ok((0, pairs(command::completions(typed))));
        };
        match command::completion(name) {
            Completion::File => self.files.complete(line, at, context),
            Completion::Setting => {
                Ok((at - argument.len(), pairs(settings::completions(argument))))
            }
            Completion::Model => Ok((at - argument.len(), pairs(self.models(argument)))),
            Completion::Nothing => Ok((at, Vec::new())),
        }
    }
}

impl Hinter for EditorHelper {
    type Hint = String;
}

impl Validator for EditorHelper {}

impl Highlighter for EditorHelper {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        match self.color {
            true => format!("{}{line}{}", USER_COLOR.0, USER_COLOR.1).into(),
            false => line.into(),
        }
    }

    fn highlight_char(&self, _: &str, _: usize, _: CmdKind) -> bool {
        self.color
    }
}
