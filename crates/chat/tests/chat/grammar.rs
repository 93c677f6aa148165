//! Grammars of calls, in llguidance. The tokens here are bytes, and markers that are one token.

use std::sync::Arc;

use llguidance::{Matcher, ParserFactory, api::TopLevelGrammar};
use rope_cpu_chat::{Format, ToolChoice, Tools};
use serde_json::{Value, json};
use toktrie::{ApproximateTokEnv, TokRxInfo, TokTrie};

use crate::calls::{format, tool, tools};

type Token = u32;

/// A vocabulary of all bytes, some markers, and the end token.
#[derive(Clone, Copy)]
struct Vocabulary<'n> {
    /// The markers that are one token.
    control: &'n [&'n str],
    /// Whether these tokens are text as well, as user-defined tokens are.
    is_text: bool,
}

impl Vocabulary<'_> {
    fn token(&self, name: &str) -> Option<Token> {
        self.control.iter().position(|other| *other == name).map(|at| 256 + at as Token)
    }

    fn matcher(&self, grammar: &str) -> Matcher {
        let mut words: Vec<_> = (0..=255).map(|byte| vec![byte]).collect();
        let special = |name: &&str| [b"\xff".as_slice(), name.as_bytes()].concat();
        let word = |name: &&str| if self.is_text { name.as_bytes().into() } else { special(name) };
        words.extend(self.control.iter().map(word));
        words.push(special(&"<|end of answer|>"));
        let info = TokRxInfo::new(words.len() as u32, words.len() as u32 - 1);
        let trie = TokTrie::from(&info, &words);
        let env: toktrie::TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let mut factory = ParserFactory::new_simple(&env).unwrap();
        factory.quiet();
        Matcher::new(factory.create_parser(TopLevelGrammar::from_lark(grammar.into())))
    }

    /// Returns the tokens of a text, with the control tokens that it names.
    fn tokens(&self, text: &str) -> Vec<Token> {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.bytes().next() {
            let name = self.control.iter().find(|name| rest.starts_with(**name));
            tokens.push(name.map_or(first.into(), |name| self.token(name).unwrap()));
            // The rest may start within a character, so texts of these tests are ASCII.
            rest = &rest[name.map_or(1, |name| name.len())..];
        }
        tokens
    }

    /// Returns whether the grammar allows a whole answer.
    fn permits(&self, grammar: &str, answer: &str) -> bool {
        self.permits_tokens(grammar, &self.tokens(answer))
    }

    /// Returns whether the grammar allows an answer that spells its markers.
    fn permits_spelled(&self, grammar: &str, answer: &str) -> bool {
        let bytes: Vec<_> = answer.bytes().map(Token::from).collect();
        self.permits_tokens(grammar, &bytes)
    }

    fn permits_tokens(&self, grammar: &str, tokens: &[Token]) -> bool {
        let mut matcher = self.matcher(grammar);
        let consumed = matcher.try_consume_tokens(tokens);
        let consumed = consumed.unwrap_or_else(|error| panic!("{error}\n{grammar}"));
        consumed == tokens.len() && matcher.is_accepting().unwrap()
    }
}

/// Checks allowed and refused answers, with markers as text, as control tokens and as user-defined
/// tokens.
fn check(format: Format, prompt: &str, tools: &Tools, permitted: &[&str], refused: &[&str]) {
    check_with(None, format, prompt, tools, permitted, refused);
}

/// Checks answers that follow a schema if they call no tool.
fn check_with(
    schema: Option<&Value>,
    format: Format,
    prompt: &str,
    tools: &Tools,
    permitted: &[&str],
    refused: &[&str],
) {
    let markers: Vec<_> = format.markers().collect();
    for (control, is_text) in [(&[][..], false), (&markers, false), (&markers, true)] {
        let vocabulary = Vocabulary { control, is_text };
        let grammar = format.grammar(prompt, tools, schema, &|name| vocabulary.token(name));
        let grammar = grammar.unwrap();
        for (answers, expected) in [(permitted, true), (refused, false)] {
            for answer in answers {
                assert_eq!(
                    vocabulary.permits(&grammar, answer),
                    expected,
                    "{answer}\n{control:?} {is_text}\n{grammar}"
                );
            }
        }
    }
}

