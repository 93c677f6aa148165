//! Grammars that make tool calls valid, in llguidance's Lark: see
//! <https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md>.
//!
//! The text before a call is free, up to the call's marker, which ends a lazy terminal. After the
//! marker, only a call is possible. A marker that is a single token must be written as this token,
//! as the next prompt spells it. Free text may neither contain the token nor spell it.
//!
//! The JSON of a call has the white space of `tojson`, as in most templates.

mod patterns;

use std::fmt::Write;

use serde_json::{Map, Value as Json, json};

use super::{
    reasoning::Markers,
    tools::{Tool, Tools},
};

/// A token: an index into the vocabulary.
pub type Token = u32;

/// A grammar in progress.
pub(super) struct Lark<'c> {
    /// Returns the token of a marker that is a single token.
    control: &'c dyn Fn(&str) -> Option<Token>,
    /// The markers of reasoning before an answer.
    markers: Option<Markers>,
    /// Whether the prompt has started the reasoning.
    opened: bool,
    /// Whether an answer without calls has a schema, in the rule `formatted`.
    formatted: bool,
    rules: String,
}

/// The text before and after a block of code.
pub(super) const FENCE: &str = "```";

/// White space between the parts of a call. Models that write more seldom stop.
const SPACE: &str = r"[ \t\r\n]{0,4}";

impl<'c> Lark<'c> {
    pub fn new(
        control: &'c dyn Fn(&str) -> Option<Token>,
        markers: Option<Markers>,
        prompt: &str,
        schema: Option<&Json>,
    ) -> Self {
        let opened = markers.is_some_and(|markers| markers.opened_by(prompt));
        let formatted = schema.is_some();
        let mut lark = Self { control, markers, opened, formatted, rules: String::new() };
        lark.rule("TEXT", r"/(.|\n)*/");
        if let Some(schema) = schema {
            lark.rule("formatted", &format!("/{SPACE}/ %json {schema}"));
        }
        lark
    }

