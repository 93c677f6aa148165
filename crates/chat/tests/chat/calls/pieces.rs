//! Answers in pieces: the cuts must not change the result.

use proptest::prelude::*;
use rope_cpu_chat::{Event, Format, Message, Role, ToolChoice, Tools};

use super::{Answer, TEMPLATES, call, format, parse, read, template, tools};

#[test]
fn a_call_that_is_cut_has_no_end() {
    for (name, answer, arguments) in [
        (
            "hermes",
            "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\"",
            r#"{"a": 1, "b""#,
        ),
        ("qwen3-coder", "<function=weather>\n<parameter=place>\nPar", "{\"place\":\"Par"),
        ("gemma4", "<|tool_call>call:weather{place:<|\"|>Par", "{\"place\":\"Par"),
    ] {
        let read = parse(format(name), "", answer);
        assert_eq!(
            read.calls,
            [("add".replace("add", &read.calls[0].0), None, arguments.into(), false)]
        );
        assert_eq!(read.text, "");
    }
}

#[test]
fn what_is_certain_is_not_held_back() {
    let mut parser = format("hermes").parser("", &tools(ToolChoice::Auto));
    let text = |piece: &str| vec![Event::Text(piece.into())];
    assert_eq!(parser.push("a <"), text("a"));
    assert_eq!(parser.push("b"), text(" <b"));
    assert_eq!(parser.push(" <tool_call>\n{\"name\": \"add\", "), []);
    let begun = parser.push("\"arguments\": {\"a\": ");
    let name = "add".to_owned();
    assert_eq!(
        begun,
        [Event::Call { index: 0, name, id: None }, Event::Arguments("{\"a\": ".into())]
    );
    assert_eq!(parser.push("1}"), [Event::Arguments("1}".into())]);
    assert_eq!(parser.push("}\n</tool_call>"), [Event::CallEnd]);
}

#[test]
fn nothing_is_held_back_where_nothing_can_follow() {
    let mut parser = format("hermes").parser("", &Tools::default());
    assert_eq!(parser.push(" "), []);
    assert_eq!(parser.push("a"), [Event::Text(" a".into())]);
    for piece in ["<tool", "<think>", " ", "\n"] {
        assert_eq!(parser.push(piece), [Event::Text(piece.into())]);
    }
}

/// Parts of the answers in the property tests.
const PARTS: &[&str] = &[
    "a",
    " ",
    "\n",
    "é",
    "<",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "{\"a\": 1}",
    "{\"place\": \"}\\\"\"}",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "{\"name\": \"add\", \"arguments\": ",
    "{\"name\": \"add\", \"parameters\": ",
    "<|python_tag|>",
    ";",
    "[TOOL_CALLS]",
    "add",
    "[ARGS]",
    "[CALL_ID]",
    "<function=weather>",
    "</function>",
    "<parameter=place>",
    "<parameter=days>",
    "</parameter>",
    "1",
    "<|start|>assistant",
    "<|channel|>",
    "analysis",
    "final",
    "commentary",
    " to=functions.add",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|tool_call>",
    "call:weather",
    "place:",
    "<|\"|>",
    "<tool_call|>",
    "<|channel>thought",
    "<channel|>",
    "{\"tool_call\": ",
    "```",
    "json",
    "<|tool_call|>",
    "<|calls_begin|>",
    "<|call_begin|>functions.",
    ":0<|args|>",
    "<|call_end|>",
    "<|calls_end|>",
    "<|tools_prefix|>[",
    "<|tools_suffix|>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<calls>",
    "<invoke name=\"",
    "<parameter name=\"",
    "\" string=\"true\">",
    "</invoke>",
    "<|tool_call_start|>",
    "add(a=",
    "'\\",
    ")",
    "<|tool_call_end|>",
];