#[test]
fn calls_of_hermes() {
    let add =
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": -2}}\n</tool_call>";
    let weather =
        "<tool_call>{\"name\": \"weather\", \"arguments\": {\"place\": \"a\"}}</tool_call>";
    let refused = [
        "<tool_call>",
        // Not the white space that the template writes.
        "<tool_call>{\"name\":\"weather\", \"arguments\": {\"place\": \"a\"}}</tool_call>",
        "<tool_call>{\"name\": \"weather\", \"arguments\": {\"place\":\"a\"}}</tool_call>",
        "<tool_call>{\"name\": \"weather\", \"arguments\": {\"place\": \"a\"} }</tool_call>",
        "<tool_call>\n{\"name\": \"no\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": \"2\"}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2, \"c\": 3}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}",
        "Text <tool_call>text",
    ];
    let two = format!("{add}\n{weather}");
    let text_before = format!("Let me see.\n{add}");
    let reasoning = format!("<think>\nWhy?\n</think>\n\n{add}");
    let auto =
        ["", "Hello, <b>.", add, weather, &two, &text_before, &reasoning, "<think>a</think>b"];
    check(format("hermes"), "", &tools(ToolChoice::Auto), &auto, &refused);
    let required = [add, weather, &two, &reasoning];
    let not = ["", "Hello", "<think>a</think>", "<think>a</think>b", &text_before];
    let not: Vec<_> = refused.into_iter().chain(not).collect();
    check(format("hermes"), "", &tools(ToolChoice::Required), &required, &not);
    // Reasoning that the prompt has started must be closed.
    let opened = format!("Why?\n</think>\n\n{add}");
    check(format("hermes"), "<think>\n", &tools(ToolChoice::Required), &[&opened], &[add]);
    check(
        format("hermes"),
        "<think>\n",
        &tools(ToolChoice::Auto),
        &[&opened, "a</think>b"],
        &["a"],
    );
    // One tool only.
    check(format("hermes"), "", &tools(ToolChoice::Named("add".into())), &[add], &[weather, ""]);
    let one = Tools::new(tools(ToolChoice::Auto).all().to_vec(), ToolChoice::Auto, false).unwrap();
    check(format("hermes"), "", &one, &[add, ""], &[&two]);
}

#[test]
fn a_marker_that_is_one_token_is_not_spelled() {
    let call = "{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}";
    let call = format!("<tool_call>\n{call}\n</tool_call>");
    let reasoning = format!("<think>So.</think>{call}");
    let format = format("hermes");
    let markers: Vec<_> = format.markers().collect();
    for is_text in [false, true] {
        let vocabulary = Vocabulary { control: &markers, is_text };
        for choice in [ToolChoice::Auto, ToolChoice::Required] {
            let grammar = format.grammar("", &tools(choice), None, &|name| vocabulary.token(name));
            let grammar = grammar.unwrap();
            for answer in [&call, &reasoning] {
                assert!(vocabulary.permits(&grammar, answer), "{answer}\n{grammar}");
                assert!(!vocabulary.permits_spelled(&grammar, answer), "{answer}\n{grammar}");
            }
        }
        let free = format
            .grammar("", &tools(ToolChoice::Auto), None, &|name| vocabulary.token(name))
            .unwrap();
        for text in ["<tool_call>", "a <tool_call> b", "<think>a</think>"] {
            assert!(!vocabulary.permits_spelled(&free, text), "{text}\n{free}");
        }
        assert!(vocabulary.permits_spelled(&free, "a <tool> <tool_cal"), "{free}");
    }
}

#[test]
fn calls_without_markers_are_constrained() {
    let call = "{\n  \"name\": \"add\",\n  \"arguments\": {\"a\": 1, \"b\": 2}\n}";
    let fenced = format!("```json\n{call}\n```");
    let permitted = [
        call.into(),
        fenced.clone(),
        format!("\n\n{fenced}"),
        format!("```{call}```"),
        // It was text.
        format!("{fenced}\nThis adds."),
        format!("So:\n```json\n{}\n```", call.replace('1', "true")),
        fenced.replace("arguments", "sum"),
        fenced.replace("add", "no"),
        "```json\n{\"name\": \"add\"}\n```".into(),
        "```".into(),
    ];
    let refused = [
        call.replace('1', "true"),
        fenced.replace('1', "true"),
        fenced.replace(", \"b\": 2", ""),
        format!("```json\n{call}"),
    ];
    let [permitted, refused] = [&permitted[..], &refused]
        .map(|answers| answers.iter().map(String::as_str).collect::<Vec<_>>());
    for name in ["hermes", "qwen3-coder", "gemma4"] {
        check(format(name), "", &tools(ToolChoice::Auto), &permitted, &refused);
        check(format(name), "", &tools(ToolChoice::Required), &[], &permitted);
    }
}

