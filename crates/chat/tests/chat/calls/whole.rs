//! Answers that are only a call in JSON.

use rope_cpu_chat::{Event, ToolChoice};

use super::{Answer, TEMPLATES, complete, format, parse, read, tools};

#[test]
fn a_whole_answer_in_json_is_a_call() {
    let call = r#"{"name": "add", "arguments": {"a": 1, "b": "```"}}"#;
    let arguments = r#"{"a": 1, "b": "```"}"#;
    for (name, ..) in TEMPLATES {
        for answer in [
            format!("```json\n{call}\n```"),
            format!("\n```{call}```\n"),
            format!("```\n{call}\n```"),
            format!(" {call}\n"),
            format!("{{{call}}}"),
            format!("```json\n{{{call}}}\n```"),
            r#"{"type": "function", "name": "add", "arguments": ARGUMENTS}"#
                .replace("ARGUMENTS", arguments),
        ] {
            let read = parse(format(name), "", &answer);
            assert_eq!(read.text, "", "{name}: {answer}");
            assert_eq!(read.calls, [complete("add", None, arguments)], "{name}: {answer}");
        }
    }
    let answer =
        parse(format("hermes"), "", &format!("<think>\nWhy?\n</think>\n\n```json\n{call}\n```"));
    assert_eq!((answer.reasoning.as_str(), answer.text.as_str()), ("Why?", ""));
    assert_eq!(answer.calls, [complete("add", None, arguments)]);
}

#[test]
fn json_that_is_not_a_whole_call_is_text() {
    let call = r#"{"name": "add", "arguments": {"a": 1}}"#;
    for answer in [
        format!("```json\n{call}\n```\nThis adds."),
        format!("So:\n```json\n{call}\n```"),
        format!("```json\n{call}"),
        format!("```json\n{call}\n``"),
        format!("```python\n{call}\n```"),
        format!("{call} {call}"),
        format!("{{{call}"),
        format!("[{call}]"),
        call.replace("add", "no"),
        call.replace(r#"{"a": 1}"#, "1"),
        call.replace(r#"{"a": 1}"#, "{a: 1}"),
        r#"{"name": "add"}"#.into(),
        r#"{"arguments": {}, "name": "add"}"#.into(),
        r#"{"name": "add", "arguments": {"a"#.into(),
        "```".into(),
        "{".into(),
    ] {
        for name in ["hermes", "mistral", "qwen3-coder", "smollm2"] {
            let read = parse(format(name), "", &answer);
            assert_eq!(read, Answer { text: answer.clone(), ..Answer::default() }, "{name}");
        }
    }
}

#[test]
fn json_is_held_back_while_it_may_be_a_call() {
    let mut parser = format("hermes").parser("", &tools(ToolChoice::Auto));
    for piece in ["```", "json", "\n{\"name\": \"add\"", ", "] {
        assert_eq!(parser.push(piece), []);
    }
    let text = "```json\n{\"name\": \"add\", \"sum\": 1";
    assert_eq!(parser.push("\"sum\": 1"), [Event::Text(text.into())]);
    assert_eq!(parser.push("}"), [Event::Text("}".into())]);
    let mut parser = format("hermes").parser("", &tools(ToolChoice::Auto));
    assert_eq!(parser.push("```rust"), [Event::Text("```rust".into())]);
}

#[test]
fn a_whole_answer_is_read_alike_in_any_pieces() {
    let call = r#"{"name": "add", "arguments": {"a": [{}, {"b": "\"}"}], "c": "`"}, "id": "x}"}"#;
    for answer in [format!("```json\n{call}\n```\n"), format!(" {call} "), format!("{call}}}")] {
        // `parse` compares with one character at a time.
        let whole = parse(format("hermes"), "", &answer);
        assert_eq!(whole.calls.len(), usize::from(!answer.ends_with("}}")), "{answer}");
        for first in 0..answer.len() {
            for second in first..answer.len() {
                let pieces = [&answer[..first], &answer[first..second], &answer[second..]];
                let parser = format("hermes").parser("", &tools(ToolChoice::Auto));
                assert_eq!(read(parser, pieces), whole, "{pieces:?}");
            }
        }
    }
}
