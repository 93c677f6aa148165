//! Requests that cannot be answered.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
};

use serde_json::{Value, json};

use crate::server::harness::{PROMPT, Server, serve};

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
        ("temperature", json!(-1)),
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
    post(json!(["hello"])).refused(400, &["\"messages[0]\""]);
    post(json!([{ "role": "robot", "content": "a" }])).refused(400, &["messages[0].role", "robot"]);
    post(json!([{ "role": "user", "content": 1 }])).refused(400, &["messages[0].content"]);
    server.post("/v1/chat/completions", json!({})).refused(400, &["\"messages\""]);
}

/// Checks the whole messages of errors. In requests, `M` at the beginning means a message of a
/// user.
#[track_caller]
fn assert_refused(server: &Server, requests: &[(&str, &str, &str)]) {
    for (path, request, expected) in requests {
        let request = request.replace("{M", r#"{"messages": [{"role": "user", "content": "a"}]"#);
        let reply = server.send("POST", path, &[], &request);
        let error = rope_cpu::json::parse::<Value>(&reply.text).unwrap()["error"].take();
        let message = error["message"].as_str().or(error.as_str()).unwrap_or(&reply.text);
        assert_eq!((reply.status, message), (400, *expected), "{path} {request}");
        if path.starts_with("/v1/") && *path != "/v1/messages" && expected.starts_with('"') {
            assert_eq!(error["param"].as_str(), expected.split('"').nth(1), "{path} {request}");
        }
    }
}

#[test]
fn fields_have_the_names_and_places_that_the_request_gives_them() {
    let server = serve(&["-c", "256", "--chat-template", "{{ messages[0].content }}"]);
    assert_refused(
        &server,
        &[
            (
                "/v1/chat/completions",
                r#"{M, "stop": [1]}"#,
                r#""stop": must be a string or a list of strings, not [1]"#,
            ),
            (
                "/v1/messages",
                r#"{M, "stop_sequences": 5}"#,
                r#""stop_sequences": must be a string or a list of strings, not 5"#,
            ),
            (
                "/api/chat",
                r#"{M, "options": {"stop": 5}}"#,
                r#""options.stop": must be a string or a list of strings, not 5"#,
            ),
            (
                "/api/chat",
                r#"{M, "options": {"num_predict": -7}}"#,
                r#""options.num_predict": must be a whole number from -2 to 2147483647, not -7"#,
            ),
            (
                "/v1/responses",
                r#"{"input": "a", "max_output_tokens": "x"}"#,
                r#""max_output_tokens": must be a whole number from -1 to 2147483647, not "x""#,
            ),
            (
                "/v1/messages",
                r#"{M, "thinking": {"type": "on"}}"#,
                r#""thinking.type": must be enabled, disabled or adaptive, not "on""#,
            ),
            (
                "/v1/chat/completions",
                r#"{M, "tools": [{"type": "function", "function": {"name": "f", "parameters": 5}}]}"#,
                r#""tools[0].function.parameters": must be an object, not 5"#,
            ),
            (
                "/v1/chat/completions",
                r#"{M, "tools": [{"type": "function"}]}"#,
                r#""tools[0].function": must be given: an object"#,
            ),
            (
                "/v1/messages",
                r#"{M, "tools": [{"input_schema": {}}]}"#,
                r#""tools[0].name": must be given: a string"#,
            ),
            (
                "/v1/chat/completions",
                r#"{"messages": [{"role": "user", "content": [{"type": "sound"}]}]}"#,
                r#""messages[0].content[0].type": must be "text", not "sound""#,
            ),
            (
                "/v1/responses",
                r#"{"instructions": "a", "input": [{"role": "user", "content": 5}]}"#,
                r#""input[0].content": must be a string or a list of parts, not 5"#,
            ),
            (
                "/v1/chat/completions",
                r#"{M, "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function",
                "function": {"name": "g", "parameters": {"properties": {"a": {"type": "objekt"}}}}}]}"#,
                r#""tools[1]": the schema of "g": failed to compile JSON schema: Invalid type: objekt"#,
            ),
            (
                "/v1/chat/completions",
                r#"{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 5}}]},
                {"role": "user", "content": "a"}]}"#,
                r#""messages[0].tool_calls[0].function.name": must be a string, not 5"#,
            ),
            (
                "/v1/chat/completions",
                r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant",
                "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]}]}"#,
                r#""messages": must be a list in which the results of calls follow them"#,
            ),
            (
                "/v1/responses",
                r#"{"input": "a", "text": {"format": {"type": "json_schema"}}}"#,
                r#""text.format.schema": must be given: a JSON schema"#,
            ),
            (
                "/v1/chat/completions",
                r#"{M, "response_format": {"type": "json_schema", "json_schema":
                {"schema": {"properties": {"a": {"items": 5}}}}}}"#,
                r#""response_format": /properties/a/items: schema must be an object or boolean"#,
            ),
            (
                "/api/generate",
                r#"{"prompt": "a", "format": {"properties": {"a": {"items": 5}}}}"#,
                r#""format": /properties/a/items: schema must be an object or boolean"#,
            ),
            (
                "/completion",
                r#"{"prompt": [5, {}]}"#,
                r#""prompt": must be a string, a list of tokens (from 0 to 39) and strings, or a list of these, not {}"#,
            ),
            (
                "/completion",
                r#"{"prompt": "a", "seed": 1e30}"#,
                r#""seed": must be a whole number of 64 bits, not 1e+30"#,
            ),
            (
                "/v1/responses",
                r#"{"input": "a", "text": {"verbosity": "low"}}"#,
                r#""text.verbosity": not supported: ask for the length in the prompt"#,
            ),
            (
                "/api/chat",
                r#"{M, "options": {"logit_bias": 5}}"#,
                r#""options.logit_bias": must be an object or a list of pairs of a token (from 0 to 39) or a text and a number or false, not 5"#,
            ),
            (
                "/v1/messages",
                r#"{"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1",
                "content": [{"type": "x"}]}]}]}"#,
                r#""messages[0].content[0].content[0].type": must be "text", not "x""#,
            ),
            (
                "/v1/chat/completions",
                r#"{M, "functions": [{"name": "f"}], "function_call": "f"}"#,
                r#""function_call": must be "auto", "none" or an object with the "name" of a function, not "f""#,
            ),
            (
                "/v1/chat/completions",
                r#"{M, "stream_options": {"include_usage": 3}}"#,
                r#""stream_options.include_usage": must be true or false, not 3"#,
            ),
        ],
    );
}