#[test]
fn reasoning_about_a_call_is_free() {
    let answer = "<think>Shall I write <tool_call>?</think>No.";
    check(format("hermes"), "", &tools(ToolChoice::Auto), &[], &["<think>a</think><tool_call>?"]);
    let control = [];
    let vocabulary = Vocabulary { control: &control, is_text: false };
    let grammar = format("hermes").grammar("", &tools(ToolChoice::Auto), None, &|_| None).unwrap();
    assert!(vocabulary.permits(&grammar, answer), "{grammar}");
}

#[test]
fn calls_of_qwen3_coder() {
    let weather = "<tool_call>\n<function=weather>\n<parameter=place>\nA \"b\"\nc\n</parameter>\n</function>\n</tool_call>";
    let add = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n</function>\n</tool_call>";
    let refused = [
        "<tool_call>\n<function=add>\n</function>\n</tool_call>",
        "<tool_call>\n<function=add>\n<parameter=a>\none\n</parameter>\n<parameter=b>\n2\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=no>\n</function>\n</tool_call>",
    ];
    let two = format!("Yes.\n{weather}\n{add}");
    check(
        format("qwen3-coder"),
        "",
        &tools(ToolChoice::Auto),
        &["", "a", weather, add, &two],
        &refused,
    );
    check(format("qwen3-coder"), "", &tools(ToolChoice::Required), &[weather, add], &["", &two]);
}

#[test]
fn calls_of_llama3() {
    let add = "{\"name\": \"add\", \"parameters\": {\"a\": 1, \"b\": 2}}";
    let weather = "{\"name\": \"weather\", \"parameters\": {\"place\": \"a\"}}";
    let two = format!("{add}; {weather}");
    let refused = ["{", "{}", "{\"name\": \"no\", \"parameters\": {}}", " {\"a\": 1}"];
    check(format("llama3"), "", &tools(ToolChoice::Auto), &["", "a {}", add, &two], &refused);
    check(format("llama3"), "", &tools(ToolChoice::Required), &[add, weather, &two], &["", "a"]);
    let tagged = format!("<|python_tag|>{add}");
    let vocabulary = Vocabulary { control: &["<|python_tag|>"], is_text: false };
    for choice in [ToolChoice::Auto, ToolChoice::Required] {
        let grammar = format("llama3")
            .grammar("", &tools(choice), None, &|name| vocabulary.token(name))
            .unwrap();
        assert!(vocabulary.permits(&grammar, &tagged), "{grammar}");
        assert!(!vocabulary.permits(&grammar, "<|python_tag|>1"), "{grammar}");
    }
}

#[test]
fn calls_of_mistral() {
    let list = "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}, \
                {\"name\": \"weather\", \"arguments\": {\"place\": \"a\"}}]";
    let named =
        "[TOOL_CALLS]add[ARGS]{\"a\": 1, \"b\": 2}[TOOL_CALLS]weather[ARGS]{\"place\": \"a\"}";
    let before = format!("Yes.{named}");
    let old = Vocabulary { control: &["[TOOL_CALLS]"], is_text: false };
    let new = Vocabulary { control: &["[TOOL_CALLS]", "[ARGS]"], is_text: false };
    for (vocabulary, permitted, refused) in
        [(&old, list, named), (&new, named, list), (&new, &before, list)]
    {
        let grammar = format("mistral")
            .grammar("", &tools(ToolChoice::Auto), None, &|name| vocabulary.token(name));
        let grammar = grammar.unwrap();
        assert!(vocabulary.permits(&grammar, permitted), "{grammar}");
        assert!(vocabulary.permits(&grammar, "text"), "{grammar}");
        assert!(!vocabulary.permits(&grammar, refused), "{grammar}");
        assert!(!vocabulary.permits(&grammar, "[TOOL_CALLS]"), "{grammar}");
    }
}

#[test]
fn calls_of_harmony() {
    let analysis = "<|channel|>analysis<|message|>Why?<|end|><|start|>assistant";
    let add =
        "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{\"a\": 1, \"b\": 2}";
    let role = " to=functions.weather<|channel|>commentary json<|message|>{\"place\": \"a\"}";
    let last = format!("{analysis}<|channel|>final<|message|>So.");
    let call = format!("{analysis}{add}");
    let refused = [
        "So.",
        "<|channel|>analysis<|message|>Why?",
        "<|channel|>commentary to=functions.no <|constrain|>json<|message|>{}",
        "<|channel|>commentary to=functions.add <|constrain|>json<|message|>{}",
    ];
    check(format("harmony"), "", &tools(ToolChoice::Auto), &[&last, &call, add, role], &refused);
    check(format("harmony"), "", &tools(ToolChoice::Required), &[&call, add, role], &[&last]);
}

