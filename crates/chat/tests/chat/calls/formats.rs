//! Answers in each format, with their text, reasoning and calls.

use rope_cpu_chat::{ToolChoice, Tools};

use super::{Answer, complete, format, parse, read, tools};

/// Cases: format, answer, text, reasoning, calls.
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
        // Not calls: no JSON, an unknown tool, arguments that are no object, no name.
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
        // After a call's arguments, anything outside of the call is text.
        (
            "hermes",
            "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}} and more",
            "and more",
            "",
            one.clone(),
        ),
        // Reasoning comes first.
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
        // As LLM-jp's models write it.
        (
            "harmony",
            "<|channel|> analysis<|message|> Why?<|end|><|start|> assistant to=functions.add<|channel|> commentary \
             <|constrain|>  json<|message|> {\"a\": 1}",
            "",
            "Why?",
            one.clone(),
        ),
        // The last channel counts.
        (
            "harmony",
            "<|channel|>commentary to=assistant<|channel|>analysis<|message|>Why?<|end|><|start|>assistant\
             <|channel|>final<|message|>So.",
            "So.",
            "Why?",
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
            "list",
            "Yes.\n<|tool_call|>[{\"name\": \"add\", \"arguments\": {\"a\": 1}},\n{\"name\":\"weather\",\
             \"arguments\":{\"place\": \"}\"}}] So.",
            "Yes.So.",
            "",
            two.clone(),
        ),
        ("list", "<|tool_call|>[1]", "<|tool_call|>[1]", "", vec![]),
        ("list", "<|tool_call|>[]", "<|tool_call|>[]", "", vec![]),
        (
            "keys",
            "<|tools_prefix|>[{\"add\": {\"a\": 1}}, {\"weather\": {\"place\": \"}\"}}]<|tools_suffix|>",
            "",
            "",
            two.clone(),
        ),
        (
            "keys",
            "<|tools_prefix|>[{\"no\": {}}]<|tools_suffix|>",
            "<|tools_prefix|>[{\"no\": {}}]<|tools_suffix|>",
            "",
            vec![],
        ),
        (
            "section",
            "I add.<|calls_begin|><|call_begin|>functions.add:0<|args|>{\"a\": 1}<|call_end|>\n<|call_begin|>\
             functions.weather:1<|args|>{\"place\": \"}\"}<|call_end|><|calls_end|>",
            "I add.",
            "",
            two.clone(),
        ),
        // Without the marker around all calls.
        (
            "section",
            "<|call_begin|>functions.add:12<|args|> {\"a\": 1}<|call_end|>",
            "",
            "",
            one.clone(),
        ),
        (
            "glm4",
            "So:\n<tool_call>weather\n<arg_key>place</arg_key>\n<arg_value> A \"b\"\n</arg_value>\n<arg_key>days\
             </arg_key>\n<arg_value>3</arg_value>\n</tool_call><tool_call>add</tool_call>",
            "So:",
            "",
            vec![("weather", r#"{"place":" A \"b\"\n","days":3}"#), ("add", "{}")],
        ),
        ("glm4", "<tool_call>adder\n</tool_call>", "<tool_call>adder\n</tool_call>", "", vec![]),
        (
            "invoke",
            "<calls>\n<invoke name=\"weather\">\n<parameter name=\"place\" string=\"true\">a</parameter>\n\
             <parameter name=\"days\" string=\"false\">None</parameter>\n</invoke>\n<invoke name=\"add\">\n\
             </invoke>\n</calls>",
            "",
            "",
            vec![("weather", r#"{"place":"a","days":null}"#), ("add", "{}")],
        ),
        (
            "lfm2",
            "Yes.<|tool_call_start|>[add(a=1), weather(place='\\'}\\n\\x41', days=[1, {\"b\": (True, None,)}])]\
             <|tool_call_end|>Done.",
            "Yes.Done.",
            "",
            vec![
                ("add", r#"{"a": 1}"#),
                ("weather", r#"{"place": "'}\n\u0041", "days": [1,{"b":[true,null]}]}"#),
            ],
        ),
        ("lfm2", "<|tool_call_start|>[add()]", "", "", vec![("add", "{}")]),
        ("lfm2", "<|tool_call_start|>[no(a=1)]", "<|tool_call_start|>[no(a=1)]", "", vec![]),
        ("lfm2", "See [add(1)](b).", "See [add(1)](b).", "", vec![]),
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
