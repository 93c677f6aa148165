//! Turns of a conversation: what the model reads before each answer.

use super::{
    Args,
    line::{HELP, Lines, Typed},
    summary,
    writer::Writer,
};
use crate::cli::{error::Error, note};
use rope_cpu::{
    Token,
    chat::{Message, Template},
    generate::{Answer, End},
    platform::processors::plural,
    tokenizer::{Ends, Special, Tokenizer},
};

/// What was said so far.
pub enum Conversation {
    /// Messages in a chat template.
    Chat {
        /// The template.
        template: Box<Template>,
        /// Whose it is, for messages.
        origin: String,
        /// All messages, the first of them perhaps the system's.
        messages: Vec<Message>,
    },
    /// One text, which both sides continue.
    Plain {
        /// Its tokens.
        tokens: Vec<Token>,
        /// Where each turn ends among them.
        ends: Vec<usize>,
    },
}

impl Conversation {
    /// A conversation in the chat template of `origin`.
    pub fn chat((origin, template): (String, Template), system: Option<String>) -> Self {
        let messages = system.into_iter().map(|text| Message::new("system", text)).collect();
        Conversation::Chat { template: Box::new(template), origin, messages }
    }

    /// A text that is continued.
    pub fn plain() -> Self {
        Conversation::Plain { tokens: Vec::new(), ends: Vec::new() }
    }

    /// Forgets what was said; the system message stays.
    pub fn clear(&mut self) {
        match self {
            Conversation::Chat { messages, .. } => messages.retain(|m| m.role == "system"),
            Conversation::Plain { tokens, ends } => {
                tokens.clear();
                ends.clear();
            }
        }
    }

    /// The turns that were answered, of two messages each.
    fn turns(&self) -> usize {
        match self {
            Conversation::Chat { messages, .. } => {
                messages.iter().filter(|m| m.role == "assistant").count()
            }
            Conversation::Plain { ends, .. } => ends.len(),
        }
    }

    /// Forgets the oldest `turns`, or all if there are fewer; the system message and the BOS token
    /// stay. Returns how many are forgotten.
    fn forget(&mut self, turns: usize, bos: Option<Token>) -> usize {
        let turns = turns.min(self.turns());
        match self {
            Conversation::Chat { messages, .. } => {
                let first = messages.iter().take_while(|m| m.role == "system").count();
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

    /// All that the model reads before it answers `text`.
    fn prompt(&self, text: &str, tokenizer: &Tokenizer) -> Result<Vec<Token>, Error> {
        match self {
            Conversation::Chat { template, origin, messages } => {
                let mut messages = messages.clone();
                messages.push(Message::new("user", text));
                let rendered = template.render(&messages, true).map_err(|e| {
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

    /// Adds a turn that was answered.
    fn add(&mut self, text: &str, prompt: Vec<Token>, answer: &Answer) {
        match self {
            Conversation::Chat { messages, .. } => {
                messages.push(Message::new("user", text));
                messages.push(Message::new("assistant", answer.text.as_str()));
            }
            Conversation::Plain { tokens, ends } => {
                *tokens = prompt;
                tokens.extend_from_slice(&answer.tokens);
                ends.push(tokens.len());
            }
        }
    }

    /// One turn: the model answers `text`. A turn that was stopped before the answer began
    /// leaves no trace.
    fn turn(&mut self, text: &str, writer: &mut Writer) -> Result<Answer, Error> {
        let prompt = self.prompt(text, writer.tokenizer)?;
        let answer = writer.write(&prompt)?;
        if answer.end != End::Caller || !answer.tokens.is_empty() {
            self.add(text, prompt, &answer);
        }
        Ok(answer)
    }
}

/// How a conversation can go on where the context is full.
const FORGET: &str = "/drop forgets the oldest turn, /clear all of them";

/// Answers `first`, if there is one, then what is typed, until the user leaves. Without `lines`,
/// or with `single_turn`, it ends after one answer.
///
/// # Errors
/// Where nothing can be typed, also [`Error::Usage`] if the message is too long, and
/// [`Error::Interrupted`].
pub fn converse(
    conversation: &mut Conversation,
    mut first: Option<String>,
    writer: &mut Writer,
    mut lines: Option<Lines>,
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
                Typed::Text(text) => text,
                Typed::Exit => return Ok(()),
                Typed::Clear => {
                    conversation.clear();
                    continue;
                }
                Typed::Drop(turns) => {
                    let forgotten = conversation.forget(turns, writer.tokenizer.bos());
                    let left = plural(conversation.turns(), "turn");
                    note(format_args!("(forgot {}, {left} left)", plural(forgotten, "turn")));
                    continue;
                }
                Typed::Help => {
                    note(HELP);
                    continue;
                }
                Typed::Wrong(message) => {
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
                    note(format_args!("({FORGET})"));
                }
                if args.answer.timings() {
                    note(summary::turn(&answer.timings));
                }
            }
            // A message that is too long is told, and another one may be typed.
            Err(error @ Error::Usage(_)) if !single => {
                note(&error);
                if conversation.turns() > 0 {
                    let shifts = writer.session.rope().plan().shifts;
                    let or = if shifts { "" } else { "; with --context-shift that is not needed" };
                    note(format_args!("({FORGET}{or})"));
                }
            }
            Err(error) => return Err(error),
        }
    }
}
