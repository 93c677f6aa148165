//! The turns of a conversation, and the prompt that they make for each answer.

use super::{
    Args,
    line::{HELP, LineEditor, UserInput},
    summary,
    writer::Writer,
};
use crate::cli::{error::Error, note};
use rope_cpu::{
    Token,
    chat::{Message, Role, Template},
    generate::{End, Generated},
    platform::processors::plural,
    tokenizer::{Ends, Special, Tokenizer},
};

/// The turns so far.
pub enum Conversation {
    /// Messages in a chat template.
    Chat {
        /// The template.
        template: Box<Template>,
        /// Its origin, for error messages.
        origin: String,
        /// All messages; the first may be a system message.
        messages: Vec<Message>,
    },
    /// One text, which user and model continue in turn.
    Plain {
        /// Its tokens.
        tokens: Vec<Token>,
        /// The end of each turn, as an index of `tokens`.
        ends: Vec<usize>,
    },
}

impl Conversation {
    /// Creates a conversation in a chat template, given with its origin.
    pub fn chat((origin, template): (String, Template), system: Option<String>) -> Self {
        let messages = system.into_iter().map(|text| Message::new(Role::System, text)).collect();
        Conversation::Chat { template: Box::new(template), origin, messages }
    }

    /// Creates a conversation in plain text.
    pub fn plain() -> Self {
        Conversation::Plain { tokens: Vec::new(), ends: Vec::new() }
    }

    /// Removes all turns; the system message stays.
    pub fn clear(&mut self) {
        match self {
            Conversation::Chat { messages, .. } => messages.retain(|m| m.role == Role::System),
            Conversation::Plain { tokens, ends } => {
                tokens.clear();
                ends.clear();
            }
        }
    }

    /// Returns the number of answered turns, of two messages each.
    fn turns(&self) -> usize {
        match self {
            Conversation::Chat { messages, .. } => {
                messages.iter().filter(|m| m.role == Role::Assistant).count()
            }
            Conversation::Plain { ends, .. } => ends.len(),
        }
    }

    /// Removes the oldest `turns`, or all if there are fewer; the system message and the BOS token
    /// stay. Returns the number of removed turns.
    fn remove_oldest(&mut self, turns: usize, bos: Option<Token>) -> usize {
        let turns = turns.min(self.turns());
        match self {
            Conversation::Chat { messages, .. } => {
                let first = messages.iter().take_while(|m| m.role == Role::System).count();
                messages.drain(first..first + 2 * turns);
            }
            Conversation::Plain { tokens, ends } => {
                let first = usize::from(bos.is_some() && tokens.first().copied() == bos);
                let end = ends.drain(..turns).next_back().unwrap_or(first);
                tokens.drain(first..end);
                ends.iter_mut().for_each(|other| *other -= end - first);
            }
        }
        turns
    }

    /// Returns the whole prompt for the answer to `text`.
    fn prompt(&self, text: &str, tokenizer: &Tokenizer) -> Result<Vec<Token>, Error> {
        match self {
            Conversation::Chat { template, origin, messages } => {
                let mut messages = messages.clone();
                messages.push(Message::new(Role::User, text));
                let rendered = template.render(&messages, &[], true).map_err(|e| {
                    Error::usage(format_args!(
                        "{origin}: {e}; choose another template with --chat-template, or continue \
                         plain text with -no-cnv"
                    ))
                })?;
                Ok(tokenizer.encode_chat(&rendered))
            }
            Conversation::Plain { tokens, .. } => {
                let ends = if tokens.is_empty() { Ends::Add } else { Ends::Omit };
                let mut prompt = tokens.clone();
                prompt.extend(tokenizer.encode(text, Special::Parse, ends));
                Ok(prompt)
            }
        }
    }

    /// Adds an answered turn.
    fn add(&mut self, text: &str, prompt: Vec<Token>, answer: &Generated) {
        match self {
            Conversation::Chat { messages, .. } => {
                messages.push(Message::new(Role::User, text));
                messages.push(Message::new(Role::Assistant, answer.text.as_str()));
            }
            Conversation::Plain { tokens, ends } => {
                *tokens = prompt;
                tokens.extend_from_slice(&answer.tokens);
                ends.push(tokens.len());
            }
        }
    }

    /// Generates the answer to `text` and adds the turn. A turn that is stopped before its answer
    /// begins is not added.
    fn turn(&mut self, text: &str, writer: &mut Writer) -> Result<Generated, Error> {
        let prompt = self.prompt(text, writer.tokenizer)?;
        let answer = writer.write(&prompt)?;
        if answer.end != End::Caller || !answer.tokens.is_empty() {
            self.add(text, prompt, &answer);
        }
        Ok(answer)
    }
}

/// The commands that make room if the context is full.
const DROP_HINT: &str = "/drop removes the oldest turn, /clear all turns";

/// Answers `first`, if there is one, then each message that the user enters, until the user exits.
/// Without `lines`, or with `single_turn`, it ends after one answer.
///
/// # Errors
/// If generating or reading input fails; after a single answer also [`Error::Usage`] if the message
/// is too long, and [`Error::Interrupted`].
pub fn converse(
    conversation: &mut Conversation,
    mut first: Option<String>,
    writer: &mut Writer,
    mut lines: Option<LineEditor>,
    args: &Args,
) -> Result<(), Error> {
    let single = args.prompt.single_turn || lines.is_none();
    loop {
        let text = match (first.take(), &mut lines) {
            (Some(text), _) => {
                if !args.prompt.no_display_prompt {
                    writer.screen.question(&text);
                }
                text
            }
            (None, None) => return Ok(()),
            (None, Some(lines)) => match lines.read()? {
                UserInput::Text(text) => text,
                UserInput::Exit => return Ok(()),
                UserInput::Clear => {
                    conversation.clear();
                    continue;
                }
                UserInput::Drop(turns) => {
                    let removed = conversation.remove_oldest(turns, writer.tokenizer.bos());
                    let left = plural(conversation.turns(), "turn");
                    note(format_args!("(removed {}, {left} left)", plural(removed, "turn")));
                    continue;
                }
                UserInput::Help => {
                    note(HELP);
                    continue;
                }
                UserInput::Invalid(message) => {
                    note(message);
                    continue;
                }
            },
        };
        match conversation.turn(&text, writer) {
            Ok(answer) if single => {
                return if answer.end == End::Caller { Err(Error::Interrupted) } else { Ok(()) };
            }
            Ok(answer) => {
                if answer.end == End::ContextFull {
                    note(format_args!("({DROP_HINT})"));
                }
                if args.answer.timings() {
                    note(summary::turn(&answer.timings));
                }
            }
            // After a message that is too long, the user may enter another one.
            Err(error @ Error::Usage(_)) if !single => {
                note(&error);
                if conversation.turns() > 0 {
                    let shifts = writer.session.rope().plan().shifts;
                    let or = if shifts { "" } else { "; --context-shift avoids this" };
                    note(format_args!("({DROP_HINT}{or})"));
                }
            }
            Err(error) => return Err(error),
        }
    }
}
