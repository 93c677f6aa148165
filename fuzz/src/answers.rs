//! Answers of chat models, read in pieces.

use rope_cpu_chat::{Event, Parser, Tool, ToolChoice, Tools};
use rope_cpu_json as json;

/// All events of an answer, joined.
#[derive(Debug, Default, PartialEq)]
pub struct Answer {
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
                Event::Arguments(piece) => self.calls.last_mut().expect("a call").2 += &piece,
                Event::CallEnd => self.calls.last_mut().expect("a call").3 = true,
            }
        }
    }
}

/// Parses an answer in pieces. The arguments of a complete call are JSON.
pub fn read<'p>(mut parser: Parser, pieces: impl IntoIterator<Item = &'p str>) -> Answer {
    let mut answer = Answer::default();
    pieces.into_iter().for_each(|piece| answer.add(parser.push(piece)));
    answer.add(parser.finish());
    answer
}

/// Returns two tools.
pub fn tools(choice: ToolChoice) -> Tools {
    let tool = |name: &str, parameters| Tool {
        name: name.into(),
        description: "A tool.".into(),
        parameters: json::parse(parameters).expect("JSON"),
    };
    let weather = r#"{"type": "object", "properties": {"place": {"type": "string"}, "days": {"type": "integer"}}}"#;
    let all = vec![tool("weather", weather), tool("add", r#"{"type": "object"}"#)];
    Tools::new(all, choice, true).expect("tools")
}
