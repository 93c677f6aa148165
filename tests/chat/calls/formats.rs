//! Answers in each format, and what they are.

use rope_cpu::chat::{ToolChoice, Tools};

use super::{Answer, complete, format, parse, read, tools};

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
        // As the template of Qwen2.5-Coder shows it.
        (
            "hermes",
            "<tool_call>\n{{\"name\": \"add\", \"arguments\": {\"a\": 1}}}\n</tool_call>",
            "",
            "",
            one.clone(),
        ),
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
fn an_identifier_that_the_model_writes_is_that_of_the_call() {
    let answer = parse(format("mistral"), "", "[TOOL_CALLS]add[CALL_ID]123456789[ARGS]{}");
    assert_eq!(answer.calls, [complete("add", Some("123456789"), "{}")]);
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
