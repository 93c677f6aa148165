//! Remembers the tokens of answers that clients send back.
//!
//! The next prompt of a conversation contains the last answer as text. A chat template rarely gives
//! this text the tokens and the white space that the model generated, and a cached prefix ends at
//! the first different token. So each answer is remembered under the text that the template renders
//! for it. A prompt with this text gets the generated tokens.
//!
//! The tokens of a prompt depend on the remembered answers, but never on the contents of the KV
//! cache.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rope_cpu::{
    Token,
    chat::{Message, Role, Template, ToolCall},
    chat_answer::ChatAnswer,
    json,
    model::Model,
    tokenizer::{Special, Tokenizer},
};
use serde::Serialize;
use serde_json::{Map, Serializer, Value, ser::Formatter};
use sha2::{Digest, Sha256};

use super::{
    blocks::{Kind, Reader, calls, text},
    chat::Rendered,
    owner::Owner,
};

/// Maximum tokens of all remembered answers; they take 4 MiB.
const TOKENS_MAX: usize = 1 << 20;

/// Maximum remembered answers.
const ANSWERS_MAX: usize = 1 << 12;

/// The hash of an owner and of a prompt's text, up to the end of an answer.
type Key = [u8; 32];

/// The remembered answers. The least recently used one is forgotten first.
#[derive(Debug, Default)]
pub struct Echoes(Mutex<Answers>);

#[derive(Debug, Default)]
struct Answers {
    by_text: HashMap<Key, Answer>,
    /// The tokens of all answers.
    tokens: usize,
    /// The number of uses so far.
    uses: u64,
}

#[derive(Debug)]
struct Answer {
    /// Its bytes in the text.
    range: Range<usize>,
    tokens: Vec<Token>,
    last_use: u64,
}

/// A conversation before its answer.
#[derive(Debug)]
pub struct Asked {
    /// The template that rendered it.
    pub template: Template,
    /// Its messages.
    pub messages: Vec<Message>,
}

impl Echoes {
    /// Returns the tokens of a conversation, with the generated tokens of its owner's answers.
    pub fn encode(&self, owner: Owner, tokenizer: &Tokenizer<'_>, prompt: &str) -> Vec<Token> {
        // An answer may end in the middle of a character.
        let prompt = prompt.as_bytes();
        let found = if tokenizer.adds_eos() { Vec::new() } else { self.find(owner, prompt) };
        let mut tokens = Vec::new();
        let mut done = 0;
        for (range, generated) in found {
            // The answers overlap if they started after different prompts.
            if range.start < done {
                continue;
            }
            let before = &prompt[done..range.start];
            match done {
                0 => tokens = tokenizer.encode_chat(before),
                _ => tokenizer.append(&mut tokens, before, Special::Parse),
            }
            tokens.extend(generated);
            done = range.end;
        }
        match done {
            0 => tokenizer.encode_chat(prompt),
            _ => {
                tokenizer.append(&mut tokens, &prompt[done..], Special::Parse);
                tokens
            }
        }
    }

    /// Returns the remembered answers within a prompt, in order.
    fn find(&self, owner: Owner, prompt: &[u8]) -> Vec<(Range<usize>, Vec<Token>)> {
        let mut ends: Vec<_> = self.lock().by_text.values().map(|one| one.range.end).collect();
        ends.sort_unstable();
        ends.dedup();
        let (mut hash, mut done) = (hash_of(owner), 0);
        let mut keys = Vec::new();
        // Do not hold the lock, since prompts may be long.
        for end in ends.into_iter().take_while(|end| *end <= prompt.len()) {
            hash.update(&prompt[done..end]);
            done = end;
            keys.push(hash.clone().finalize().into());
        }
        let mut answers = self.lock();
        keys.iter().filter_map(|key| answers.take(key)).collect()
    }

