//! The turns of a conversation, and the prompt for each answer.

use std::mem;

use super::{stand_ins, writer::Writer};
use crate::cli::error::Error;
use rope_cpu::{
    Token,
    batch::Answered,
    chat::{Message, Role, Template},
    chat_answer::{ChatAnswer, ChatRequest},
    generate::End,
    tokenizer::{Ends, Special, Tokenizer},
};

/// A conversation.
pub struct Conversation {
    form: Form,
    turns: Vec<Turn>,
}

/// The form in which the model reads a conversation.
enum Form {
    /// Messages in a chat template.
    Chat {
        template: Box<Template>,
        /// The origin of the template, for error messages.
        origin: String,
        /// The messages before the first question: the system message.
        before: Vec<Message>,
    },
    /// One text, which user and model continue in turn.
    Plain,
}

/// A question and its answer.
pub struct Turn {
    /// The question.
    pub question: Question,
    /// The answer, and others up to the next question; empty if the question was not answered.
    answers: Vec<Message>,
    /// In plain text: the tokens of the question and the answer.
    tokens: Vec<Token>,
}

/// A question of the user, which need not be UTF-8.
#[derive(Clone, Default)]
pub struct Question {
    /// The texts of files before what was typed.
    pub files: Vec<u8>,
    /// The typed text.
    pub typed: Vec<u8>,
}

impl Question {
    /// Creates a question of a text only.
    pub fn new(typed: impl Into<Vec<u8>>) -> Self {
        Question { files: Vec::new(), typed: typed.into() }
    }

    fn text(&self) -> Vec<u8> {
        [&self.files[..], &self.typed].concat()
    }
}

impl Conversation {
    /// Creates a conversation in a chat template, given with its origin.
    pub fn chat((origin, template): (String, Template), system: Option<String>) -> Self {
        let before = system.into_iter().map(|text| Message::new(Role::System, text)).collect();
        let form = Form::Chat { template: Box::new(template), origin, before };
        Conversation { form, turns: Vec::new() }
    }

    /// Creates a conversation in plain text.
    pub fn plain() -> Self {
        Conversation { form: Form::Plain, turns: Vec::new() }
    }

    /// Returns the number of turns.
    pub fn turns(&self) -> usize {
        self.turns.len()
    }

    /// Removes all turns; the system message stays.
    pub fn clear(&mut self) {
        self.turns.clear();
    }

    /// Removes the last turn and returns it.
    pub fn pop(&mut self) -> Option<Turn> {
        self.turns.pop()
    }

    /// Adds a turn that was removed.
    pub fn push(&mut self, turn: Turn) {
        self.turns.push(turn);
    }

    /// Removes the last `turns`, or all if there are fewer. Returns the number of removed turns.
    pub fn remove_last(&mut self, turns: usize) -> usize {
        let left = self.turns.len().saturating_sub(turns);
        self.turns.drain(left..).len()
    }

    /// Removes the oldest `turns`, or all if there are fewer; the system message and the BOS token
    /// stay. Returns the number of removed turns.
    pub fn remove_oldest(&mut self, turns: usize, bos: Option<Token>) -> usize {
        let turns = turns.min(self.turns.len());
        let begins = |turn: &Turn| turn.tokens.first().copied();
        let first = self.turns.first().and_then(begins).filter(|first| Some(*first) == bos);
        self.turns.drain(..turns);
        if let Some((turn, bos)) = self.turns.first_mut().zip(first)
            && turns > 0
        {
            turn.tokens.insert(0, bos);
        }
        turns
    }

    /// Continues the conversation of another model. Its system message replaces the one of this
    /// conversation, if both have messages.
    pub fn continue_from(&mut self, other: Conversation, tokenizer: &Tokenizer) {
        if let (Form::Chat { before, .. }, Form::Chat { before: others, .. }) =
            (&mut self.form, other.form)
        {
            *before = others;
        }
        self.turns = other.turns;
        let plain = matches!(self.form, Form::Plain);
        for (index, turn) in self.turns.iter_mut().enumerate() {
            turn.tokens.clear();
            if plain {
                let ends = if index == 0 { Ends::Add } else { Ends::Omit };
                let mut text = turn.question.text();
                turn.answers.iter().for_each(|answer| text.extend(answer.content.as_bytes()));
                turn.tokens = tokenizer.encode(&text, Special::Parse, ends);
            }
        }
    }

    /// Returns whether the conversation consists of messages, as opposed to plain text.
    pub fn has_messages(&self) -> bool {
        matches!(self.form, Form::Chat { .. })
    }

    /// Returns the optional system message.
    pub fn system(&self) -> Option<&str> {
        match &self.form {
            Form::Chat { before, .. } => {
                before.iter().find(|m| m.role == Role::System).map(|m| m.content.as_str())
            }
            Form::Plain => None,
        }
    }

