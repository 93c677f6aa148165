//! Parses text, reasoning and tool calls from an answer during generation.

use std::{mem, sync::Arc};

use super::{
    arguments::{Arguments, Progress},
    cursor::{Cursor, Read, Stop},
    dialect::{Block, Dialect, Place},
    format::json_call::{WholeAnswer, WholeAnswerReader},
    reasoning::Markers,
    tools::{Tool, Tools},
};

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A piece of the text for the user.
    Text(String),
    /// A piece of the reasoning.
    Reasoning(String),
    /// A call starts.
    Call {
        /// The number of calls before it.
        index: usize,
        /// The name of the tool.
        name: String,
        /// The identifier, if the model has written one.
        id: Option<String>,
    },
    /// A piece of the last call's arguments. The pieces together are a JSON object, if the model
    /// wrote one.
    Arguments(String),
    /// The last call is complete. A truncated answer may end without this event.
    CallEnd,
}

/// Parses an answer during generation.
///
/// Push the text of an answer in pieces of any size; how you split it does not change the events as
/// a whole. The parser holds text back while it may become a marker.
///
/// A call is text if it is malformed before its arguments, or names a tool that may not be called.
/// After that point, only text outside the arguments is text. White space around markers is
/// dropped, and nothing else.
///
/// The text must contain the markers of [`Format::markers`](super::Format::markers), even if they
/// are control tokens.
///
/// ```
/// use rope_cpu_chat::{Event, Template, Tools};
///
/// let template = Template::new("{{ '<think></think>' }}", "", "")?;
/// let mut parser = template.format().parser("", &Tools::default());
/// let mut events = parser.push("<think>2 + 2</think>It is 4.");
/// events.extend(parser.finish());
/// assert_eq!(events, [Event::Reasoning("2 + 2".into()), Event::Text("It is 4.".into())]);
/// # Ok::<(), rope_cpu_chat::Error>(())
/// ```
#[derive(Debug)]
pub struct Parser {
    dialect: Arc<dyn Dialect>,
    /// The texts that start a block of the dialect. Empty if it is not looked for.
    openers: Vec<String>,
    markers: Option<Markers>,
    /// Whether to look for reasoning.
    reasons: bool,
    /// The tools that may be called.
    tools: Vec<Tool>,
    /// The text that is not parsed yet.
    held: String,
    state: State,
    /// A call that may be the whole answer, as far as the held text shows.
    whole_answer: WholeAnswerReader,
    /// Set while there is no text except white space.
    blank: bool,
    /// Set after a marker, to drop white space.
    trims: bool,
    /// The number of calls so far.
    calls: usize,
}

#[derive(Debug)]
enum State {
    Text,
    Reasoning(Markers),
    Arguments(Box<dyn Arguments>),
    /// The arguments of a call are complete.
    AfterArguments,
    /// Another call starts here.
    NextCall,
}

impl Parser {
    /// Creates a parser for an answer to `prompt`. The prompt may have started the reasoning.
    pub(super) fn new(
        dialect: Arc<dyn Dialect>,
        markers: Option<Markers>,
        reasons: bool,
        prompt: &str,
        tools: &Tools,
    ) -> Self {
        let markers = markers.filter(|_| reasons);
        let state = match markers.filter(|markers| markers.opened_by(prompt)) {
            Some(markers) => State::Reasoning(markers),
            None => State::Text,
        };
        let tools: Vec<_> = tools.callable().cloned().collect();
        let reads = !tools.is_empty() || dialect.reasoning().is_some();
        let openers = if reads { dialect.openers() } else { Vec::new() };
        let openers = openers.into_iter().map(str::to_owned).collect();
        Self {
            dialect,
            openers,
            markers,
            reasons,
            tools,
            held: String::new(),
            trims: matches!(state, State::Reasoning(_)),
            state,
            whole_answer: WholeAnswerReader::default(),
            blank: true,
            calls: 0,
        }
    }

    /// Adds a piece of the answer. Returns the events that are certain.
    pub fn push(&mut self, piece: &str) -> Vec<Event> {
        self.held += piece;
        self.read(false)
    }

    /// Ends the answer. Returns the held-back events.
    pub fn finish(mut self) -> Vec<Event> {
        self.read(true)
    }

    /// Returns whether the text so far ends within reasoning.
    pub fn is_reasoning(&self) -> bool {
        self.reasoning().is_some()
    }