    /// Remembers the tokens of an answer. Its text is `range` of the conversation's text, in bytes.
    fn remember(&self, owner: Owner, text: &[u8], range: Range<usize>, tokens: Vec<Token>) {
        let Some(until) = text.get(..range.end) else { return };
        let key = hash_of(owner).chain_update(until).finalize().into();
        let mut answers = self.lock();
        answers.uses += 1;
        answers.tokens += tokens.len();
        let last_use = answers.uses;
        let before = answers.by_text.insert(key, Answer { range, tokens, last_use });
        answers.tokens -= before.map_or(0, |answer| answer.tokens.len());
        while answers.tokens > TOKENS_MAX || answers.by_text.len() > ANSWERS_MAX {
            answers.forget_oldest();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answers {
    /// Finds the answer that ends a text, and marks it as used.
    fn take(&mut self, key: &Key) -> Option<(Range<usize>, Vec<Token>)> {
        let answer = self.by_text.get_mut(key)?;
        self.uses += 1;
        answer.last_use = self.uses;
        Some((answer.range.clone(), answer.tokens.clone()))
    }

    fn forget_oldest(&mut self) {
        let oldest = self.by_text.iter().min_by_key(|(_, answer)| answer.last_use);
        let oldest = oldest.map(|(key, _)| *key);
        let forgotten = oldest.and_then(|key| self.by_text.remove(&key));
        self.tokens -= forgotten.map_or(0, |answer| answer.tokens.len());
    }
}

/// Starts the hash of a text of this owner.
fn hash_of(owner: Owner) -> Sha256 {
    Sha256::new_with_prefix(owner.0.to_le_bytes())
}

/// Remembers the answers to a conversation when they are complete.
#[derive(Clone)]
pub struct Listener {
    owner: Owner,
    rendered: Arc<Rendered>,
    model: Model,
    echoes: Arc<Echoes>,
}

impl Listener {
    /// Creates a listener for the answers to the conversation of the current request.
    pub fn new(rendered: Arc<Rendered>, model: Model, echoes: Arc<Echoes>) -> Self {
        Listener { owner: Owner::current(), rendered, model, echoes }
    }

    /// Remembers an answer. Does nothing if the template cannot render it, or renders it in other
    /// words; for example, some templates omit reasoning.
    pub fn remember(&self, answer: &str, tokens: Vec<Token>) {
        let Rendered { answer: ChatAnswer { text: prompt, tools, .. }, asked, .. } =
            &*self.rendered;
        let (Some(asked), Ok(tokenizer)) = (asked, self.model.tokenizer()) else { return };
        let mut messages = asked.messages.clone();
        messages.push(self.message(answer));
        let Ok(text) = asked.template.render(&messages, tools.all(), false) else { return };
        let Some(after) = text.strip_prefix(prompt.as_str()) else { return };
        let generated = tokenizer.decode(&tokens, true);
        let Some(len) = same_words(after.as_bytes(), &generated).filter(|len| *len > 0) else {
            return;
        };
        self.echoes.remember(self.owner, text.as_bytes(), prompt.len()..prompt.len() + len, tokens);
    }

    /// Returns an answer as the message that clients send back.
    fn message(&self, answer: &str) -> Message {
        let blocks = Reader::new(Some(self.rendered.answer.parser())).read(answer);
        let calls = calls(&blocks).map(|(id, name, call)| ToolCall {
            id: id.into(),
            name: name.into(),
            arguments: call.text.clone(),
        });
        let mut message = Message::new(Role::Assistant, text(&blocks, &Kind::Text));
        message.reasoning = text(&blocks, &Kind::Reasoning);
        message.tool_calls = calls.collect();
        space(&mut message);
        message
    }
}

/// Returns the length of the prefix of `after` that differs from `generated` only in white space;
/// `None` if there is no such prefix.
fn same_words(after: &[u8], generated: &[u8]) -> Option<usize> {
    let space = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let words = generated.trim_ascii_end();
    let (mut at, mut end) = (0, 0);
    for byte in words.iter().filter(|byte| !byte.is_ascii_whitespace()) {
        at += space(&after[at..]);
        if after.get(at) != Some(byte) {
            return None;
        }
        at += 1;
        end = at;
    }
    // The tokens of the answer include its last white space, so the rest of the prompt must not.
    let last = &generated[words.len()..];
    let same = last.iter().zip(&after[end..]).take_while(|(a, b)| a == b).count();
    Some(end + same)
}

/// Gives the arguments of calls the white space of models and most templates, whatever white space
/// the client has sent. Leaves arguments that are not a JSON object unchanged.
pub fn space(message: &mut Message) {
    for call in &mut message.tool_calls {
        if let Ok(arguments) = json::parse::<Map<String, Value>>(&call.arguments) {
            let mut text = Vec::new();
            let mut serializer = Serializer::with_formatter(&mut text, Spaced);
            if arguments.serialize(&mut serializer).is_ok()
                && let Ok(text) = String::from_utf8(text)
            {
                call.arguments = text;
            }
        }
    }
}

/// Writes JSON like Python: with a space after each comma and colon.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        self.begin_array_value(writer, first)
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
    ) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rendered_answer_may_have_other_white_space_but_no_other_words() {
        for (after, generated, expected) in [
            ("{\"a\": 1}<end>", "{\"a\":1}", Some(8)),
            ("a b<end>", "a  b", Some(3)),
            ("a<end>", "\n\na\n", Some(1)),
            // The end of the answer is part of it.
            ("a\n<end>", "a\n\n", Some(2)),
            ("a\n<end>", "a", Some(1)),
            ("", "", Some(0)),
            ("b<end>", "<think>a</think>b", None),
            ("a", "ab", None),
        ] {
            assert_eq!(same_words(after.as_bytes(), generated.as_bytes()), expected, "{generated}");
        }
    }

    #[test]
    fn arguments_have_the_same_white_space_from_all_clients() {
        for (given, expected) in [
            ("{\"a\":[1,2],\"b\":{\"c\":\"d:e,\"}}", "{\"a\": [1, 2], \"b\": {\"c\": \"d:e,\"}}"),
            ("{}", "{}"),
            ("", ""),
            ("{\"a\":", "{\"a\":"),
            ("[1,2]", "[1,2]"),
        ] {
            let mut message = Message::new(Role::Assistant, "");
            let (id, name) = (String::new(), String::new());
            message.tool_calls.push(ToolCall { id, name, arguments: given.into() });
            space(&mut message);
            assert_eq!(message.tool_calls[0].arguments, expected);
        }
    }

    #[test]
    fn the_least_recently_used_answers_are_forgotten_first() {
        let echoes = Echoes::default();
        let texts: Vec<_> = (0..=ANSWERS_MAX).map(|number| format!("prompt {number:06}")).collect();
        for (number, text) in texts.iter().enumerate() {
            if number == ANSWERS_MAX {
                assert_eq!(echoes.find(Owner(0), texts[0].as_bytes()), [(7..13, vec![1, 2])]);
            }
            echoes.remember(Owner(0), text.as_bytes(), 7..13, vec![1, 2]);
        }
        assert_eq!(echoes.find(Owner(0), texts[0].as_bytes()).len(), 1);
        assert_eq!(echoes.find(Owner(1), texts[0].as_bytes()), []);
        assert_eq!(echoes.find(Owner(0), texts[1].as_bytes()), []);
        assert_eq!(echoes.lock().tokens, 2 * ANSWERS_MAX);
        // One long answer replaces all others. A longer one is not remembered.
        echoes.remember(Owner(0), b"long", 2..4, vec![3; TOKENS_MAX]);
        assert_eq!(echoes.find(Owner(0), texts[0].as_bytes()), []);
        assert_eq!(echoes.find(Owner(0), b"long").len(), 1);
        echoes.remember(Owner(0), b"longer", 2..6, vec![3; TOKENS_MAX + 1]);
        assert_eq!((echoes.find(Owner(0), b"longer"), echoes.lock().tokens), (vec![], 0));
    }
}