    /// Returns the rule of a text that ends with the answer.
    pub fn last_text(&self) -> &'static str {
        if self.formatted { "formatted" } else { "TEXT" }
    }

    /// Returns the complete grammar. The rule `answer` must have been added.
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

    /// Sets reasoning markers that belong to the format.
    pub fn reasons(&mut self, markers: Markers) {
        self.markers = Some(markers);
    }

    pub fn rule(&mut self, name: &str, body: &str) {
        // Writing to a string cannot fail.
        _ = writeln!(self.rules, "{name}: {body}");
    }

    /// Adds a rule for the shortest match of a terminal.
    pub fn lazy(&mut self, name: &str, terminal: &str) {
        self.rule(&format!("{name}[lazy]"), terminal);
    }

    /// Returns whether a marker starts with a special token.
    pub fn has(&self, marker: &str) -> bool {
        self.split(marker).is_some()
    }

    /// Writes a marker: a special token, a text, or both.
    pub fn marker(&self, marker: &str) -> String {
        match self.split(marker) {
            Some((token, "")) => format!("<[{token}]>"),
            Some((token, rest)) => format!("<[{token}]> {}", self.literal(rest)),
            None => self.literal(marker),
        }
    }

    /// Splits a marker into a special token and the text after it.
    fn split<'m>(&self, marker: &'m str) -> Option<(Token, &'m str)> {
        let whole = (self.control)(marker).map(|token| (token, ""));
        whole.or_else(|| {
            let (first, rest) = marker.split_at(marker.find('>')? + 1);
            (self.control)(first).map(|token| (token, rest))
        })
    }

    /// Writes a text.
    pub fn literal(&self, text: &str) -> String {
        json!(text).to_string()
    }

    /// Writes free text that ends with a marker.
    pub fn until(&mut self, marker: &str) -> String {
        if self.has(marker) {
            return format!("{} {}", self.text_without(&[marker]), self.marker(marker));
        }
        let name = format!("until_{}", self.rules.lines().count());
        self.lazy(&name, &format!("TEXT {}", self.literal(marker)));
        name
    }

    /// Adds a terminal for free text without some markers. Returns its name.
    fn text_without(&mut self, markers: &[&str]) -> String {
        let name = format!("TEXT_{}", self.rules.lines().count());
        let without = self.without(markers);
        self.rule(&name, &format!(r"/(.|\n)*/{without}"));
        name
    }

    /// Returns the end of a terminal that excludes single-token markers.
    fn without(&self, markers: &[&str]) -> String {
        let own = |marker: &&str| {
            let rest = self.split(marker)?.1;
            Some(escape(&marker[..marker.len() - rest.len()]))
        };
        let own: Vec<_> = markers.iter().filter_map(own).collect();
        match own.is_empty() {
            true => String::new(),
            false => format!(r" & ~/(.|\n)*({})(.|\n)*/", own.join("|")),
        }
    }

    /// Returns the text that starts reasoning; it is empty for a model that does not reason.
    fn reasoning_start(&self) -> &'static str {
        self.markers.map_or("", |markers| markers.start)
    }

    /// Writes words, which may be special tokens, with white space before each. They are one
    /// terminal up to a special token. If the answer has a schema, they are separate terminals,
    /// since the schema's terminals share their start.
    pub fn spaced(&self, words: &[&str]) -> String {
        let mut items = Vec::new();
        let mut pattern = String::new();
        for word in words {
            pattern += SPACE;
            if self.has(word) || self.formatted && !word.is_empty() {
                items.extend([format!("/{pattern}/"), self.marker(word)]);
                pattern.clear();
            } else {
                pattern += &escape(word);
            }
        }
        items.extend((!pattern.is_empty()).then(|| format!("/{pattern}/")));
        items.join(" ")
    }

    /// Writes JSON words with their white space, and any white space before the first. If the
    /// answer has a schema, each word may have any white space.
    fn json(&self, words: &[&str]) -> String {
        if self.formatted {
            // White space goes last, since JSON in a grammar does not start with it.
            let words: Vec<_> = words.iter().map(|word| word.trim()).chain([""]).collect();
            return self.spaced(&words);
        }
        format!("/{SPACE}{}/", escape(&words.concat()))
    }

    /// Writes a JSON object with the name of a tool and its arguments, after the words `lead`.
    pub fn json_call(&self, lead: &[&str], key: &str, tool: &Tool) -> String {
        let [name, key] = [&tool.name, key].map(|text| json!(text).to_string());
        let call = ["{", "\"name\"", ": ", &name, ", ", &key, ": "];
        let begin = self.json(&[lead, &call].concat());
        let end = if self.formatted { self.spaced(&["}"]) } else { self.literal("}") };
        format!("{begin} {} {end}", self.schema(&tool.parameters))
    }

    /// Writes a JSON value with a schema. Skips keywords and patterns that llguidance lacks, since
    /// the tool checks its arguments anyway. Objects have only the keys of their schema.
    pub fn schema(&self, schema: &Map<String, Json>) -> String {
        let mut schema = schema.clone();
        // llguidance would download an unknown draft.
        schema.remove("$schema");
        if schema.is_empty() {
            schema.insert("type".into(), json!("object"));
        }
        if schema.get("type").is_some_and(|kind| kind == "object") {
            schema.entry("properties").or_insert_with(|| json!({}));
            schema.entry("additionalProperties").or_insert(json!(false));
        }
        let options = match self.formatted {
            true => json!({"lenient": true}),
            false => json!({
                "lenient": true, "whitespace_flexible": false,
                "item_separator": ", ", "key_separator": ": ",
            }),
        };
        schema.insert("x-guidance".into(), options);
        let mut schema = Json::Object(schema);
        patterns::remove_unknown(&mut schema);
        format!("%json {schema}")
    }

    /// Adds an answer with a marker before each call. `calls` are the calls without the marker.
    pub fn marked_calls(&mut self, marker: &str, calls: &[String], tools: &Tools) {
        self.rule("call", &calls.join(" | "));
        let more = match tools.parallel() {
            true => format!("call ({} call)*", self.spaced(&[marker])),
            false => "call".into(),
        };
        self.marked(marker, &more, tools);
    }

    /// Adds an answer with one marker before all calls.
    pub fn marked(&mut self, marker: &str, calls: &str, tools: &Tools) {
        let body = if tools.required() {
            format!("{} {calls}", self.spaced(&[marker]))
        } else if self.formatted {
            format!("formatted | {} {calls}", self.spaced(&[marker]))
        } else if self.has(marker) {
            let text = self.text_without(&[marker, self.reasoning_start()]);
            let whole = self.whole_answers(&text, tools);
            format!("{text} ({} {calls})? | {whole}", self.marker(marker))
        } else {
            let whole = self.whole_answers("TEXT", tools);
            // Neither terminal starts with reasoning.
            let not = self.not_reasoning();
            self.rule("PLAIN", &format!("/(.|\\n)*/{not}"));
            self.lazy("before", &format!("/(.|\\n)*{}/{not}", escape(marker)));
            format!("PLAIN | before {calls} | {whole}")
        };
        self.rule("answer", &body);
    }

    /// Returns the calls without markers: see [`WholeAnswer`](super::format::json_call::WholeAnswer). Like a
    /// marker, their start is lazy. If the terminal `text` follows, the call was text.
    fn whole_answers(&mut self, text: &str, tools: &Tools) -> String {
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
                "{fenced} {arguments} {closed} {text} | {bare} {arguments} {end} {text}"
            ));
        }
        answers.join(" | ")
    }

    /// Adds an answer with calls at its start, after a brace or a special token.
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
        let tag = tag.filter(|tag| self.has(tag));
        let without = self.without(&[tag.unwrap_or_default(), self.reasoning_start()]);
        let tag = tag.map(|tag| self.marker(tag));
        let body = match (tools.required(), tag) {
            (true, Some(tag)) => format!("{tag}? {more}"),
            (true, None) => more,
            (false, Some(tag)) if self.formatted => format!("formatted | {tag}? {more}"),
            (false, None) if self.formatted => format!("formatted | {more}"),
            (false, tag) => {
                let not = self.not_reasoning();
                self.rule(
                    "PLAIN",
                    &format!("/([ \\t\\r\\n]*[^{{ \\t\\r\\n](.|\\n)*)?/{not}{without}"),
                );
                let tagged = tag.map(|tag| format!(" | PLAIN {tag} {more}")).unwrap_or_default();
                format!("PLAIN | {more}{tagged}")
            }
        };
        self.rule("answer", &body);
    }

    /// Returns the end of a terminal that excludes reasoning with text markers.
    fn not_reasoning(&self) -> String {
        match self.markers {
            Some(markers) if !self.opened && !self.has(markers.start) => {
                format!(" & ~/{SPACE}{}(.|\\n)*/", escape(markers.start))
            }
            _ => String::new(),
        }
    }
}

