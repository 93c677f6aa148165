//! Derives the format of a template from rendered calls: the texts around the names and arguments
//! of two calls.
//!
//! ```text
//! <calls> <call>alpha<args> {"key": "value"} </call> <call>omega<args> {"key": "value"} </call> </calls>
//! section before     after  arguments        close   before ...                                 section
//! ```
//!
//! Arguments are JSON or in tags. Text that both calls share belongs to each call. The rest is
//! around all calls, or between them.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::{
    pattern::{ID, Pattern},
    tags::{Tagged, Tags},
};
use crate::{
    arguments::{Arguments, JsonObject},
    cursor::{Cursor, Read, Stop},
    dialect::{Block, Dialect, Place, named},
    grammar::{Lark, Row},
    message::content,
    tools::{Tool, ToolChoice, Tools},
};

/// A format, derived from a template.
#[derive(Debug)]
pub struct Derived {
    /// The texts before and after all calls.
    section: [Pattern; 2],
    /// The text between calls.
    separator: Pattern,
    /// The text before the name of a tool.
    before: Pattern,
    /// The text between the name and the arguments.
    after: Pattern,
    /// The text after the arguments.
    close: Pattern,
    /// The texts around arguments; `None` for JSON.
    tags: Option<Arc<Tags>>,
}

const ALPHA: &str = "alpha_probe";
const OMEGA: &str = "omega_probe";
/// The identifiers of calls. Templates of Mistral models require this length.
const IDS: [&str; 2] = ["probe0001", "probe0002"];
const KEYS: [&str; 2] = ["first_key", "second_key"];
const VALUE: &str = "probe value";
const NUMBER: &str = "4711";
const SAID: &str = "probe answer";

/// The tools of the calls.
pub fn tools() -> Vec<Tool> {
    let parameters = json!({"type": "object", "properties": {
        (KEYS[0]): {"type": "string"},
        (KEYS[1]): {"type": "integer"},
    }});
    let parameters = parameters.as_object().cloned().unwrap_or_default();
    [ALPHA, OMEGA]
        .map(|name| Tool {
            name: name.into(),
            description: "A probe.".into(),
            parameters: parameters.clone(),
        })
        .into()
}

impl Derived {
    /// Derives the format of a template. `render` renders messages, with or without the start of an
    /// answer. `objects` is set if the template takes arguments as objects, and `parts` if it takes
    /// texts as lists of parts. `reasoning_end` is the text that ends reasoning.
    ///
    /// Returns `None` if the result does not parse the rendered calls.
    pub fn of(
        render: &dyn Fn(Json, bool) -> String,
        objects: bool,
        parts: bool,
        reasoning_end: Option<&str>,
    ) -> Option<Self> {
        let user = json!({"role": "user", "content": content(VALUE, parts)});
        let empty = content("", parts);
        let arguments = json!({(KEYS[0]): VALUE, (KEYS[1]): 4711});
        let arguments = if objects { arguments } else { json!(arguments.to_string()) };
        let calls: Vec<_> = [ALPHA, OMEGA]
            .into_iter()
            .zip(IDS)
            .map(|(name, id)| {
                let function = json!({"name": name, "arguments": arguments});
                json!({"id": id, "type": "function", "function": function})
            })
            .collect();
        let prompt = render(json!([user]), true);
        let answer = |message: Json| {
            let whole = render(json!([user, message]), false);
            after_common(&prompt, &whole).to_owned()
        };
        let called = |calls: &[Json]| {
            answer(json!({"role": "assistant", "content": empty, "tool_calls": calls}))
        };
        // Some templates write only one call, or refuse more.
        let two = called(&calls);
        let mut text = if two.contains(OMEGA) { two } else { called(&calls[..1]) };
        let said = answer(json!({"role": "assistant", "content": content(SAID, parts)}));
        let end = Pattern::new(said.split_once(SAID).map_or("", |(_, end)| end));
        let start = text.find(ALPHA)?;
        if let Some((empty, _)) = reasoning_end.and_then(|end| text[..start].rsplit_once(end)) {
            text.drain(..empty.len() + reasoning_end.map_or(0, str::len));
        }
        for id in IDS {
            text = text.replace(id, &ID.to_string());
        }
        let derived = Self::of_calls(&text, &end)?;
        derived.reads(&text.replace(ID, "id"), text.contains(OMEGA)).then_some(derived)
    }