    /// Returns the text that would end the reasoning; `None` if the answer is not within reasoning.
    pub(super) fn reasoning(&self) -> Option<&'static str> {
        match self.state {
            State::Reasoning(markers) => Some(markers.forced),
            _ => None,
        }
    }

    /// Parses the held text, as far as its meaning is certain.
    fn read(&mut self, complete: bool) -> Vec<Event> {
        let mut events = Vec::new();
        let mut held = mem::take(&mut self.held);
        let mut rest = held.as_str();
        while let Ok(read) = self.step(rest, complete, &mut events) {
            rest = &rest[read..];
        }
        match complete {
            true if !rest.is_empty() => events.push(Event::Text(rest.into())),
            _ => {
                // Change it in place, since the held text may be long.
                let read = held.len() - rest.len();
                held.drain(..read);
                self.held = held;
            }
        }
        events
    }

    /// Parses the start of `text`, and returns the number of bytes. If that is 0, the state has
    /// changed.
    fn step(&mut self, text: &str, complete: bool, events: &mut Vec<Event>) -> Read<usize> {
        if self.trims {
            let space = text.len() - text.trim_start().len();
            self.trims = space == text.len();
            if space > 0 {
                return Ok(space);
            }
        }
        match &mut self.state {
            State::Text => match self.whole_answer(text, complete) {
                Ok(call) => {
                    let WholeAnswer { name, id, arguments } = call;
                    events.push(Event::Call { index: self.calls, name, id });
                    events.extend([Event::Arguments(arguments), Event::CallEnd]);
                    self.calls += 1;
                    Ok(text.len())
                }
                Err(Stop::More) => Err(Stop::More),
                Err(Stop::Other) => self.text(text, complete, events),
            },
            State::Reasoning(markers) => {
                let markers = *markers;
                if let Some(at) = text.find(markers.end) {
                    let piece = text[..at].trim_end();
                    events.extend((!piece.is_empty()).then(|| Event::Reasoning(piece.into())));
                    self.enter(State::Text);
                    return Ok(at + markers.end.len());
                }
                let piece = certain(text, [markers.end].into_iter(), complete);
                events.extend((!piece.is_empty()).then(|| Event::Reasoning(piece.into())));
                read_some(piece)
            }
            State::Arguments(arguments) => {
                let mut object = String::new();
                let Progress { read, done } = arguments.read(text, complete, &mut object);
                events.extend((!object.is_empty()).then_some(Event::Arguments(object)));
                match done {
                    true => self.state = State::AfterArguments,
                    false if read == 0 => return Err(Stop::More),
                    false => {}
                }
                Ok(read)
            }
            State::AfterArguments => {
                let mut cursor = Cursor::new(text, complete);
                let next = match self.dialect.end(&mut cursor) {
                    Err(Stop::More) => return Err(Stop::More),
                    Err(Stop::Other) => false,
                    Ok(next) => next,
                };
                events.push(Event::CallEnd);
                self.enter(if next { State::NextCall } else { State::Text });
                Ok(cursor.position())
            }
            State::NextCall => match self.block(text, complete, Place::Next) {
                Ok((read, block)) => {
                    self.begin(block, &text[..read], events);
                    Ok(read)
                }
                Err(Stop::Other) => {
                    self.state = State::Text;
                    Ok(0)
                }
                Err(Stop::More) => Err(Stop::More),
            },
        }
    }

    /// Parses a call without markers, if the answer has nothing else after reasoning.
    fn whole_answer(&mut self, text: &str, complete: bool) -> Read<WholeAnswer> {
        if !self.blank || self.calls > 0 || self.tools.is_empty() {
            return Err(Stop::Other);
        }
        self.whole_answer.read(text, complete, &self.tools)
    }

    /// Parses text up to a marker, and the marker.
    fn text(&mut self, text: &str, complete: bool, events: &mut Vec<Event>) -> Read<usize> {
        let mut from = 0;
        while let Some(at) = self.openers().filter_map(|o| text[from..].find(o)).min() {
            let at = from + at;
            let before = text[..at].trim_end();
            let place = match self.blank && before.is_empty() {
                true => Place::Start,
                false => Place::Middle,
            };
            match self.block(&text[at..], complete, place) {
                Ok((read, block)) => {
                    self.emit(before, events);
                    self.begin(block, &text[at..at + read], events);
                    return Ok(at + read);
                }
                Err(Stop::More) if before.is_empty() => return Err(Stop::More),
                Err(Stop::More) => {
                    self.emit(before, events);
                    return Ok(before.len());
                }
                Err(Stop::Other) => from = at + text[at..].chars().next().map_or(1, char::len_utf8),
            }
        }
        let piece = &text[..from + certain(&text[from..], self.openers(), complete).len()];
        self.emit(piece, events);
        read_some(piece)
    }

    /// Returns the texts that may start something other than text.
    fn openers(&self) -> impl Iterator<Item = &str> + Clone {
        let start = self.markers.map(|markers| markers.start).filter(|_| self.blank);
        self.openers.iter().map(String::as_str).chain(start)
    }

    /// Parses a marker and the text that belongs to it.
    fn block(&self, text: &str, complete: bool, place: Place) -> Read<(usize, Block)> {
        let mut cursor = Cursor::new(text, complete);
        if let Some(markers) = self.markers
            && place == Place::Start
            && cursor.maybe(markers.start)?
        {
            return Ok((cursor.position(), Block::Reasoning(markers)));
        }
        let block = self.dialect.begin(&mut cursor, place, &self.tools)?;
        Ok((cursor.position(), block))
    }

    /// Starts a block. `header` is its text.
    fn begin(&mut self, block: Block, header: &str, events: &mut Vec<Event>) {
        match block {
            Block::Text => self.enter(State::Text),
            Block::Reasoning(markers) if self.reasons => self.enter(State::Reasoning(markers)),
            Block::Reasoning(_) => self.emit(header, events),
            Block::Call { name, id, arguments } => {
                events.push(Event::Call { index: self.calls, name, id });
                self.calls += 1;
                self.state = State::Arguments(arguments);
            }
        }
    }

    /// Enters a state after a marker.
    fn enter(&mut self, state: State) {
        self.state = state;
        self.trims = true;
    }

    fn emit(&mut self, text: &str, events: &mut Vec<Event>) {
        if !text.is_empty() {
            self.blank &= text.trim().is_empty();
            events.push(Event::Text(text.into()));
        }
    }
}

/// Returns the start of a text that cannot become part of a marker, or of white space before one.
fn certain<'t, 'm>(
    text: &'t str,
    markers: impl Iterator<Item = &'m str> + Clone,
    complete: bool,
) -> &'t str {
    let may_begin = |tail: &str| markers.clone().any(|marker| marker.starts_with(tail));
    let complete = complete || markers.clone().next().is_none();
    match text.char_indices().find(|(at, _)| may_begin(&text[*at..])) {
        _ if complete => text,
        Some((at, _)) => text[..at].trim_end(),
        None => text.trim_end(),
    }
}

fn read_some(piece: &str) -> Read<usize> {
    if piece.is_empty() { Err(Stop::More) } else { Ok(piece.len()) }
}