    /// Replaces the system message.
    ///
    /// # Errors
    /// In plain text.
    pub fn set_system(&mut self, text: Option<String>) -> Result<(), Error> {
        let Form::Chat { before, .. } = &mut self.form else {
            return Err(no_messages("system message"));
        };
        before.retain(|message| message.role != Role::System);
        if let Some(text) = text {
            before.insert(0, Message::new(Role::System, text));
        }
        Ok(())
    }

    /// Returns all messages. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// In plain text.
    pub fn messages(&self) -> Result<Vec<Message>, Error> {
        let Form::Chat { before, .. } = &self.form else { return Err(no_messages("messages")) };
        Ok(self.messages_after(before, |bytes| String::from_utf8_lossy(bytes).into()))
    }

    /// Returns the messages `before` and the messages of the turns, each with its text from `text`.
    fn messages_after(&self, before: &[Message], text: fn(&[u8]) -> String) -> Vec<Message> {
        let message = |message: &Message| Message {
            content: text(message.content.as_bytes()),
            ..message.clone()
        };
        let mut messages: Vec<_> = before.iter().map(message).collect();
        for turn in &self.turns {
            messages.push(Message::new(Role::User, text(&turn.question.text())));
            messages.extend(turn.answers.iter().map(message));
        }
        messages
    }

    /// Replaces all messages.
    ///
    /// # Errors
    /// In plain text.
    pub fn set_messages(&mut self, messages: Vec<Message>) -> Result<(), Error> {
        let Form::Chat { before, .. } = &mut self.form else {
            return Err(no_messages("messages"));
        };
        before.clear();
        self.turns.clear();
        for message in messages {
            match (message.role, self.turns.last_mut()) {
                (Role::User, _) => self.turns.push(Turn {
                    question: Question::new(message.content),
                    answers: Vec::new(),
                    tokens: Vec::new(),
                }),
                (_, Some(turn)) => turn.answers.push(message),
                (_, None) => before.push(message),
            }
        }
        Ok(())
    }

    /// Returns the whole prompt for the answer to `question`, and the number of its tokens before
    /// the question, which is 0 in a chat template.
    ///
    /// # Errors
    /// If the template refuses the question.
    pub fn prompt(
        &self,
        question: &[u8],
        tokenizer: &Tokenizer,
    ) -> Result<(Vec<Token>, usize), Error> {
        match &self.form {
            Form::Chat { template, origin, before } => {
                let mut messages = self.messages_after(before, stand_ins::embed);
                messages.push(Message::new(Role::User, stand_ins::embed(question)));
                let answer = ChatAnswer::new(template, ChatRequest::new(&messages)).map_err(|e| {
                    Error::usage(format_args!(
                        "{origin}: {e}; choose another template with --chat-template, or continue \
                         plain text with -no-cnv"
                    ))
                })?;
                Ok((tokenizer.encode_chat(stand_ins::extract(&answer.text)), 0))
            }
            Form::Plain => {
                let ends = if self.turns.is_empty() { Ends::Add } else { Ends::Omit };
                let mut prompt: Vec<_> =
                    self.turns.iter().flat_map(|t| &t.tokens).copied().collect();
                let before = prompt.len();
                prompt.extend(tokenizer.encode(question, Special::Parse, ends));
                Ok((prompt, before))
            }
        }
    }

    /// Generates the answer to a question, and adds the turn. A turn that is stopped before the
    /// first token of its answer is not added.
    ///
    /// # Errors
    /// [`Error::TooLong`] if the question does not fit, [`Error::Usage`] if the template refuses it.
    pub fn ask(&mut self, question: &Question, writer: &mut Writer) -> Result<Answered, Error> {
        let (prompt, before) = self.prompt(&question.text(), writer.tokenizer)?;
        let mut answer = writer.write(&prompt)?;
        if is_begun(&answer) {
            let plain = matches!(self.form, Form::Plain);
            let tokens = match plain {
                true => prompt[before..].iter().chain(&answer.tokens).copied().collect(),
                false => Vec::new(),
            };
            let answers = vec![Message::new(Role::Assistant, mem::take(&mut answer.text))];
            self.turns.push(Turn { question: question.clone(), answers, tokens });
        }
        Ok(answer)
    }
}

/// Returns whether an answer started before it was stopped.
pub fn is_begun(answer: &Answered) -> bool {
    answer.outcome.end != End::Caller || !answer.tokens.is_empty()
}

fn no_messages(what: &str) -> Error {
    Error::usage(format_args!(
        "plain text has no {what}: start without -no-cnv, and with --chat-template if the model has none"
    ))
}