    /// Derives the format of an answer with two calls, or with one. `end` follows every answer.
    fn of_calls(text: &str, end: &Pattern) -> Option<Self> {
        let (open, rest) = text.split_once(ALPHA)?;
        let open = Pattern::new(open);
        let first = Call::read(rest)?;
        let second = first.rest.split_once(OMEGA);
        let is_single = second.is_none();
        let last = second.map_or(Some(first.rest), |(_, rest)| Some(Call::read(rest)?.rest))?;
        let tail = Pattern::new(last);
        let mut tail = tail.split(tail.len() - tail.common_end(end)).0;
        let mut between = second.map_or_else(|| tail.clone(), |(text, _)| Pattern::new(text));
        let (mut after, mut tags) = (first.after, None);
        if let Some([value, join]) = first.tags {
            let end = join.common_start(&between);
            let (end, name) = join.split(end);
            // The texts before both names may differ only at the start, before the first call.
            if end.first().is_none() || name.common_end(&after) < name.len() {
                return None;
            }
            after = after.split(after.len() - name.len()).0;
            tail = tail.split(end.len()).1;
            between = between.split(end.len()).1;
            tags = Some(Tags { name, value, end, lines: first.lines, ends: Vec::new() });
        }
        let own = if is_single { open.len() } else { open.common_end(&between) };
        let (mut section, mut before) = open.split(open.len() - own);
        let own = if is_single { 0 } else { own };
        let (rest, mut again) = between.split(between.len() - own);
        let (close, mut separator) = rest.split(rest.common_start(&tail));
        before.move_space(&mut section);
        again.move_space(&mut separator);
        let section_end = tail.split(close.len()).1;
        let section = [section, section_end];
        let tags = match tags {
            Some(mut tags) => {
                let ends = [&close, &section[1]].into_iter().filter_map(Pattern::first);
                tags.ends = ends.map(str::to_owned).collect();
                tags.value.first()?;
                tags.name.first()?;
                Some(Arc::new(tags))
            }
            None => None,
        };
        let derived = Self { section, separator, before, after, close, tags };
        // A bare list cannot be distinguished from text.
        let opener = derived.opener()?;
        (is_marker(opener) || opener == "{").then_some(derived)
    }

    /// Returns whether the format parses the calls that it was derived from.
    fn reads(&self, text: &str, both: bool) -> bool {
        let Ok(tools) = Tools::new(tools(), ToolChoice::Auto, true) else { return false };
        let tools = tools.all();
        let mut cursor = Cursor::new(text, true);
        let names = if both { &[ALPHA, OMEGA][..] } else { &[ALPHA] };
        let Some(start) = text.find(self.opener().unwrap_or_default()) else { return false };
        if cursor.eat(&text[..start]).is_err() {
            return false;
        }
        let mut place = Place::Start;
        names.iter().all(|expected| {
            cursor.space();
            let Ok(Block::Call { name, mut arguments, .. }) = self.begin(&mut cursor, place, tools)
            else {
                return false;
            };
            let mut object = String::new();
            let read = arguments.read(cursor.rest(), false, &mut object);
            if !read.done || cursor.eat(&cursor.rest()[..read.read]).is_err() {
                return false;
            }
            let values = rope_cpu_json::parse(&object)
                .is_ok_and(|object: Json| object[KEYS[0]] == VALUE && object[KEYS[1]] == 4711);
            match self.end(&mut cursor) {
                Ok(true) => place = Place::Next,
                Ok(false) => place = Place::Start,
                Err(_) => return false,
            }
            name == *expected && values
        })
    }

    /// Returns the text that starts the first call.
    fn opener(&self) -> Option<&str> {
        self.section[0].first().or_else(|| self.before.first())
    }
}

