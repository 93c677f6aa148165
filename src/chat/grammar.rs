//! Grammars for answers whose calls are valid, in llguidance's form of Lark: see
//! <https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md>.
//!
//! The text before a call is free up to the marker of the call, which ends a lazy terminal; from there on,
//! only a call is possible. A marker that is a control token is no text: free text ends before it.

use std::fmt::Write;

use serde_json::{Map, Value as Json, json};

use super::{Tool, Tools, format::FENCE, reasoning::Markers};
use crate::Token;

/// A grammar that is being written.
pub(super) struct Lark<'c> {
    /// Returns the control token with a name.
    control: &'c dyn Fn(&str) -> Option<Token>,
    /// The markers of reasoning with which an answer may begin.
    markers: Option<Markers>,
    /// Whether the prompt has begun the reasoning.
    opened: bool,
    rules: String,
}

/// White space between the parts of a call. Models that write more of it seldom stop.
const SPACE: &str = r"[ \t\r\n]{0,4}";

impl<'c> Lark<'c> {
    pub fn new(
        control: &'c dyn Fn(&str) -> Option<Token>,
        markers: Option<Markers>,
        prompt: &str,
    ) -> Self {
        let opened = markers.is_some_and(|markers| markers.opened_by(prompt));
        let mut lark = Self { control, markers, opened, rules: String::new() };
        lark.rule("TEXT", r"/(.|\n)*/");
        lark
    }

    /// The whole grammar, after the rule `answer` was added.
    pub fn finish(mut self) -> String {
        let reasoning = match self.markers {
            None => "",
            Some(markers) if self.opened => &format!("{} ", self.until(markers.end)),
            Some(markers) => match self.has(markers.start) {
                true => &format!("({} {})? ", self.marker(markers.start), self.until(markers.end)),
                false => {
                    let (start, end) = (escape(markers.start), escape(markers.end));
                    self.lazy("reasoning", &format!("/{SPACE}{start}(.|\\n)*{end}/"));
                    "reasoning? "
                }
            },
        };
        format!("start: {reasoning}answer\n{}", self.rules)
    }

    /// Sets the markers of reasoning, for a format that has its own.
    pub fn reasons(&mut self, markers: Markers) {
        self.markers = Some(markers);
    }

    pub fn rule(&mut self, name: &str, body: &str) {
        // Writing to a string does not fail.
        _ = writeln!(self.rules, "{name}: {body}");
    }

    /// Adds a rule for the shortest text of a terminal.
    pub fn lazy(&mut self, name: &str, terminal: &str) {
        self.rule(&format!("{name}[lazy]"), terminal);
    }

    /// Returns whether a marker begins with a control token.
    pub fn has(&self, marker: &str) -> bool {
        self.split(marker).is_some()
    }

    /// A marker: a control token and a text, of which one may be missing.
    pub fn marker(&self, marker: &str) -> String {
        match self.split(marker) {
            Some((token, "")) => format!("<[{token}]>"),
            Some((token, rest)) => format!("<[{token}]> {}", self.literal(rest)),
            None => self.literal(marker),
        }
    }

