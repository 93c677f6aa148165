//! The log: what it says of requests, and what it does not.

use serde_json::{Value, json};

use crate::server::harness::{PROMPT, Server, serve};

/// Returns the lines of a JSON log of requests to a path, when there are as many as expected.
pub fn lines(server: &Server, path: &str, count: usize) -> Vec<Value> {
    let lines = |server: &Server| -> Vec<Value> {
        let text = server.stderr();
        let lines = text.lines().map(|line| rope_cpu::json::parse(line).expect(line));
        lines.filter(|line: &Value| line["target"] == "request" && line["path"] == path).collect()
    };
    server.wait_until(|server| lines(server).len() >= count);
    lines(server)
}

#[test]
fn each_request_has_a_line_with_its_tokens_and_times() {
    let server = serve(&["-c", "512", "--log-format", "json"]);
    let body = json!({ "prompt": PROMPT, "n_predict": 12, "temperature": 0 });
    let first = server.post("/completion", body.clone()).json();
    let reply = server.send("POST", "/completion", &[("x-request-id", "a-1")], &body.to_string());
    assert_eq!(reply.header("x-request-id"), Some("a-1"));
    let _: Vec<_> =
        server.stream("/completion", json!({ "prompt": PROMPT, "n": 2, "n_predict": 3 })).collect();
    server.post("/completion", json!({})).refused(400, &[]);
    server.get("/health").json();
    let lines = lines(&server, "/completion", 4);
    assert_eq!(lines.len(), 4, "{lines:?}");
    for line in &lines[..3] {
        assert_eq!(
            (&line["method"], &line["status"], &line["end"]),
            (&json!("POST"), &json!(200), &json!("limit"))
        );
        for time in ["total_ms", "queued_ms", "first_token_ms", "reading_ms", "generating_ms"] {
            assert!(line[time].as_f64().unwrap() >= 0.0, "{time}: {line}");
        }
    }
    let prompt = &first["tokens_evaluated"];
    assert_eq!(
        (&lines[0]["read"], &lines[0]["reused"], &lines[0]["generated"]),
        (prompt, &json!(0), &json!(12))
    );
    assert!(lines[0]["id"].as_str().unwrap().starts_with("req-"));
    assert_eq!(lines[1]["id"], "a-1");
    assert_eq!(lines[1]["reused"], prompt.as_u64().unwrap() - 1);
    assert_eq!((&lines[2]["answers"], &lines[2]["generated"]), (&json!(2), &json!(6)));
    assert_eq!(
        (&lines[3]["status"], &lines[3]["error"]),
        (&json!(400), &json!("invalid_request_error"))
    );
    assert_eq!(lines[3].get("read"), None);
    assert!(!server.stderr().contains("/health"));
}

#[test]
fn an_answer_whose_client_goes_away_is_cancelled() {
    let server = serve(&["-c", "512", "--context-shift", "--log-format", "json"]);
    let mut events = server.stream("/completion", json!({ "prompt": PROMPT, "n_predict": -1 }));
    events.by_ref().take(3).for_each(drop);
    drop(events);
    let line = lines(&server, "/completion", 1).remove(0);
    assert_eq!((&line["status"], &line["end"]), (&json!(200), &json!("cancelled")));
    assert!(line["generated"].as_u64().unwrap() >= 2, "{line}");
}

#[test]
fn identifiers_that_are_long_or_strange_are_replaced() {
    let server = serve(&["-c", "256"]);
    let long = "a".repeat(65);
    for id in ["", "a b", "a\"b", "a\u{e9}", &long] {
        let reply = server.send("GET", "/props", &[("x-request-id", id)], "");
        let made = reply.header("x-request-id").unwrap();
        assert!(made.starts_with("req-") && made.len() == 36, "{id:?}: {made:?}");
    }
}

#[test]
fn prompts_are_in_the_log_only_if_that_is_asked_for() {
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    // Words of requests that succeed, and of requests with errors that quote them.
    let ask = |server: &Server| {
        let body = json!({ "prompt": PROMPT, "n_predict": 4 });
        let _: Vec<_> = server.stream("/completion", body.clone()).collect();
        server.post("/v1/completions", body).json();
        let message = |role, content| json!({ "messages": [{ "role": role, "content": content }] });
        server.post("/v1/chat/completions", message("user", PROMPT)).json();
        server.post("/v1/messages", message("user", PROMPT)).json();
        server.post("/v1/chat/completions", message(PROMPT, "a")).refused(400, &[PROMPT]);
        server
            .post("/v1/chat/completions", json!({ "messages": [PROMPT] }))
            .refused(400, &[PROMPT]);
        let grammar = json!({ "prompt": PROMPT, "grammar": PROMPT });
        server.post("/completion", grammar).refused(400, &[]);
        server.post("/v1/nothing", json!({ "prompt": PROMPT })).refused(404, &[]);
        server.wait_until(|server| server.stderr().contains("/v1/nothing"));
    };
    for options in [&["-v"][..], &["--log-format", "json", "-lv", "4"]] {
        let server = serve(&[&["-c", "256", "--chat-template", template], options].concat());
        ask(&server);
        for word in ["rain in", "north"] {
            assert!(!server.stderr().contains(word), "{}", server.stderr());
        }
        assert!(server.stderr().contains("arrived"));
    }
    let server = serve(&["-c", "256", "--chat-template", template, "--log-prompts"]);
    assert!(server.stderr().contains("WARN"), "{}", server.stderr());
    ask(&server);
    assert!(server.stderr().matches(PROMPT).count() >= 5, "{}", server.stderr());
}

#[test]
fn the_log_can_be_reduced_switched_off_or_written_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    let missing = |server: Server| {
        server.get("/props").json();
        server.get("/nothing").refused(404, &[]);
        server.wait_until_idle();
        assert!(!server.stderr().contains("/nothing"), "{}", server.stderr());
    };
    missing(serve(&["-c", "256", "--log-disable"]));
    missing(serve(&["-c", "256", "-lv", "2"]));
    missing(serve(&["-c", "256", "--log-verbosity", "0"]));
    let server = serve(&["-c", "256", "--log-file", file.to_str().unwrap()]);
    server.get("/nothing").refused(404, &[]);
    server.wait_until(|server| server.stderr().contains("/nothing"));
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written.contains("listening on") && written.contains("/nothing"), "{written}");
}