/// Returns what a template writes after its prompt, for two calls after a text.
fn rendered(name: &str) -> (String, String) {
    let template = template(name);
    let user = Message::new(Role::User, "Question?");
    let calls = vec![
        call("weather", r#"{"place": "Paris, \"75\" {é}\n<x>", "days": 3}"#),
        call("add", r#"{"a": 1, "b": -2}"#),
    ];
    let assistant = Message { tool_calls: calls, ..Message::new(Role::Assistant, "I look.") };
    let tools = tools(ToolChoice::Auto);
    let prompt = template.render(std::slice::from_ref(&user), tools.all(), true).unwrap();
    let whole = template.render(&[user, assistant], tools.all(), false).unwrap_or_default();
    let same = prompt.chars().zip(whole.chars()).take_while(|(a, b)| a == b).count();
    (prompt, whole.chars().skip(same).collect())
}

#[test]
fn a_call_that_is_cut_anywhere_is_text_or_the_start_of_a_call() {
    for (name, ..) in TEMPLATES {
        let (format, (prompt, answer)) = (format(name), rendered(name));
        for (at, _) in answer.char_indices() {
            // `parse` compares with one character at a time.
            let read = parse(format.clone(), &prompt, &answer[..at]);
            if read.calls.is_empty() {
                let text = answer[..at].trim();
                assert!(
                    read.text.trim() == text || text.starts_with(read.text.trim()),
                    "{name}: {read:?}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn a_damaged_call_is_read_in_any_pieces(
        name in prop::sample::select(TEMPLATES.iter().map(|(name, ..)| *name).collect::<Vec<_>>()),
        damages in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..9_usize, prop::sample::select(PARTS)),
            1..4,
        ),
    ) {
        thread_local! {
            static ANSWERS: Vec<(&'static str, Format, (String, String))> =
                TEMPLATES.iter().map(|(name, ..)| (*name, format(name), rendered(name))).collect();
        }
        ANSWERS.with(|answers| {
            let (_, format, (prompt, answer)) = answers.iter().find(|(other, ..)| *other == name).unwrap();
            let mut characters: Vec<_> = answer.chars().collect();
            for (at, removed, part) in damages {
                let at = at.index(characters.len() + 1);
                let end = characters.len().min(at + removed);
                characters.splice(at..end, part.chars());
            }
            parse(format.clone(), prompt, &characters.into_iter().collect::<String>());
        });
    }

    #[test]
    fn an_answer_does_not_depend_on_its_pieces(
        parts in prop::collection::vec(prop::sample::select(PARTS), 0..20),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        name in prop::sample::select(TEMPLATES.iter().map(|(name, ..)| *name).collect::<Vec<_>>()),
    ) {
        thread_local! {
            static FORMATS: Vec<(&'static str, Format)> =
                TEMPLATES.iter().map(|(name, ..)| (*name, format(name))).collect();
        }
        let format = FORMATS.with(|formats| formats.iter().find(|(other, _)| *other == name).unwrap().1.clone());
        let text = parts.concat();
        let whole = parse(format.clone(), "", &text);
        let starts: Vec<_> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let mut ends: Vec<_> = cuts.iter().map(|cut| starts[cut.index(starts.len())]).collect();
        ends.extend([0, text.len()]);
        ends.sort_unstable();
        let pieces = ends.windows(2).map(|ends| &text[ends[0]..ends[1]]);
        prop_assert_eq!(whole, read(format.parser("", &tools(ToolChoice::Auto)), pieces));
    }

    #[test]
    fn text_is_not_lost(
        parts in prop::collection::vec(prop::sample::select(PARTS), 0..20),
        name in prop::sample::select(vec!["hermes", "llama3", "mistral", "qwen3-coder", "smollm2"]),
    ) {
        let text = parts.concat();
        let answer = read(format(name).without_reasoning().parser("", &tools(ToolChoice::None)), [&*text]);
        prop_assert_eq!(answer, Answer { text, ..Answer::default() });
    }
}