/// Escapes a text for a regular expression between slashes.
fn escape(text: &str) -> String {
    let escaped = |c: char| match c {
        '\n' => "\\n".into(),
        // Escape only these: an escaped angle bracket matches the end of a word.
        c if r"\.+*?()|[]{}^$#&-~/".contains(c) => format!("\\{c}"),
        c => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Parts of a rule in sequence. Adjacent texts are one terminal, since separate terminals may share
/// their start.
pub(super) struct Row<'l> {
    lark: &'l Lark<'l>,
    items: Vec<String>,
    text: String,
}

impl<'l> Row<'l> {
    pub fn new(lark: &'l Lark<'l>) -> Self {
        Self { lark, items: Vec::new(), text: String::new() }
    }

    /// Returns an empty row of the same grammar.
    pub fn empty(&self) -> Self {
        Self::new(self.lark)
    }

    /// Adds a text.
    pub fn literal(&mut self, text: &str) {
        self.text += text;
    }

    /// Adds a text that may be a special token.
    pub fn marker(&mut self, text: &str) {
        match (self.lark.control)(text) {
            Some(token) => self.item(&format!("<[{token}]>")),
            None => self.literal(text),
        }
    }

    /// Adds a JSON value with a schema.
    pub fn schema(&mut self, schema: &Map<String, Json>) {
        let schema = self.lark.schema(schema);
        self.item(&schema);
    }

    /// Adds a part of a rule.
    pub fn item(&mut self, item: &str) {
        if !self.text.is_empty() {
            self.items.push(self.lark.literal(&std::mem::take(&mut self.text)));
        }
        self.items.extend((!item.is_empty()).then(|| item.to_owned()));
    }

    /// Returns the parts as the body of a rule.
    pub fn finish(mut self) -> String {
        self.item("");
        self.items.join(" ")
    }
}
