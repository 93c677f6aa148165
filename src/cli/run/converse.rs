//! The dialogue on a terminal: questions, and commands about them.

use super::{
    Args,
    change::{self, Current, Desk, Opened},
    command::{self, Command},
    conversation::{Conversation, Question, is_begun},
    line::{LineEditor, UserInput},
    saved, settings, stats, summary, wrap,
    writer::Writer,
};
use crate::cli::{error::Error, note};
use rope_cpu::{
    batch::Answered,
    generate::End,
    platform::{echo, processors::plural},
};

/// The commands that make room if the context is full.
const DROP_HINT: &str = "/drop removes the oldest turn, /clear all turns";

/// Answers one message.
///
/// # Errors
/// If generating fails, [`Error::TooLong`] if the message does not fit, and [`Error::Interrupted`].
pub fn answer_once(
    conversation: &mut Conversation,
    question: &Question,
    writer: &mut Writer,
) -> Result<(), Error> {
    match conversation.ask(question, writer)?.outcome.end {
        End::Caller => Err(Error::Interrupted),
        End::TokensMax => {
            note(format_args!("note: {}; a larger N allows more", cut(writer)));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns the note for an answer that -n cut short.
fn cut(writer: &Writer) -> String {
    let tokens = writer.limits.tokens_max.unwrap_or_default();
    format!("the answer is cut after {} (-n {tokens})", plural(tokens, "token"))
}

/// A conversation with the user at the terminal.
pub struct Dialogue<'d, 'm> {
    /// The conversation.
    pub conversation: &'d mut Conversation,
    /// The session and its output.
    pub writer: &'d mut Writer<'m>,
    /// The input.
    pub desk: Desk,
    /// The command line.
    pub args: &'d Args,
    /// The model.
    pub current: Current<'d>,
}

/// Another model for the conversation.
pub struct Next {
    /// The model, which is open, with its options and its name.
    pub opened: Opened,
    /// The name of the model before it.
    pub before: String,
    pub desk: Desk,
}

/// The result of a question.
enum Asked {
    /// Its answer has started, so the turn was added.
    Answered,
    /// Its answer was stopped before it started, or the question was refused.
    Unanswered,
    /// The question does not fit in the context.
    TooLong,
}

impl Dialogue<'_, '_> {
    /// Answers the optional `first` message, then each message that the user enters, until the user
    /// exits or chooses another model, which is returned. Stops after one answer with `-st`.
    ///
    /// # Errors
    /// If generating or reading input fails.
    pub fn hold(mut self, first: Option<Vec<u8>>) -> Result<Option<Next>, Error> {
        if let Some(first) = first {
            self.ask(Question::new(first))?;
        }
        loop {
            let done = match self.desk.lines.read()? {
                UserInput::Command(Command::Exit) => return Ok(None),
                UserInput::Command(Command::Model(name)) => match self.other(&name) {
                    Ok(Some(opened)) => {
                        let before = self.current.shown();
                        return Ok(Some(Next { opened, before, desk: self.desk }));
                    }
                    other => other.map(drop),
                },
                UserInput::Command(command) => self.run(command),
                UserInput::Invalid(message) => Err(Error::Usage(message)),
                UserInput::Text(typed) => {
                    let files = self.desk.files.text();
                    let question = Question { files, typed: typed.into() };
                    if self.args.prompt.single_turn {
                        let _kept = echo::stop();
                        answer_once(self.conversation, &question, self.writer)?;
                        return Ok(None);
                    }
                    self.ask(question).map(|asked| match asked {
                        Asked::Answered => self.desk.files.clear(),
                        Asked::TooLong => self.desk.files.drop_last(),
                        Asked::Unanswered => {}
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

    /// Opens another model. Without a name, lists the models.
    fn other(&self, name: &str) -> Result<Option<Opened>, Error> {
        let shelf = self.args.model.hub.shelf.shelf();
        match name {
            "" => change::list(&shelf, self.current).map(|()| None),
            _ => change::open(&shelf, name, self.current),
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
                self.desk.files.clear();
                self.desk.unanswered = None;
            }
            Command::Read(path) => {
                self.desk.files.read(path, self.writer.tokenizer, self.writer.capacity())?;
            }
            Command::System(text) => match &text[..] {
                "" => match self.conversation.system() {
                    Some(text) => note(text),
                    None => note("(no system message)"),
                },
                "none" => self.conversation.set_system(None)?,
                _ => self.conversation.set_system(Some(text))?,
            },
            Command::Set(typed) => {
                settings::run(&typed, self.writer, self.args)?;
                self.desk.record(&typed);
            }
            Command::Stats => note(wrap::filled(&stats::stats(self.writer))),
            Command::Save(path) => {
                let messages = self.conversation.messages()?;
                let question = format!("{} exists: replace it?", path.display());
                if path.is_file() && !self.desk.lines.confirm(&question)? {
                    note("(nothing was written)");
                    return Ok(());
                }
                saved::write(&path, &messages)?;
                let turns = plural(self.conversation.turns(), "turn");
                note(format_args!("(wrote {turns} to {})", path.display()));
            }
            Command::Load(path) => {
                self.conversation.set_messages(saved::read(&path)?)?;
                self.desk.unanswered = None;
                let turns = plural(self.conversation.turns(), "turn");
                note(format_args!("(read {turns} from {})", path.display()));
            }
            Command::Help => note(command::help()),
            // `hold` handles these.
            Command::Model(_) | Command::Exit => {}
        }
        Ok(())
    }

    /// Answers the last question again, after `change`, and replaces the last turn. The turn stays
    /// if `change` returns `None`, or if there is no answer. A question without an answer has no turn.
    fn again(
        &mut self,
        change: impl FnOnce(&mut LineEditor, &Question) -> Result<Option<Question>, Error>,
    ) -> Result<(), Error> {
        if let Some(question) = self.desk.unanswered.clone() {
            if let Some(question) = change(&mut self.desk.lines, &question)?
                && matches!(self.ask(question)?, Asked::Answered)
            {
                self.desk.files.clear();
            }
            return Ok(());
        }
        let Some(turn) = self.conversation.pop() else {
            return Err(Error::usage("there is no question yet: enter one"));
        };
        let question = change(&mut self.desk.lines, &turn.question);
        let answered = match question {
            Ok(Some(question)) => self.ask(question),
            Ok(None) => Ok(Asked::Unanswered),
            Err(error) => Err(error),
        };
        if !matches!(answered, Ok(Asked::Answered)) {
            self.conversation.push(turn);
            self.desk.unanswered = None;
            note("(the last question and its answer stay as they were)");
        }
        answered.map(drop)
    }

    /// Answers a question.
    fn ask(&mut self, question: Question) -> Result<Asked, Error> {
        // Text typed during the answer appears in the next line, not within the answer.
        let typed = echo::stop();
        let asked = self.conversation.ask(&question, self.writer);
        drop(typed);
        self.desk.unanswered = Some(question);
        match asked {
            Ok(answer) => {
                self.note_end(&answer);
                if is_begun(&answer) {
                    self.desk.unanswered = None;
                    return Ok(Asked::Answered);
                }
                note("(/regen reads the rest of the question and answers it, /edit changes it)");
                Ok(Asked::Unanswered)
            }
            // After a message that is too long, the user may enter another one.
            Err(error @ Error::TooLong(_)) => {
                note(&error);
                if self.conversation.turns() > 0 {
                    note(format_args!("({DROP_HINT}; --context-shift avoids this)"));
                }
                Ok(Asked::TooLong)
            }
            Err(error @ Error::Usage(_)) => {
                note(&error);
                Ok(Asked::Unanswered)
            }
            Err(error) => Err(error),
        }
    }

    fn note_end(&self, answer: &Answered) {
        if answer.outcome.end == End::ContextFull {
            note(format_args!("({DROP_HINT})"));
        }
        if answer.outcome.end == End::TokensMax {
            note(format_args!("({}; /set n N changes that, -1: no limit)", cut(self.writer)));
        }
        if self.args.answer.timings() {
            note(summary::turn(&answer.outcome.timings));
        }
    }

    fn note_removed(&self, removed: usize) {
        let left = plural(self.conversation.turns(), "turn");
        note(format_args!("(removed {}, {left} left)", plural(removed, "turn")));
    }
}
