//! Calls of tools and reasoning: how templates read them, and how answers are parsed.

use proptest::prelude::*;
use rope_cpu::{
    chat::{
        Budget, Error, Event, Format, Message, Parser, Role, Template, Tool, ToolCall, ToolChoice,
        Tools,
    },
    json,
};

/// The templates of all formats, with the format of each.
pub const TEMPLATES: &[(&str, &str, &str)] = &[
    ("hermes", "hermes", include_str!("../data/chat/tools/hermes.jinja")),
    ("qwen3-coder", "qwen3-coder", include_str!("../data/chat/tools/qwen3-coder.jinja")),
    ("llama3", "llama3", include_str!("../data/chat/tools/llama3.jinja")),
    ("mistral", "mistral", include_str!("../data/chat/tools/mistral.jinja")),
    ("mistral-args", "mistral", include_str!("../data/chat/tools/mistral-args.jinja")),
    ("harmony", "harmony", include_str!("../data/chat/tools/harmony.jinja")),
    ("gemma4", "gemma4", include_str!("../data/chat/tools/gemma4.jinja")),
    ("smollm2", "generic", include_str!("../data/chat/smollm2.jinja")),
    ("gemma3", "generic", include_str!("../data/chat/gemma3.jinja")),
];

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

/// All events of an answer together.
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

/// What a whole answer is, which must not depend on the pieces that are pushed.
fn parse(format: Format, prompt: &str, text: &str) -> Answer {
    let tools = tools(ToolChoice::Auto);
    let whole = read(format.parser(prompt, &tools), [text]);
    let letters = read(format.parser(prompt, &tools), text.split_inclusive(|_: char| true));
    assert_eq!(whole, letters, "{text}");
    whole
}

#[test]
fn a_format_is_found_by_the_call_that_a_template_renders() {
    for (name, format, _) in TEMPLATES {
        assert_eq!(template(name).format().name(), *format, "{name}");
    }
}

#[test]
fn a_rendered_call_is_read_again() {
    let arguments = r#"{"place":"Paris, \"75\" {é}\n<x>","days":3}"#;
    for (name, ..) in TEMPLATES {
        let template = template(name);
        let user = Message::new(Role::User, "Question?");
        let assistant = Message {
            tool_calls: vec![call("weather", arguments)],
            ..Message::new(Role::Assistant, "")
        };
        let tools = tools(ToolChoice::Auto);
        let before = template.render(std::slice::from_ref(&user), tools.all(), true).unwrap();
        let whole = template.render(&[user, assistant], tools.all(), false).unwrap();
        let same = before.chars().zip(whole.chars()).take_while(|(a, b)| a == b);
        let answer: String = whole.chars().skip(same.count()).collect();
        let answer = parse(template.format(), &before, &answer);
        assert_eq!(answer.calls.len(), 1, "{name}: {whole}");
        let (found, _, found_arguments, complete) = &answer.calls[0];
        assert_eq!(found, "weather");
        assert!(complete, "{name}");
        let value = |text: &str| json::parse::<serde_json::Value>(text).unwrap();
        assert_eq!(value(found_arguments), value(arguments), "{name}");
    }
}

