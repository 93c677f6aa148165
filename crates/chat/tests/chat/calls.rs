//! Tool calls and reasoning: how templates read them, and how answers are parsed.

mod formats;
mod pieces;
mod prompts;
mod reasoning;
mod whole;

use rope_cpu_chat::{Event, Format, Parser, Template, Tool, ToolCall, ToolChoice, Tools};
use rope_cpu_json as json;

include!("templates.rs");

pub fn template(name: &str) -> Template {
    let (.., source) = TEMPLATES.iter().find(|(other, ..)| *other == name).unwrap();
    Template::new(source, "<bos>", "</s>").unwrap()
}

pub fn format(name: &str) -> Format {
    template(name).format()
}

pub fn tool(name: &str, parameters: &str) -> Tool {
    let description = format!("Computes {name}.");
    Tool { name: name.into(), description, parameters: json::parse(parameters).unwrap() }
}

/// Two tools: `weather` of a place, and `add` of two numbers.
pub fn tools(choice: ToolChoice) -> Tools {
    let weather = r#"{"type": "object", "properties": {"place": {"type": "string"},
        "days": {"type": ["integer", "null"]}}, "required": ["place"]}"#;
    let add = r#"{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"]}"#;
    Tools::new(vec![tool("weather", weather), tool("add", add)], choice, true).unwrap()
}

fn call(name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: "abcdefghi".into(), name: name.into(), arguments: arguments.into() }
}

/// All events of an answer, put together.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    text: String,
    reasoning: String,
    /// Name, identifier, arguments, and whether the call is complete.
    calls: Vec<(String, Option<String>, String, bool)>,
}

impl Answer {
    fn add(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Text(piece) => self.text += &piece,
                Event::Reasoning(piece) => self.reasoning += &piece,
                Event::Call { index, name, id } => {
                    assert_eq!(index, self.calls.len());
                    self.calls.push((name, id, String::new(), false));
                }
                Event::Arguments(piece) => self.calls.last_mut().unwrap().2 += &piece,
                Event::CallEnd => self.calls.last_mut().unwrap().3 = true,
            }
        }
    }
}

fn read<'p>(mut parser: Parser, pieces: impl IntoIterator<Item = &'p str>) -> Answer {
    let mut answer = Answer::default();
    for piece in pieces {
        answer.add(parser.push(piece));
    }
    answer.add(parser.finish());
    answer
}

/// Parses a whole answer. The result must not depend on the pieces that are pushed.
fn parse(format: Format, prompt: &str, text: &str) -> Answer {
    let tools = tools(ToolChoice::Auto);
    let whole = read(format.parser(prompt, &tools), [text]);
    let letters = read(format.parser(prompt, &tools), text.split_inclusive(|_: char| true));
    assert_eq!(whole, letters, "{text}");
    whole
}

fn complete(
    name: &str,
    id: Option<&str>,
    arguments: &str,
) -> (String, Option<String>, String, bool) {
    (name.into(), id.map(str::to_owned), arguments.into(), true)
}
