//! The fields of vLLM and SGLang.

use serde_json::{Value, json};

use crate::server::harness::{PROMPT, Server, serve};
use rope_cpu_testing::reader::tiny_calling;

const CHAT: &str = "/v1/chat/completions";

fn request(more: Value) -> Value {
    let messages = json!([{ "role": "user", "content": PROMPT }]);
    let mut request = json!({ "messages": messages, "max_tokens": 60, "seed": 3 });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    request
}

fn answer(server: &Server, more: Value) -> String {
    let answer = server.post(CHAT, request(more)).json();
    answer["choices"][0]["message"]["content"].as_str().unwrap().into()
}

#[test]
fn the_names_of_other_servers_constrain_the_answer() {
    let model = tiny_calling(7);
    let template = ["-c", "1024", "--chat-template", "{{ messages[-1].content }}"];
    let server = Server::start(model.path(), &template);
    let schema = json!({ "type": "object", "properties": { "k": { "type": "boolean" } },
        "required": ["k"], "additionalProperties": false });
    let words = ["the rain", "the inner street"];
    let gbnf = "root ::= \"the rain\" | \"the inner street\"";
    for field in [
        json!({ "guided_choice": words }),
        json!({ "guided_regex": "the rain|the inner street" }),
        json!({ "guided_grammar": gbnf }),
        json!({ "ebnf": gbnf }),
        json!({ "structured_outputs": { "choice": words } }),
        json!({ "structured_outputs": { "regex": "the rain|the inner street" } }),
        json!({ "structured_outputs": { "grammar": gbnf } }),
    ] {
        let answer = answer(&server, field.clone());
        assert!(words.contains(&&*answer), "{field}: {answer}");
    }
    for field in [
        json!({ "guided_json": schema }),
        json!({ "guided_json": schema.to_string() }),
        json!({ "structured_outputs": { "json": schema } }),
    ] {
        let bias = json!([[" ", -100], [" t", -100], ["\n", -100]]);
        let with_bias = json!({ "logit_bias": bias, "temperature": 0 });
        let mut both = field.clone();
        both.as_object_mut().unwrap().extend(with_bias.as_object().unwrap().clone());
        let answer = answer(&server, both);
        let answer: Value = rope_cpu::json::parse(&answer).expect(&answer);
        assert!(answer["k"].is_boolean(), "{field}: {answer}");
    }
    // A special sign is a part of the text.
    let sign = json!({ "guided_choice": ["a,\"{", "a,\"}"] });
    assert!(answer(&server, sign).starts_with("a,\""));
    for (fields, expected) in [
        (json!({ "guided_choice": [] }), &["\"guided_choice\": must have at least one text"][..]),
        (json!({ "guided_choice": [1] }), &["\"guided_choice\"", "list of strings"]),
        (json!({ "guided_regex": "(" }), &["\"guided_regex\": "]),
        (
            json!({ "structured_outputs": { "regex": "a", "choice": ["b"] } }),
            &["\"structured_outputs.choice\" and \"structured_outputs.regex\" exclude each other"],
        ),
        (json!({ "guided_json": {}, "regex": "a" }), &["\"regex\" and \"guided_json\""]),
    ] {
        server.post(CHAT, request(fields)).refused(400, expected);
    }
}

#[test]
fn fields_without_a_counterpart_are_refused_unless_they_are_neutral() {
    let server = serve(&["-c", "512", "--chat-template", "{{ messages[-1].content }}"]);
    for (field, value, neutral) in [
        ("allowed_token_ids", json!([0]), json!(null)),
        ("bad_words", json!(["no"]), json!([])),
        ("guided_whitespace_pattern", json!(" ?"), json!(null)),
        ("include_stop_str_in_output", json!(true), json!(false)),
        ("length_penalty", json!(0.5), json!(1.0)),
        ("min_tokens", json!(5), json!(0)),
        ("prompt_logprobs", json!(1), json!(null)),
        ("stop_token_ids", json!([0]), json!([])),
        ("truncate_prompt_tokens", json!(5), json!(null)),
        ("use_beam_search", json!(true), json!(false)),
    ] {
        let refused = server.post(CHAT, request(json!({ field: value })));
        refused.refused(400, &[&format!("\"{field}\": not supported: ")]);
        let answer = server.post(CHAT, request(json!({ field: neutral, "max_tokens": 1 })));
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    let structured = json!({ "structured_outputs": { "structural_tag": {} } });
    server.post(CHAT, request(structured)).refused(400, &["\"structured_outputs.structural_tag\""]);
    let body = json!({ "prompt": PROMPT, "n_predict": 1, "repetition_penalty": 1.5 });
    let settings = server.post("/completion", body).json();
    assert_eq!(settings["generation_settings"]["repeat_penalty"], 1.5);
}

#[test]
fn an_unknown_field_is_logged_once() {
    let server = serve(&["-c", "512", "--log-format", "json"]);
    let body = json!({ "prompt": PROMPT, "n_predict": 1, "temprature": 0, "model": "a" });
    for _ in 0..3 {
        server.post("/completion", body.clone()).json();
    }
    let log = server.stderr();
    assert_eq!(log.matches("temprature").count(), 1, "{log}");
    assert!(!log.contains("\\\"model\\\""), "{log}");
}
