//! Messages of chat completions: whole, or as the deltas of a stream.

use rope_cpu::generate::End;
use serde_json::{Value, json};

use super::{chat::finish_reason, tools::custom_input};
use crate::server::blocks::{Block, Change, Kind, Step, calls, text};

/// The form of the calls in a message, determined by the request.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// The names of custom tools.
    pub custom: Vec<String>,
    /// Whether the request has `functions`, so that the call is in `function_call`.
    pub of_functions: bool,
}

impl Calls {
    /// Returns the message of a whole answer.
    pub fn message(&self, blocks: &[Block]) -> Value {
        let mut message = json!({ "role": "assistant", "content": text(blocks, &Kind::Text) });
        let reasoning = text(blocks, &Kind::Reasoning);
        if !reasoning.is_empty() {
            message["reasoning_content"] = reasoning.into();
        }
        let all: Vec<_> = calls(blocks).collect();
        match all[..] {
            [] => {}
            [(_, name, block), ..] if self.of_functions => {
                message["function_call"] = function(name, &block.text);
            }
            _ => {
                let calls = all.into_iter().map(|(id, name, block)| self.call(id, name, block));
                message["tool_calls"] = calls.collect();
            }
        }
        message
    }

    /// Returns the delta of the message for a change of the blocks.
    pub fn delta(&self, blocks: &[Block], change: Change) -> Option<Value> {
        let block = &blocks[change.block];
        let index = || calls(&blocks[..change.block]).count();
        let begun = |mut call: Value| {
            call["index"] = index().into();
            json!({ "tool_calls": [call] })
        };
        match (&block.kind, change.step) {
            (Kind::Text, Step::More(text)) => Some(json!({ "content": text })),
            (Kind::Reasoning, Step::More(text)) => Some(json!({ "reasoning_content": text })),
            (Kind::Call { name, .. }, Step::Begin) if self.of_functions => {
                Some(json!({ "function_call": function(name, "") }))
            }
            (Kind::Call { .. }, Step::More(text)) if self.of_functions => {
                Some(json!({ "function_call": { "arguments": text } }))
            }
            // A custom tool's text is known only once its arguments are complete.
            (Kind::Call { name, .. }, Step::Begin | Step::More(_)) if self.is_custom(name) => None,
            (Kind::Call { id, name }, Step::End) if self.is_custom(name) => {
                Some(begun(self.call(id, name, block)))
            }
            (Kind::Call { id, name }, Step::Begin) => {
                Some(begun(self.call(id, name, &Block::new(block.kind.clone()))))
            }
            (Kind::Call { .. }, Step::More(text)) => {
                let call = json!({ "index": index(), "function": { "arguments": text } });
                Some(json!({ "tool_calls": [call] }))
            }
            (_, Step::Begin | Step::End) => None,
        }
    }

    /// Returns OpenAI's name for how an answer with these blocks ended.
    pub fn finish_reason(&self, end: &End, blocks: &[Block]) -> &'static str {
        match finish_reason(end) {
            "stop" if calls(blocks).next().is_none() => "stop",
            "stop" if self.of_functions => "function_call",
            "stop" => "tool_calls",
            reason => reason,
        }
    }

    fn is_custom(&self, name: &str) -> bool {
        self.custom.iter().any(|custom| custom == name)
    }

    fn call(&self, id: &str, name: &str, block: &Block) -> Value {
        if self.is_custom(name) {
            let input = custom_input(&block.text, block.is_open);
            let custom = json!({ "name": name, "input": input });
            return json!({ "id": id, "type": "custom", "custom": custom });
        }
        json!({ "id": id, "type": "function", "function": function(name, &block.text) })
    }
}

fn function(name: &str, arguments: &str) -> Value {
    json!({ "name": name, "arguments": arguments })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks() -> [Block; 2] {
        let call = Kind::Call { id: "1".into(), name: "f".into() };
        [
            Block { kind: Kind::Text, text: "t".into(), is_open: false },
            Block { kind: call, text: r#"{"input": "x"}"#.into(), is_open: false },
        ]
    }

    #[track_caller]
    fn assert_calls(calls: &Calls, message: Value, deltas: [Value; 3], reason: &str) {
        let mut expected = json!({ "role": "assistant", "content": "t" });
        expected.as_object_mut().unwrap().extend(message.as_object().unwrap().clone());
        assert_eq!(calls.message(&blocks()), expected);
        let steps = [Step::Begin, Step::More("{".into()), Step::End];
        let found =
            steps.map(|step| calls.delta(&blocks(), Change { block: 1, step }).unwrap_or_default());
        assert_eq!(found, deltas);
        assert_eq!(calls.finish_reason(&End::Model, &blocks()), reason);
        assert_eq!(calls.finish_reason(&End::TokensMax, &blocks()), "length");
        assert_eq!(calls.finish_reason(&End::Model, &blocks()[..1]), "stop");
    }

    #[test]
    fn calls_of_tools_have_an_identifier_and_an_index() {
        let function = |arguments: &str| json!({ "name": "f", "arguments": arguments });
        assert_calls(
            &Calls::default(),
            json!({ "tool_calls": [
                { "id": "1", "type": "function", "function": function(r#"{"input": "x"}"#) },
            ] }),
            [
                json!({ "tool_calls": [
                    { "id": "1", "type": "function", "function": function(""), "index": 0 },
                ] }),
                json!({ "tool_calls": [{ "index": 0, "function": { "arguments": "{" } }] }),
                Value::Null,
            ],
            "tool_calls",
        );
    }

    #[test]
    fn the_text_of_a_custom_tool_comes_at_its_end() {
        let call = json!({ "id": "1", "type": "custom", "custom": { "name": "f", "input": "x" } });
        let mut last = call.clone();
        last["index"] = 0.into();
        let custom = vec!["f".to_string()];
        assert_calls(
            &Calls { custom, of_functions: false },
            json!({ "tool_calls": [call] }),
            [Value::Null, Value::Null, json!({ "tool_calls": [last] })],
            "tool_calls",
        );
    }

    #[test]
    fn the_call_of_a_function_has_a_field_of_its_own() {
        assert_calls(
            &Calls { custom: Vec::new(), of_functions: true },
            json!({ "function_call": { "name": "f", "arguments": r#"{"input": "x"}"# } }),
            [
                json!({ "function_call": { "name": "f", "arguments": "" } }),
                json!({ "function_call": { "arguments": "{" } }),
                Value::Null,
            ],
            "function_call",
        );
    }
}