#[test]
fn calls_of_gemma4() {
    let call =
        "<|tool_call>call:weather{place:<|\"|>a, b<|\"|>,days:[1,null,{x:true}]}<tool_call|>";
    let refused =
        ["<|tool_call>call:no{}<tool_call|>", "<|tool_call>call:add{a:<|\"|>}<tool_call|>"];
    let reasoning = format!("<|channel>thought\nWhy?\n<channel|>{call}");
    check(format("gemma4"), "", &tools(ToolChoice::Auto), &["", "a", call, &reasoning], &refused);
    check(format("gemma4"), "", &tools(ToolChoice::Required), &[call, &reasoning], &["a", ""]);
}

#[test]
fn calls_of_derived_formats() {
    for (name, add, weather, both) in [
        (
            "list",
            "<|tool_call|>[{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}]",
            "<|tool_call|>[{\"name\": \"weather\", \"arguments\": {\"place\": \"a\"}}]",
            "<|tool_call|>[{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}, {\"name\": \"weather\", \
             \"arguments\": {\"place\": \"a\"}}]",
        ),
        (
            "keys",
            "<|tools_prefix|>[{\"add\": {\"a\": 1, \"b\": 2}}]<|tools_suffix|>",
            "<|tools_prefix|>[{\"weather\": {\"place\": \"a\"}}]<|tools_suffix|>",
            "<|tools_prefix|>[{\"add\": {\"a\": 1, \"b\": 2}}, {\"weather\": {\"place\": \"a\"}}]<|tools_suffix|>",
        ),
        (
            "section",
            "<|calls_begin|><|call_begin|>functions.add:0<|args|>{\"a\": 1, \"b\": 2}<|call_end|><|calls_end|>",
            "<|calls_begin|><|call_begin|>functions.weather:0<|args|>{\"place\": \"a\"}<|call_end|><|calls_end|>",
            "<|calls_begin|><|call_begin|>functions.add:0<|args|>{\"a\": 1, \"b\": 2}<|call_end|><|call_begin|>\
             functions.weather:1<|args|>{\"place\": \"a\"}<|call_end|><|calls_end|>",
        ),
        (
            "glm4",
            "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n<arg_value>2\
             </arg_value>\n</tool_call>",
            "<tool_call>weather\n<arg_key>place</arg_key>\n<arg_value>a\nb</arg_value>\n</tool_call>",
            "<tool_call>add\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n<arg_value>2\
             </arg_value>\n</tool_call>\n<tool_call>weather\n<arg_key>place</arg_key>\n<arg_value>a</arg_value>\n\
             </tool_call>",
        ),
        (
            "invoke",
            "<calls>\n<invoke name=\"add\">\n<parameter name=\"a\" string=\"false\">1</parameter>\n<parameter \
             name=\"b\" string=\"false\">2</parameter>\n</invoke>\n</calls>",
            "<calls>\n<invoke name=\"weather\">\n<parameter name=\"place\" string=\"true\">a</parameter>\n</invoke>\n\
             </calls>",
            "<calls>\n<invoke name=\"add\">\n<parameter name=\"a\" string=\"false\">1</parameter>\n<parameter \
             name=\"b\" string=\"false\">2</parameter>\n</invoke>\n<invoke name=\"weather\">\n<parameter name=\"place\" \
             string=\"true\">a</parameter>\n</invoke>\n</calls>",
        ),
        (
            "lfm2",
            "<|tool_call_start|>[add(a=1, b=2)]<|tool_call_end|>",
            "<|tool_call_start|>[weather(place=\"a\", days=None)]<|tool_call_end|>",
            "<|tool_call_start|>[add(a=1, b=2), weather(place=\"a\")]<|tool_call_end|>",
        ),
    ] {
        let refused = [
            add.replace("add", "no"),
            add.replacen('1', "true", 1).replace(":true", ":0"),
            add[..add.len() - 3].into(),
            weather.replace("place", "plaza"),
        ];
        let refused: Vec<_> = refused.iter().map(String::as_str).collect();
        let before = format!("Yes.{add}");
        let auto = ["", "a", add, weather, both, &before];
        check(format(name), "", &tools(ToolChoice::Auto), &auto, &refused);
        let required = [add, weather, both];
        check(format(name), "", &tools(ToolChoice::Required), &required, &["", "a", &before]);
        let named = tools(ToolChoice::Named("add".into()));
        check(format(name), "", &named, &[add], &[weather, both, ""]);
    }
}

