//! Requests that cannot be answered.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::json;

use crate::harness::{PROMPT, serve};

#[test]
fn a_body_that_is_not_an_object_is_refused() {
    let server = serve(&["-c", "256"]);
    let post = |body: &str| server.send("POST", "/completion", &[], body);
    post("").refused(400, &["not valid JSON"]);
    post("{\"prompt\":").refused(400, &["not valid JSON", "line 1"]);
    post("{\"prompt\": \"a\", \"temperature\": NaN}").refused(400, &["not valid JSON"]);
    post("[1]").refused(400, &["must be a JSON object"]);
    post("{\"prompt\": \"a\"} x").refused(400, &["not valid JSON"]);
    post(&"[".repeat(100_000)).refused(400, &["not valid JSON"]);
    server.get("/health").json();
}

#[test]
fn fields_of_a_wrong_type_or_value_are_named() {
    let server = serve(&["-c", "256"]);
    for (field, value) in [
        ("temperature", json!("hot")),
        ("temperature", json!(1e300)),
        ("n_predict", json!(-2)),
        ("n_predict", json!(1.5)),
        ("n_predict", json!("many")),
        ("n", json!(0)),
        ("n", json!(1_000_000)),
        ("stream", json!("yes")),
        ("stop", json!([1])),
        ("seed", json!("x")),
        ("top_k", json!(0.5)),
        ("prompt", json!({})),
        ("prompt", json!([40])),
        ("prompt", json!([-1])),
        ("prompt", json!([])),
        ("id_slot", json!(99)),
        ("logit_bias", json!([[99, 1]])),
    ] {
        let mut body = json!({ "prompt": PROMPT, "n_predict": 1 });
        body[field] = value.clone();
        let reply = server.post("/completion", body);
        let error = reply.refused(400, &[]);
        let message = error["message"].as_str().unwrap().replace('-', "_");
        let name = if field == "temperature" { "temp" } else { field };
        assert!(message.contains(name), "{field} {value}: {message}");
    }
    server.post("/completion", json!({})).refused(400, &["prompt"]);
}

#[test]
fn conversations_of_another_form_are_refused() {
    let server = serve(&["-c", "256", "--chat-template", "{{ messages[0].content }}"]);
    let post = |messages| server.post("/v1/chat/completions", json!({ "messages": messages }));
    post(json!("hello")).refused(400, &["\"messages\"", "a list"]);
    post(json!(["hello"])).refused(400, &["\"messages\""]);
    post(json!([{ "role": "robot", "content": "a" }])).refused(400, &["\"role\"", "robot"]);
    post(json!([{ "role": "user", "content": 1 }])).refused(400, &["\"content\""]);
    server.post("/v1/chat/completions", json!({})).refused(400, &["\"messages\""]);
}

#[test]
fn a_conversation_without_messages_is_refused() {
    let server = serve(&["-c", "256", "--chat-template", "{{ messages | length }}"]);
    for path in ["/v1/chat/completions", "/v1/chat/completions/input_tokens", "/apply-template"] {
        let error = server.post(path, json!({ "messages": [] }));
        let error = error.refused(400, &["\"messages\"", "at least one message"]);
        assert_eq!(error["type"], "invalid_request_error", "{path}");
    }
    server.post("/v1/responses", json!({ "input": [] })).refused(400, &["\"input\""]);
    // As in llama-server, and in ollama, where it loads the model.
    let anthropic = json!({ "messages": [], "max_tokens": 2 });
    assert_eq!(server.post("/v1/messages", anthropic).json()["type"], "message");
    let ollama = server.post("/api/chat", json!({ "messages": [], "stream": false })).json();
    assert_eq!(ollama["done_reason"], "load");
}

#[test]
fn a_prompt_that_does_not_fit_is_refused_with_both_numbers() {
    let server = serve(&["-c", "256"]);
    let prompt = vec![5; 300];
    let error = server
        .post("/completion", json!({ "prompt": prompt, "n_predict": 1 }))
        .refused(400, &["300", "256"]);
    assert_eq!(error["type"], "exceed_context_size_error");
    assert_eq!((&error["n_prompt_tokens"], &error["n_ctx"]), (&json!(300), &json!(256)));
    let fits = server.post("/completion", json!({ "prompt": vec![5; 255], "n_predict": 5 })).json();
    assert_eq!((&fits["stop_type"], &fits["truncated"]), (&json!("limit"), &json!(true)));
}

#[test]
fn an_empty_prompt_is_refused_if_the_model_has_no_bos_token() {
    let server = serve(&["-c", "256"]);
    // The model has one.
    server.post("/completion", json!({ "prompt": "", "n_predict": 1 })).json();
    server.post("/completion", json!({ "prompt": [[]], "n_predict": 1 })).refused(400, &["empty"]);
}

#[test]
fn paths_and_methods_that_do_not_exist_are_refused() {
    let server = serve(&["-c", "256"]);
    server.get("/nothing").refused(404, &["Not Found"]);
    server.get("/completion").refused(405, &["GET"]);
    server.send("DELETE", "/slots/0", &[], "").refused(405, &["DELETE"]);
    server.post("/slots/0?action=dance", json!({})).refused(400, &["action"]);
    server.post("/slots/9?action=erase", json!({})).refused(400, &["slot 9", "0"]);
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let server = serve(&["-c", "256", "--body-max", "1"]);
    let refused = |headers: &str, body: &str| {
        let mut connection = TcpStream::connect(&server.address).unwrap();
        write!(
            connection,
            "POST /completion HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n{body}"
        )
        .unwrap();
        // Not to the end: the connection may be kept.
        let mut answer = [0; 1000];
        let length = connection.read(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("at most 1 MiB"), "{answer}");
    };
    // The size alone suffices, where it is known.
    refused("Content-Length: 1048577", "");
    let chunk = format!("{:x}\r\n{}\r\n", (1 << 20) + 1, "a".repeat((1 << 20) + 1));
    refused("Transfer-Encoding: chunked", &chunk);
}