#[test]
fn tools_and_results_are_in_the_prompt() {
    for (name, ..) in TEMPLATES {
        let messages = [
            Message::new(Role::User, "Question?"),
            Message {
                tool_calls: vec![call("add", r#"{"a": 1, "b": 41}"#)],
                ..Message::new(Role::Assistant, "")
            },
            Message {
                tool_call_id: "abcdefghi".into(),
                name: "add".into(),
                ..Message::new(Role::Tool, "forty-two")
            },
        ];
        let tools = tools(ToolChoice::Auto);
        let prompt = template(name).render(&messages, tools.all(), true).unwrap();
        for part in ["weather", "add", "41", "forty-two"] {
            assert!(prompt.contains(part), "{name}: {part} in {prompt}");
        }
    }
}

#[test]
fn reasoning_before_a_call_is_in_the_prompt() {
    let call = Message {
        reasoning: "Because.".into(),
        tool_calls: vec![call("add", "{}")],
        ..Message::new(Role::Assistant, "I add.")
    };
    for name in ["hermes", "harmony"] {
        let template = template(name);
        let prompt = template.render(std::slice::from_ref(&call), &[], false).unwrap();
        assert!(prompt.contains("Because.") && prompt.contains("I add."), "{prompt}");
    }
}

#[test]
fn a_template_without_tools_has_them_in_the_system_message() {
    let tools =
        Tools::new(vec![tool("f", r#"{"type": "object"}"#)], ToolChoice::Auto, true).unwrap();
    let messages = [Message::new(Role::System, "Be brief."), Message::new(Role::User, "Hi")];
    let prompt = template("smollm2").render(&messages, tools.all(), true).unwrap();
    assert!(prompt.starts_with(
        "<|im_start|>system\nBe brief.\n\nYou can call these functions:\n\
         {\"name\":\"f\",\"description\":\"Computes f.\",\"parameters\":{\"type\":\"object\"}}\n"
    ));
    let asked = template("smollm2").render(&messages[1..], tools.all(), true).unwrap();
    assert!(asked.starts_with("<|im_start|>system\nYou can call these functions:\n"), "{asked}");
}

#[test]
fn arguments_are_an_object_or_a_text_as_the_template_reads_them() {
    let render = |source: &str, arguments: &str| {
        let message =
            Message { tool_calls: vec![call("f", arguments)], ..Message::new(Role::Assistant, "") };
        let around = "{{ tools | tojson if tools else '' }}{% for m in messages %}\
                      {% for c in m.tool_calls %}<tool_call>{\"name\": \"{{ c.function.name }}\", \
                      \"arguments\": ARGUMENTS}</tool_call>{% endfor %}{% endfor %}";
        let source = around.replace("ARGUMENTS", source);
        Template::new(&source, "", "").unwrap().render(&[message], &[], false)
    };
    let expected = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1.50}}</tool_call>";
    let given = r#"{"a": 1.50}"#;
    assert_eq!(render("{{ c.function.arguments }}", given).unwrap(), expected);
    let by_object = render("{{ c.function.arguments | tojson }}", given).unwrap();
    assert_eq!(by_object, expected.replace("1.50", "1.5"));
    assert_eq!(
        render("{{ c.function.arguments }}", "nothing").unwrap().matches("nothing").count(),
        1
    );
    let error = render("{{ c.function.arguments | tojson }}", "nothing").unwrap_err();
    assert!(matches!(error, Error::CallArguments { .. }), "{error}");
}

#[test]
fn texts_are_lists_of_parts_where_a_template_reads_only_these() {
    let source = "{% for m in messages %}{% for part in m.content %}\
                  {% if part['type'] == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endfor %}";
    let template = Template::new(source, "", "").unwrap();
    assert_eq!(template.render(&[Message::new(Role::User, "Hi")], &[], true).unwrap(), "Hi");
}

#[test]
fn developers_are_systems_where_a_template_does_not_have_them() {
    let render = |source| {
        let template = Template::new(source, "", "").unwrap();
        template.render(&[Message::new(Role::Developer, "")], &[], false).unwrap()
    };
    assert_eq!(render("{{ messages[0].role }}"), "system");
    assert_eq!(render("{{ messages[0].role }}{# developer #}"), "developer");
}

fn complete(
    name: &str,
    id: Option<&str>,
    arguments: &str,
) -> (String, Option<String>, String, bool) {
    (name.into(), id.map(str::to_owned), arguments.into(), true)
}

/// Answers and what they are: format, answer, text, reasoning, calls.
type Case =
    (&'static str, &'static str, &'static str, &'static str, Vec<(&'static str, &'static str)>);

#[test]
fn answers_are_text_reasoning_and_calls() {
    let one = vec![("add", r#"{"a": 1}"#)];
    let two = vec![("add", r#"{"a": 1}"#), ("weather", r#"{"place": "}"}"#)];
    let cases: Vec<Case> = vec![
        ("hermes", "Hello, <b>world</b>!\n", "Hello, <b>world</b>!\n", "", vec![]),
        (
            "hermes",
            "<think>\nWhy?\n</think>\n\nLet me see.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>",
            "Let me see.",
            "Why?",
            one.clone(),
        ),
        (
            "hermes",
            "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\": 1}}</tool_call>\n<tool_call>\n\
             {\"name\": \"weather\", \"arguments\": {\"place\": \"}\"}}\n</tool_call>\n",
            "",
            "",
            two.clone(),
        ),
        ("hermes", "<tool_call>{\"name\": \"add\"}</tool_call>", "", "", vec![("add", "{}")]),
        // Not calls: not JSON, a tool that is not there, arguments that are no object, no name.
        ("hermes", "<tool_call>add</tool_call>", "<tool_call>add</tool_call>", "", vec![]),
        (
            "hermes",
            "a <tool_call>{\"name\": \"no\", \"arguments\": {}}</tool_call>",
            "a <tool_call>{\"name\": \"no\", \"arguments\": {}}</tool_call>",
            "",
            vec![],
        ),
        (
            "hermes",
            "<tool_call>{\"name\": \"add\", \"arguments\": 1}</tool_call>",
            "<tool_call>{\"name\": \"add\", \"arguments\": 1}</tool_call>",
            "",
            vec![],
        ),
        (
            "hermes",
            "<tool_call>{\"arguments\": {}, \"name\": \"add\"}",
            "<tool_call>{\"arguments\": {}, \"name\": \"add\"}",
            "",
            vec![],
        ),
        // What does not belong to a call after its arguments is text.
        (
            "hermes",
            "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}} and more",
            "and more",
            "",
            one.clone(),
        ),
        // Reasoning is the beginning of an answer.
        ("hermes", "I say <think>a</think>", "I say <think>a</think>", "", vec![]),
        ("llama3", "{\"name\": \"add\", \"parameters\": {\"a\": 1}}", "", "", one.clone()),
        (
            "llama3",
            "<|python_tag|>{\"type\": \"function\", \"name\": \"add\", \"parameters\": {\"a\": 1}}",
            "",
            "",
            one.clone(),
        ),
        (
            "llama3",
            "{\"name\": \"add\", \"parameters\": {\"a\": 1}}; {\"name\": \"weather\", \
             \"parameters\": {\"place\": \"}\"}}",
            "",
            "",
            two.clone(),
        ),
        (
            "llama3",
            "As JSON: {\"name\": \"add\", \"parameters\": {}}",
            "As JSON: {\"name\": \"add\", \"parameters\": {}}",
            "",
            vec![],
        ),
        ("llama3", "{\"name\": \"Bob\"}", "{\"name\": \"Bob\"}", "", vec![]),
        (
            "mistral",
            "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"a\": 1}, \"id\": \"123456789\"}, \
             {\"name\": \"weather\", \"arguments\": {\"place\": \"}\"}}]",
            "",
            "",
            two.clone(),
        ),
        (
            "mistral",
            "Yes. [TOOL_CALLS]add[ARGS]{\"a\": 1}[TOOL_CALLS]weather{\"place\": \"}\"}",
            "Yes.",
            "",
            two.clone(),
        ),
        ("mistral", "[TOOL_CALLS]nothing[ARGS]{}", "[TOOL_CALLS]nothing[ARGS]{}", "", vec![]),
        (
            "harmony",
            "<|channel|>analysis<|message|>Why?<|end|><|start|>assistant<|channel|>commentary \
             to=functions.add <|constrain|>json<|message|>{\"a\": 1}<|call|>",
            "",
            "Why?",
            one.clone(),
        ),
        (
            "harmony",
            "<|channel|>analysis<|message|>Why?<|end|><|start|>assistant<|channel|>final<|message|>So.",
            "So.",
            "Why?",
            vec![],
        ),
        (
            "harmony",
            " to=functions.add<|channel|>commentary json<|message|>{\"a\": 1}<|call|>",
            "",
            "",
            one.clone(),
        ),
        (
            "harmony",
            "<|channel|>commentary<|message|>I add.<|end|><|start|>assistant to=functions.add\
             <|channel|>commentary<|message|>{\"a\": 1}",
            "I add.",
            "",
            one.clone(),
        ),
        (
            "harmony",
            "<|channel|>commentary to=python<|message|>1",
            "<|channel|>commentary to=python<|message|>1",
            "",
            vec![],
        ),
        (
            "qwen3-coder",
            "Now:\n<tool_call>\n<function=weather>\n<parameter=place>\nA \"b\"\n<p>\n</parameter>\n\
             <parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
            "Now:",
            "",
            vec![("weather", r#"{"place":"A \"b\"\n<p>","days":3}"#)],
        ),
        (
            "qwen3-coder",
            "<function=weather>\n<parameter=place>\n12\n</parameter>\n<parameter=days>\nmany\n\
             </parameter>\n<parameter=x>\n1\n</parameter>\n</tool_call>",
            "",
            "",
            vec![("weather", r#"{"place":"12","days":"many","x":"1"}"#)],
        ),
        ("qwen3-coder", "<function=add></function>", "", "", vec![("add", "{}")]),
        ("qwen3-coder", "if a <function=no>", "if a <function=no>", "", vec![]),
        (
            "gemma4",
            "<|channel>thought\nWhy?\n<channel|>So: <|tool_call>call:weather{place:<|\"|>a, \"b\"<|\"|>,days:\
             {x:[1,true,null,<|\"|>c<|\"|>]}}<tool_call|>",
            "So:",
            "Why?",
            vec![("weather", r#"{"place":"a, \"b\"","days":{"x":[1,true,null,"c"]}}"#)],
        ),
        (
            "smollm2",
            "{\"tool_call\": {\"name\": \"add\", \"arguments\": {\"a\": 1}}}\n{\"tool_call\": {\"name\": \
             \"weather\", \"arguments\": {\"place\": \"}\"}}}",
            "",
            "",
            two,
        ),
        ("smollm2", "{\"tool_call\": 1}", "{\"tool_call\": 1}", "", vec![]),
    ];
    for (name, answer, text, reasoning, calls) in cases {
        let expected = Answer {
            text: text.into(),
            reasoning: reasoning.into(),
            calls: calls.iter().map(|(name, arguments)| complete(name, None, arguments)).collect(),
        };
        assert_eq!(parse(format(name), "", answer), expected, "{name}: {answer}");
    }
}

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
fn an_identifier_that_the_model_writes_is_that_of_the_call() {
    let answer = parse(format("mistral"), "", "[TOOL_CALLS]add[CALL_ID]123456789[ARGS]{}");
    assert_eq!(answer.calls, [complete("add", Some("123456789"), "{}")]);
}

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
fn a_prompt_may_have_begun_the_reasoning() {
    let answer = parse(format("hermes"), "<|im_start|>assistant\n<think>\n", "a\n</think>\n\nb");
    assert_eq!((answer.reasoning.as_str(), answer.text.as_str()), ("a", "b"));
    let answer = parse(format("hermes"), "<think>\n\n</think>\n\n", "a");
    assert_eq!((answer.reasoning.as_str(), answer.text.as_str()), ("", "a"));
    let prompt = template("hermes").arguments(r#"{"enable_thinking": false}"#).unwrap();
    let prompt = prompt.render(&[Message::new(Role::User, "a")], &[], true).unwrap();
    assert!(prompt.ends_with("<think>\n\n</think>\n\n"), "{prompt}");
}

#[test]
fn a_prompt_may_skip_the_reasoning() {
    for (prompt, expected) in [
        ("<think>\n", "<think>\n</think>"),
        ("<think>\n\n</think>\n\n", "<think>\n\n</think>\n\n"),
        ("a", "a<think></think>"),
    ] {
        assert_eq!(format("hermes").skip_reasoning(prompt.into()), expected);
    }
    assert_eq!(format("smollm2").skip_reasoning("a".into()), "a");
}

#[test]
fn reasoning_may_stay_in_the_text() {
    let raw = "<think>\na\n</think>\n\nb";
    let answer = parse(format("hermes").without_reasoning(), "", raw);
    assert_eq!((answer.reasoning.as_str(), answer.text.as_str()), ("", raw));
    assert!(format("hermes").reasons() && !format("hermes").without_reasoning().reasons());
    assert!(format("harmony").reasons() && !format("smollm2").reasons());
}

#[test]
fn without_tools_that_may_be_called_a_call_is_text() {
    let raw = "a\n<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>";
    for tools in
        [tools(ToolChoice::None), tools(ToolChoice::Named("weather".into())), Tools::default()]
    {
        let answer = read(format("hermes").parser("", &tools), [raw]);
        assert_eq!(answer, Answer { text: raw.into(), ..Answer::default() });
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

#[test]
fn a_limit_ends_reasoning() {
    let tools = Tools::default();
    let mut parser = format("hermes").parser("<think>\n", &tools);
    let mut budget = Budget::new(2, &parser);
    for (token, forced) in [("a", None), (" b", Some("\n</think>\n\n"))] {
        assert_eq!(budget.forced(&parser), None);
        parser.push(token);
        budget.count(&parser);
        assert_eq!(budget.forced(&parser), forced);
    }
    parser.push("\n</think>\n\n");
    budget.count(&parser);
    assert_eq!(budget.forced(&parser), None);
    assert_eq!(parser.push("c"), [Event::Text("c".into())]);
    // The token that begins reasoning is not part of it.
    let mut parser = format("hermes").parser("", &tools);
    let mut budget = Budget::new(1, &parser);
    for (token, forced) in [("<think>", false), ("a", true)] {
        parser.push(token);
        budget.count(&parser);
        assert_eq!(budget.forced(&parser).is_some(), forced);
    }
    // A limit of 0 ends it before it begins.
    let parser = format("hermes").parser("<think>", &tools);
    assert!(Budget::new(0, &parser).forced(&parser).is_some());
}

/// Parts of answers, of which the property tests make answers.
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
];

proptest! {
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
        let format = FORMATS.with(|formats| formats.iter().find(|(other, _)| *other == name).unwrap().1);
        let text = parts.concat();
        let whole = parse(format, "", &text);
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