    /// The control token with which a marker begins, and the text after it.
    fn split<'m>(&self, marker: &'m str) -> Option<(Token, &'m str)> {
        let whole = (self.control)(marker).map(|token| (token, ""));
        whole.or_else(|| {
            let (first, rest) = marker.split_at(marker.find('>')? + 1);
            (self.control)(first).map(|token| (token, rest))
        })
    }

    /// A text.
    pub fn literal(&self, text: &str) -> String {
        json!(text).to_string()
    }

    /// Free text up to a marker, and the marker.
    pub fn until(&mut self, marker: &str) -> String {
        if self.has(marker) {
            return format!("TEXT {}", self.marker(marker));
        }
        let name = format!("until_{}", self.rules.lines().count());
        self.lazy(&name, &format!("TEXT {}", self.literal(marker)));
        name
    }

    /// Words with white space before each: control tokens or texts.
    pub fn spaced(&self, words: &[&str]) -> String {
        let mut items = Vec::new();
        let mut pattern = String::new();
        for word in words {
            pattern += SPACE;
            match self.has(word) {
                true => items.extend([format!("/{pattern}/"), self.marker(word)]),
                false => pattern += &escape(word),
            }
            if self.has(word) {
                pattern.clear();
            }
        }
        items.extend((!pattern.is_empty()).then(|| format!("/{pattern}/")));
        items.join(" ")
    }

    /// A JSON object with the name of a tool and its arguments.
    pub fn json_call(&self, key: &str, tool: &Tool) -> String {
        let [name, key] = [&tool.name, key].map(|text| json!(text).to_string());
        // White space ends it, as JSON in a grammar does not begin with any.
        let begin = self.spaced(&["{", "\"name\"", ":", &name, ",", &key, ":", ""]);
        format!("{begin} {} {}", self.schema(&tool.parameters), self.spaced(&["}"]))
    }

    /// A JSON value with a schema. Keywords that llguidance does not have are skipped, as the tool itself
    /// checks its arguments, and an object has no keys but those of its schema.
    pub fn schema(&self, schema: &Map<String, Json>) -> String {
        let mut schema = schema.clone();
        // A draft that is not known would be fetched.
        schema.remove("$schema");
        if schema.is_empty() {
            schema.insert("type".into(), json!("object"));
        }
        if schema.get("type").is_some_and(|kind| kind == "object") {
            schema.entry("properties").or_insert_with(|| json!({}));
            schema.entry("additionalProperties").or_insert(json!(false));
        }
        schema.insert("x-guidance".into(), json!({"lenient": true}));
        format!("%json {}", Json::Object(schema))
    }

    /// Adds the answer of a format whose calls follow a marker each. `calls` are the calls without it.
    pub fn marked_calls(&mut self, marker: &str, calls: &[String], tools: &Tools) {
        self.rule("call", &calls.join(" | "));
        let more = match tools.parallel() {
            true => format!("call ({} call)*", self.spaced(&[marker])),
            false => "call".into(),
        };
        self.marked(marker, &more, tools);
    }

    /// Adds the answer of a format whose calls, all together, follow a marker.
    pub fn marked(&mut self, marker: &str, calls: &str, tools: &Tools) {
        let body = if tools.required() {
            format!("{} {calls}", self.spaced(&[marker]))
        } else if self.has(marker) {
            let whole = self.whole_answers(tools);
            format!("TEXT ({} {calls})? | {whole}", self.marker(marker))
        } else {
            let whole = self.whole_answers(tools);
            // Either terminal begins with what is not reasoning.
            let not = self.not_reasoning();
            self.rule("PLAIN", &format!("/(.|\\n)*/{not}"));
            self.lazy("before", &format!("/(.|\\n)*{}/{not}", escape(marker)));
            format!("PLAIN | before {calls} | {whole}")
        };
        self.rule("answer", &body);
    }

    /// Returns the calls without markers, see [`WholeAnswer`](super::format::WholeAnswer): their beginning is lazy as markers are. What follows
    /// is free, as it shows that the call was text.
    fn whole_answers(&mut self, tools: &Tools) -> String {
        let mut answers = Vec::new();
        for (index, tool) in tools.callable().enumerate() {
            let name = json!(tool.name).to_string();
            let begin =
                ["{", "\"name\"", ":", &name, ",", "\"arguments\"", ":"].map(escape).join(SPACE);
            let [fenced, bare] = ["fenced", "bare"].map(|kind| format!("{kind}_{index}"));
            self.lazy(&fenced, &format!("/{SPACE}{FENCE}(json)?{SPACE}{begin}/"));
            self.lazy(&bare, &format!("/{SPACE}{begin}/"));
            let arguments = format!("arguments_{index}");
            self.rule(&arguments, &format!("/{SPACE}/ {}", self.schema(&tool.parameters)));
            let [closed, end] = [&["}", FENCE][..], &["}"]].map(|words| self.spaced(words));
            answers.push(format!(
                "{fenced} {arguments} {closed} TEXT | {bare} {arguments} {end} TEXT"
            ));
        }
        answers.join(" | ")
    }

    /// Adds the answer of a format whose calls are its beginning, with a brace, or follow a control token.
    pub fn leading_calls(
        &mut self,
        tag: Option<&str>,
        calls: &[String],
        separator: &str,
        tools: &Tools,
    ) {
        self.rule("call", &calls.join(" | "));
        let more =
            if tools.parallel() { format!("call ({separator} call)*") } else { "call".into() };
        let tag = tag.filter(|tag| self.has(tag)).map(|tag| self.marker(tag));
        let body = match (tools.required(), tag) {
            (true, Some(tag)) => format!("{tag}? {more}"),
            (true, None) => more,
            (false, tag) => {
                let not = self.not_reasoning();
                self.rule("PLAIN", &format!("/([ \\t\\r\\n]*[^{{ \\t\\r\\n](.|\\n)*)?/{not}"));
                let tagged = tag.map(|tag| format!(" | PLAIN {tag} {more}")).unwrap_or_default();
                format!("PLAIN | {more}{tagged}")
            }
        };
        self.rule("answer", &body);
    }

    /// Returns the end of a terminal that excludes reasoning, if it is written as text.
    fn not_reasoning(&self) -> String {
        match self.markers {
            Some(markers) if !self.opened && !self.has(markers.start) => {
                format!(" & ~/{SPACE}{}(.|\\n)*/", escape(markers.start))
            }
            _ => String::new(),
        }
    }
}

/// A text as a part of a regular expression between slashes.
fn escape(text: &str) -> String {
    let escaped = |c: char| match c {
        '\n' => "\\n".into(),
        // Not all signs: escaped angle brackets are ends of words.
        c if r"\.+*?()|[]{}^$#&-~/".contains(c) => format!("\\{c}"),
        c => c.to_string(),
    };
    text.chars().map(escaped).collect()
}