impl Dialect for Derived {
    fn name(&self) -> &'static str {
        "derived"
    }

    fn openers(&self) -> Vec<&str> {
        let inner = self.before.first().filter(|text| is_marker(text));
        self.opener().into_iter().chain(inner).collect()
    }

    fn markers(&self) -> Vec<&str> {
        let [open, end] = &self.section;
        let mut all = vec![open, &self.before, &self.after, &self.close, &self.separator, end];
        if let Some(tags) = &self.tags {
            all.extend([&tags.name, &tags.value, &tags.end]);
        }
        all.into_iter().flat_map(Pattern::texts).filter(|text| is_marker(text)).collect()
    }

    fn begin(&self, cursor: &mut Cursor, place: Place, tools: &[Tool]) -> Read<Block> {
        if place == Place::Middle && self.opener().is_some_and(|opener| !is_marker(opener)) {
            return Err(Stop::Other);
        }
        if place != Place::Next {
            let mut ahead = cursor.clone();
            match self.section[0].read(&mut ahead) {
                Ok(_) => *cursor = ahead,
                // Models sometimes omit it.
                Err(Stop::Other) => {}
                Err(Stop::More) => return Err(Stop::More),
            }
        }
        let mut id = self.before.read(cursor)?;
        cursor.space();
        let mut after_id = None;
        let tool = named(cursor, tools, |after| {
            after_id = self.after.read(after)?;
            if !self.after.is_empty() {
                after.space();
            }
            match after.peek()? {
                '{' if self.tags.is_none() => Ok(()),
                // The rest of a longer name.
                c if c.is_alphanumeric() || "_-.:/".contains(c) => Err(Stop::Other),
                _ if self.tags.is_none() => Err(Stop::Other),
                _ => Ok(()),
            }
        })?;
        id = id.or(after_id);
        let arguments: Box<dyn Arguments> = match &self.tags {
            Some(tags) => Box::new(Tagged::new(tags.clone(), tool)),
            None => Box::new(JsonObject::default()),
        };
        Ok(Block::Call { name: tool.name.clone(), id, arguments })
    }

    fn end(&self, cursor: &mut Cursor) -> Read<bool> {
        let mut ahead = cursor.clone();
        self.close.read(&mut ahead)?;
        *cursor = ahead.clone();
        let [open, end] = &self.section;
        if open.is_empty() && end.is_empty() {
            return Ok(false);
        }
        let mut closed = cursor.clone();
        match end.read(&mut closed) {
            Ok(_) if !end.is_empty() => {
                *cursor = closed;
                return Ok(false);
            }
            Err(Stop::More) => return Err(Stop::More),
            _ => {}
        }
        self.separator.read(&mut ahead)?;
        let next = ahead.clone();
        ahead.space();
        ahead.eat(self.before.first().unwrap_or_default())?;
        *cursor = next;
        Ok(true)
    }

    fn grammar(&self, lark: &mut Lark, tools: &Tools) {
        let Some(opener) = self.opener() else { return };
        let text = self.tags.as_ref().map(|tags| tags.text(lark)).unwrap_or_default();
        let [open, end] = &self.section;
        // The rule of the answer writes the opener.
        let before = if open.is_empty() { &self.before.rest() } else { &self.before };
        // The text before a call and the call's start are one text, since the end of all calls may
        // start the same way.
        let calls = |lark: &Lark, lead: &Pattern| {
            let calls = tools.callable().map(|tool| {
                let mut row = Row::new(lark);
                lead.write(&mut row);
                if open.is_empty() && opener == "{" {
                    row.literal("{");
                }
                before.write(&mut row);
                row.literal(&tool.name);
                self.after.write(&mut row);
                match &self.tags {
                    Some(tags) => tags.write(&mut row, &text, tool),
                    None => row.schema(&tool.parameters),
                }
                self.close.write(&mut row);
                row.finish()
            });
            calls.collect::<Vec<_>>()
        };
        let written = |lark: &Lark, pattern: &Pattern| {
            let mut row = Row::new(lark);
            pattern.write(&mut row);
            row.finish()
        };
        if open.is_empty() {
            let calls = calls(lark, &Pattern::default());
            return match opener {
                "{" => {
                    let separator = written(lark, &self.separator);
                    lark.leading_calls(None, &calls, &separator, tools);
                }
                marker => lark.marked_calls(marker, &calls, tools),
            };
        }
        lark.rule("call", &calls(lark, &open.rest()).join(" | "));
        let more = if tools.parallel() { "next*" } else { "" };
        if tools.parallel() {
            lark.rule("next", &calls(lark, &self.separator).join(" | "));
        }
        let list = format!("call {more} {}", written(lark, end));
        lark.marked(opener, &list, tools);
    }
}

/// Returns whether a word is a marker and not JSON punctuation.
fn is_marker(word: &str) -> bool {
    word.len() > 1
}

/// A call of a rendered answer, after the name of its tool.
struct Call<'t> {
    /// The text before the arguments, or before the name of the first one.
    after: Pattern,
    /// With tags: the texts between a name and its value, and between arguments.
    tags: Option<[Pattern; 2]>,
    /// Whether line breaks surround values.
    lines: bool,
    /// The text after the arguments.
    rest: &'t str,
}

impl<'t> Call<'t> {
    fn read(text: &'t str) -> Option<Self> {
        let (before, rest) = text.split_once(KEYS[0])?;
        let quoted = before.strip_suffix('"').map(str::trim_end);
        if let Some(after) = quoted.and_then(|before| before.strip_suffix('{')) {
            let (mut reader, mut object) = (JsonObject::default(), String::new());
            let read = reader.read(&text[after.len()..], true, &mut object);
            let rest = &text[after.len() + read.read..];
            return Some(Self { after: Pattern::new(after), tags: None, lines: false, rest });
        }
        let (value, rest) = rest.split_once(VALUE)?;
        let (join, rest) = rest.split_once(KEYS[1])?;
        let (other, rest) = rest.split_once(NUMBER)?;
        let lines = value.ends_with('\n') && join.starts_with('\n');
        let value = Pattern::new(value.trim_end()).merge(&Pattern::new(other.trim_end()))?;
        let tags = Some([value, Pattern::new(join)]);
        Some(Self { after: Pattern::new(before), tags, lines, rest })
    }
}

/// Returns the part of a text after its common prefix with a prompt. Does not cut a marker.
fn after_common<'t>(prompt: &str, text: &'t str) -> &'t str {
    let same = prompt.chars().zip(text.chars()).take_while(|(a, b)| a == b);
    let len: usize = same.map(|(c, _)| c.len_utf8()).sum();
    let common = &text[..len];
    let within = common.rfind(['<', '[']).filter(|at| !common[*at..].contains(['>', ']']));
    &text[within.unwrap_or(len)..]
}
