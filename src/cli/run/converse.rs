//! The dialogue on a terminal: questions, and commands about them.

use super::{
    Args,
    command::{self, Command},
    conversation::{Conversation, Question, is_begun},
    line::{LineEditor, UserInput},
    saved, settings, stats, summary,
    writer::Writer,
};
use crate::cli::{error::Error, note, text};
use rope_cpu::{
    generate::{End, Generated},
    platform::processors::plural,
    tokenizer::{Ends, Special},
};

/// The commands that make room if the context is full.
const DROP_HINT: &str = "/drop removes the oldest turn, /clear all turns";

/// Answers one message.
///
/// # Errors
/// If generating fails, [`Error::Usage`] if the message is too long, and [`Error::Interrupted`].
pub fn answer_once(
    conversation: &mut Conversation,
    question: &Question,
    writer: &mut Writer,
) -> Result<(), Error> {
    match conversation.ask(question, writer)?.end {
        End::Caller => Err(Error::Interrupted),
        _ => Ok(()),
    }
}

/// A conversation with the user at the terminal.
pub struct Dialogue<'d, 'm> {
    /// The conversation.
    pub conversation: &'d mut Conversation,
    /// The session and its output.
    pub writer: &'d mut Writer<'m>,
    /// The input.
    pub lines: LineEditor,
    /// The command line.
    pub args: &'d Args,
    /// The texts of files for the next question.
    pub files: Vec<u8>,
}

impl Dialogue<'_, '_> {
    /// Answers `first`, if there is one, then each message that the user enters, until the user exits. With
    /// `-st`, it ends after one answer.
    ///
    /// # Errors
    /// If generating or reading input fails.
    pub fn hold(mut self, first: Option<Vec<u8>>) -> Result<(), Error> {
        if let Some(first) = first {
            self.ask(Question::new(first))?;
        }
        loop {
            let done = match self.lines.read()? {
                UserInput::Command(Command::Exit) => return Ok(()),
                UserInput::Command(command) => self.run(command),
                UserInput::Invalid(message) => Err(Error::Usage(message)),
                UserInput::Text(typed) => {
                    let question = Question { files: self.files.clone(), typed: typed.into() };
                    if self.args.prompt.single_turn {
                        return answer_once(self.conversation, &question, self.writer);
                    }
                    self.ask(question).map(|answered| {
                        if answered {
                            self.files.clear();
                        }
                    })
                }
            };
            match done {
                Ok(()) => {}
                // The user may enter another line.
                Err(error @ Error::Usage(_)) => note(&error),
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs a command.
    fn run(&mut self, command: Command) -> Result<(), Error> {
        match command {
            Command::Regenerate => self.again(|_, question| Ok(Some(question.clone())))?,
            Command::Edit => self.again(|lines, question| {
                let typed = lines.edit(&String::from_utf8_lossy(&question.typed))?;
                Ok(typed.map(|typed| Question { typed: typed.into(), ..question.clone() }))
            })?,
            Command::Undo(turns) => {
                let removed = self.conversation.remove_last(turns);
                self.note_removed(removed);
            }
            Command::Drop(turns) => {
                let bos = self.writer.tokenizer.bos();
                let removed = self.conversation.remove_oldest(turns, bos);
                self.note_removed(removed);
            }
            Command::Clear => {
                self.conversation.clear();
                self.files.clear();
            }
            Command::Read(path) if text::is_stdin(&path) => {
                return Err(Error::usage("/read -: standard input is this terminal; give a file"));
            }
            Command::Read(path) => {
                let read = text::input(&path)?;
                let tokens = self.writer.tokenizer.encode(&read, Special::Parse, Ends::Omit).len();
                self.files.extend([&read[..], b"\n\n"].concat());
                note(format_args!(
                    "(read {}: {}, before the next question)",
                    path.display(),
                    plural(tokens, "token")
                ));
            }
            Command::System(text) => match &text[..] {
                "" => match self.conversation.system() {
                    Some(text) => note(text),
                    None => note("(no system message)"),
                },
                "none" => self.conversation.set_system(None)?,
                _ => self.conversation.set_system(Some(text))?,
            },
            Command::Set(typed) => settings::run(&typed, self.writer, self.args)?,
            Command::Stats => note(stats::stats(self.writer)),
            Command::Save(path) => {
                saved::write(&path, &self.conversation.messages()?)?;
                let turns = plural(self.conversation.turns(), "turn");
                note(format_args!("(wrote {turns} to {})", path.display()));
            }
            Command::Load(path) => {
                self.conversation.set_messages(saved::read(&path)?)?;
                let turns = plural(self.conversation.turns(), "turn");
                note(format_args!("(read {turns} from {})", path.display()));
            }
            Command::Help => note(command::help()),
            Command::Exit => {}
        }
        Ok(())
    }

    /// Replaces the last turn by the answer to what `change` makes of its question. The turn stays if that is
    /// nothing, or if no answer begins.
    fn again(
        &mut self,
        change: impl FnOnce(&mut LineEditor, &Question) -> Result<Option<Question>, Error>,
    ) -> Result<(), Error> {
        let Some(turn) = self.conversation.pop() else {
            return Err(Error::usage("there is no question yet: enter one"));
        };
        let question = change(&mut self.lines, &turn.question);
        let answered = match question {
            Ok(Some(question)) => self.ask(question),
            Ok(None) => Ok(false),
            Err(error) => Err(error),
        };
        if !matches!(answered, Ok(true)) {
            self.conversation.push(turn);
            note("(the last question and its answer stay as they were)");
        }
        answered.map(drop)
    }

    /// Answers a question. Returns whether the answer has begun, so that the turn was added.
    fn ask(&mut self, question: Question) -> Result<bool, Error> {
        match self.conversation.ask(&question, self.writer) {
            Ok(answer) => {
                self.note_end(&answer);
                Ok(is_begun(&answer))
            }
            // After a message that is too long, the user may enter another one.
            Err(error @ Error::Usage(_)) => {
                note(&error);
                if self.conversation.turns() > 0 {
                    let shifts = self.writer.session.rope().plan().shifts;
                    let or = if shifts { "" } else { "; --context-shift avoids this" };
                    note(format_args!("({DROP_HINT}{or})"));
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn note_end(&self, answer: &Generated) {
        if answer.end == End::ContextFull {
            note(format_args!("({DROP_HINT})"));
        }
        if self.args.answer.timings() {
            note(summary::turn(&answer.timings));
        }
    }

    fn note_removed(&self, removed: usize) {
        let left = plural(self.conversation.turns(), "turn");
        note(format_args!("(removed {}, {left} left)", plural(removed, "turn")));
    }
}