#[test]
fn numbers_are_refused_as_they_are_written_with_both_ends_of_the_range() {
    let server = serve(&["-c", "256", "--chat-template", "{{ messages[0].content }}"]);
    let hot = r#""temperature": must be a finite number, not "hot""#;
    let below = r#""temperature": must be a finite number of at least 0, not -1"#;
    let options = r#""options.temperature": must be a finite number of at least 0, not -1"#;
    let tokens = "must be a whole number from -1 to 2147483647, not";
    assert_refused(
        &server,
        &[
            ("/completion", r#"{"prompt": "a", "temperature": "hot"}"#, hot),
            (
                "/completion",
                r#"{"prompt": "a", "temperature": 1e+999}"#,
                r#""temperature": must be a finite number, not 1e+999"#,
            ),
            ("/v1/messages", r#"{M, "temperature": "hot"}"#, hot),
            ("/completion", r#"{"prompt": "a", "temperature": -1}"#, below),
            ("/v1/chat/completions", r#"{M, "temperature": -1}"#, below),
            ("/v1/messages", r#"{M, "temperature": -1}"#, below),
            ("/api/chat", r#"{M, "options": {"temperature": -1}}"#, options),
            (
                "/completion",
                r#"{"prompt": "a", "min_p": 2}"#,
                r#""min_p": must be from 0 to 1, not 2"#,
            ),
            (
                "/v1/chat/completions",
                r#"{M, "max_completion_tokens": 1e18}"#,
                &format!(r#""max_completion_tokens": {tokens} 1e+18"#),
            ),
            (
                "/v1/messages",
                r#"{M, "max_tokens": 2147483648}"#,
                &format!(r#""max_tokens": {tokens} 2147483648"#),
            ),
        ],
    );
    let most = json!({ "prompt": vec![5; 250], "n_predict": i32::MAX });
    assert_eq!(server.post("/completion", most).json()["stop_type"], "limit");
}

#[test]
fn a_message_needs_a_role_of_its_interface() {
    let server = serve(&["-c", "256", "--chat-template", "{{ messages[0].content }}"]);
    let all = "one of system, developer, user, assistant, tool";
    for (path, place, roles) in [
        ("/v1/chat/completions", "messages[0]", all),
        ("/v1/responses", "input[0]", all),
        ("/v1/messages", "messages[0]", "one of user, assistant, system"),
        ("/api/chat", "messages[0]", all),
    ] {
        let name = place.split('[').next().unwrap();
        let given = format!(r#"{{"system": "a", "{name}": [{{"content": "a"}}]}}"#);
        let missing = format!(r#""{place}.role": must be given: {roles}"#);
        assert_refused(&server, &[(path, &given, &missing)]);
        let given = given.replace(r#""content""#, r#""role": "robot", "content""#);
        let unknown = format!(r#""{place}.role": must be {roles}, not "robot""#);
        assert_refused(&server, &[(path, &given, &unknown)]);
    }
}

#[test]
fn the_name_of_a_model_is_any_text() {
    let server = serve(&["-c", "256", "--chat-template", "{{ messages[0].content }}"]);
    let message = json!([{ "role": "user", "content": PROMPT }]);
    for (path, field, value) in [
        ("/completion", "prompt", json!(PROMPT)),
        ("/v1/completions", "prompt", json!(PROMPT)),
        ("/v1/chat/completions", "messages", message.clone()),
        ("/v1/responses", "input", json!(PROMPT)),
        ("/v1/embeddings", "input", json!(PROMPT)),
        ("/v1/messages", "messages", message.clone()),
        ("/api/chat", "messages", message),
        ("/api/generate", "prompt", json!(PROMPT)),
        ("/api/show", "name", json!("")),
    ] {
        let mut body = json!({ field: value, "model": "nope", "stream": false, "max_tokens": 1 });
        server.post(path, body.clone()).json();
        body["model"] = 7.into();
        assert_refused(
            &server,
            &[(path, &body.to_string(), r#""model": must be a string, not 7"#)],
        );
    }
}

#[test]
fn long_values_are_cut_in_errors() {
    let server = serve(&["-c", "256"]);
    let text = "é".repeat(300);
    let expected = format!(r#""temperature": must be a finite number, not "{}…"#, &text[..198]);
    let request = json!({ "prompt": PROMPT, "temperature": text }).to_string();
    assert_refused(&server, &[("/completion", &request, &expected)]);
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
    // An answer of 1,024 tokens needs room, too.
    let options = "-c 2k --rope-scaling auto";
    assert_eq!(error["options"], options);
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains(&format!("restart the server with {options}, which needs ")),
        "{message}"
    );
    let proposed = server.get("/rope?prompt=300").json();
    assert_eq!(proposed["prompt_options"], options);
    assert_eq!(server.get("/rope").json()["prompt_options"], json!(null));
    server.get("/rope?prompt=-1").refused(400, &["\"prompt\"", "from 0 to 1073741824"]);
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

#[test]
fn a_client_that_sends_a_body_that_is_too_large_sees_why_it_is_refused() {
    let server = serve(&["-c", "256", "--body-max", "1"]);
    let body = vec![b' '; 64 << 20];
    for _ in 0..3 {
        let mut connection = TcpStream::connect(&server.address).unwrap();
        let head = "POST /completion HTTP/1.1\r\nHost: localhost\r\n";
        write!(connection, "{head}Content-Length: {}\r\n\r\n", body.len()).unwrap();
        connection.write_all(&body).unwrap();
        let mut answer = String::new();
        connection.shutdown(Shutdown::Write).unwrap();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("at most 1 MiB"), "{answer}");
    }
}
