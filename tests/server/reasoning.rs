//! Reasoning: its limit, its effort, and grammars of what follows it.

use serde_json::{Value, json};

use crate::server::harness::Server;
use rope_cpu_testing::reader::{THINKING, tiny_thinking};

/// A template that begins reasoning, unless it is switched off.
const TEMPLATE: &str = "{{ messages[0].content }} {{ reasoning_effort }}<think>\n\
                        {% if not enable_thinking %}</think>{% endif %}";

/// The tokens of the text that ends reasoning: a line end, the marker, two line ends.
const END: u64 = 4;

fn with_server(options: &[&str], test: impl FnOnce(&Server)) {
    with_template(TEMPLATE, options, test);
}

fn with_template(template: &str, options: &[&str], test: impl FnOnce(&Server)) {
    let model = tiny_thinking(7);
    let options = [&["-c", "512", "-np", "2", "--chat-template", template], options].concat();
    test(&Server::start(model.path(), &options));
}

/// Returns a request with a model that never ends reasoning by itself.
fn request(more: Value) -> Value {
    let mut request = json!({
        "messages": [{ "role": "user", "content": "rain rain rain" }], "max_tokens": 40, "seed": 3,
        "logit_bias": THINKING.map(|(token, _)| json!([token, false])),
    });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

/// Returns the reasoning and the text of the answer.
#[track_caller]
fn answer(server: &Server, more: Value) -> (String, String) {
    let answer = server.post("/v1/chat/completions", request(more)).json();
    assert!(answer["usage"]["completion_tokens"].as_u64().unwrap() <= 40);
    let message = &answer["choices"][0]["message"];
    let text = |name: &str| message[name].as_str().unwrap_or_default().to_string();
    (text("reasoning_content"), text("content"))
}

#[test]
fn a_limit_ends_reasoning_and_the_answer_follows() {
    let mut expected = None;
    for options in [&[][..], &["--spec-type", "ngram-simple"]] {
        with_server(options, |server| {
            let (endless, nothing) = answer(server, json!({}));
            assert!(endless.len() >= 30 && nothing.is_empty(), "{endless:?} {nothing:?}");
            let limited = answer(server, json!({ "reasoning_budget_tokens": 6 }));
            assert!(endless.starts_with(&limited.0) && limited.0.len() <= 12, "{limited:?}");
            assert!(!limited.1.is_empty());
            let other_name = json!({ "thinking_budget_tokens": 6 });
            assert_eq!(answer(server, other_name), limited);
            assert_eq!(answer(server, json!({ "reasoning_budget_tokens": -1 })).0, endless);
            let none = answer(server, json!({ "reasoning_budget_tokens": 0 }));
            assert!(none.0.is_empty() && !none.1.is_empty(), "{none:?}");
            // The limit of the answer also holds for the end of reasoning.
            let limits = (6..6 + END).map(|max| (6, max));
            for (budget, max) in limits.chain([(0, 0)]) {
                let limits = json!({ "reasoning_budget_tokens": budget, "max_tokens": max });
                let answer = server.post("/v1/chat/completions", request(limits)).json();
                assert_eq!(answer["usage"]["completion_tokens"], max);
                assert_eq!(answer["choices"][0]["finish_reason"], "length");
            }
            assert_eq!(*expected.get_or_insert(limited.clone()), limited);
        });
    }
    with_server(&["--reasoning-budget", "6"], |server| {
        assert_eq!(Some(answer(server, json!({}))), expected);
        assert!(answer(server, json!({ "reasoning_budget_tokens": 2 })).0.len() <= 4);
        let error = server.post(
            "/v1/chat/completions",
            request(json!({
                "reasoning_budget_tokens": "few",
            })),
        );
        error.refused(400, &["\"reasoning_budget_tokens\"", "few"]);
    });
}

#[test]
fn the_limit_of_anthropic_ends_reasoning() {
    with_server(&[], |server| {
        let expected = answer(server, json!({ "reasoning_budget_tokens": 5 }));
        let thinking = json!({ "thinking": { "type": "enabled", "budget_tokens": 5 } });
        let answer = server.post("/v1/messages", request(thinking)).json();
        assert_eq!(answer["content"][0]["thinking"], expected.0);
        assert_eq!(answer["content"][1]["text"], expected.1);
    });
}

#[test]
fn a_grammar_is_that_of_the_answer_after_reasoning() {
    with_server(&[], |server| {
        let endless = answer(server, json!({})).0;
        for (limit, count) in [(0, 0), (7, 7)] {
            let grammar = json!({ "reasoning_budget_tokens": limit, "regex": "[a-c]{9}" });
            let (reasoning, text) = answer(server, grammar);
            assert!(endless.starts_with(&reasoning) && reasoning.len() >= count, "{reasoning:?}");
            assert!(text.len() == 9 && text.chars().all(|c| ('a'..='c').contains(&c)), "{text:?}");
        }
    });
}

#[test]
fn the_effort_is_a_parameter_of_the_template() {
    with_server(&[], |server| {
        let prompt =
            |more: Value| server.post("/apply-template", request(more)).json()["prompt"].take();
        assert_eq!(prompt(json!({})), "rain rain rain <think>\n");
        assert_eq!(prompt(json!({ "reasoning_effort": "low" })), "rain rain rain low<think>\n");
        let none = prompt(json!({ "reasoning_effort": "none" }));
        assert_eq!(none, "rain rain rain <think>\n</think>");
    });
    // A template that cannot switch reasoning off.
    with_template("{{ messages[0].content }}<think>{# </think> #}", &[], |server| {
        let (reasoning, text) = answer(server, json!({ "reasoning_effort": "none" }));
        assert!(reasoning.is_empty() && !text.is_empty(), "{reasoning:?} {text:?}");
    });
}

#[test]
fn grammars_exclude_each_other() {
    with_server(&[], |server| {
        let chat = |more: Value| server.post("/v1/chat/completions", request(more));
        let both = json!({ "regex": "[a-z]+", "grammar": "root ::= [a-z]+" });
        chat(both).refused(400, &["\"grammar\" and \"regex\" exclude each other"]);
        let tool = json!({ "type": "function", "function": { "name": "f" } });
        let both = json!({ "regex": "[a-z]+", "tools": [tool] });
        chat(both).refused(400, &["\"regex\" and \"tools\" exclude each other"]);
        chat(json!({ "regex": "[a" })).refused(400, &["\"regex\"", "character"]);
    });
}