#[test]
fn calls_of_the_generic_format() {
    let add = "{\"tool_call\": {\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}}";
    let two = format!("{add}\n{add}");
    let refused = ["{", "{\"a\": 1}", "{\"tool_call\": {\"name\": \"no\", \"arguments\": {}}}"];
    check(format("smollm2"), "", &tools(ToolChoice::Auto), &["", "a {", add, &two], &refused);
    check(format("smollm2"), "", &tools(ToolChoice::Required), &[add], &["", "a"]);
}

#[test]
fn an_answer_is_a_call_or_follows_the_schema() {
    // Answers of this schema share their start with calls.
    let schema = json!({
        "type": "object",
        "properties": { "name": { "type": "string" }, "tool_call": { "type": "integer" } },
        "additionalProperties": false,
    });
    let call = |key| format!("{{\"name\": \"add\", \"{key}\": {{\"a\": 1, \"b\": 2}}}}");
    let coder = "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n\
                 </parameter>\n</function>\n</tool_call>";
    for (name, before, call) in [
        ("hermes", "", format!("<tool_call>\n{}\n</tool_call>", call("arguments"))),
        ("qwen3-coder", "", coder.into()),
        ("gemma4", "", "<|tool_call>call:add{a:1,b:2}<tool_call|>".into()),
        ("llama3", "", call("parameters")),
        ("smollm2", "", format!("{{\"tool_call\": {}}}", call("arguments"))),
        (
            "harmony",
            "<|channel|>final<|message|>",
            "<|channel|>commentary to=functions.add json<|message|>{\"a\": 1, \"b\": 2}".into(),
        ),
    ] {
        let bodies = [
            "{}",
            "{\"name\": \"add\"}",
            "{\"name\":\"adder\",\"tool_call\":3}",
            "{\"name\": \"b\", \"tool_call\": 1}",
            "{\"tool_call\": -1}",
            "\n\n{\"tool_call\": 1}",
        ];
        let texts = bodies.map(|body| format!("{before}{body}"));
        let mut permitted: Vec<_> = texts.iter().map(String::as_str).collect();
        permitted.push(&call);
        let refused = ["Hello.", "{\"a\": 1}", "{\"name\": 1}", "{\"name\": \"add\"} Hello."];
        let refused = refused.map(|body| format!("{before}{body}"));
        let also = [format!("Hello. {call}"), call.replace('1', "true,"), String::new()];
        let refused: Vec<_> = refused.iter().chain(&also).map(String::as_str).collect();
        let auto = tools(ToolChoice::Auto);
        check_with(Some(&schema), format(name), "", &auto, &permitted, &refused);
        let required = tools(ToolChoice::Required);
        check_with(Some(&schema), format(name), "", &required, &[&call], &permitted[..6]);
    }
}

#[test]
fn schemas_may_have_references_and_unknown_keywords() {
    let schema = r##"{"$schema": "x", "type": "object", "properties": {"a": {"$ref": "#/$defs/n"}},
        "required": ["a"], "$defs": {"n": {"type": "integer", "format": "unknown"}}}"##;
    let one = Tools::new(vec![tool("f", schema)], ToolChoice::Required, false).unwrap();
    let hermes = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";
    check(format("hermes"), "", &one, &[hermes], &[&hermes.replace('1', "true")]);
    let coder =
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>";
    check(format("qwen3-coder"), "", &one, &[coder], &[&coder.replace('1', "true")]);
}

#[test]
fn patterns_that_look_around_are_left_to_the_tool() {
    for pattern in [r"\bno\b", "(?!no)", "(?m)^no", "no("] {
        let schema = json!({
            "type": "object", "required": ["a"],
            "properties": {"a": {"type": "string", "pattern": pattern, "maxLength": 4}},
            "patternProperties": {(pattern): {}},
        });
        let one = Tools::new(vec![tool("f", &schema.to_string())], ToolChoice::Required, false);
        let call =
            |a| format!(r#"<tool_call>{{"name": "f", "arguments": {{"a": "{a}"}}}}</tool_call>"#);
        check(format("hermes"), "", &one.unwrap(), &[&call("yes")], &[&call("yes, 5")]);
    }
}

#[test]
fn without_tools_there_is_no_grammar() {
    for tools in [Tools::default(), tools(ToolChoice::None)] {
        assert_eq!(format("hermes").grammar("", &tools, None, &|_| None), None);
    }
}
