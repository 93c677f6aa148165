//! Calls of tools, and their place beside a format of the answer.

use rope_cpu::json;
use serde_json::{Value, json};

use crate::server::harness::{PROMPT, Server};
use rope_cpu_testing::reader::tiny_calling;

/// An interface: its path, a request with a tool and a schema, and the places of an answer's text
/// and of its calls.
struct Interface {
    path: &'static str,
    request: Value,
    text: &'static str,
    call: &'static str,
}

/// A schema that shares its start with calls, `{"tool_call": ...}`.
fn schema() -> Value {
    json!({
        "type": "object", "properties": { "k": { "type": "boolean" } }, "required": ["k"],
        "additionalProperties": false,
    })
}

fn interfaces() -> [Interface; 4] {
    let function = json!({ "name": "f" });
    let tool = json!({ "type": "function", "function": function });
    let chat = |name: &str, format: Value| Interface {
        path: "/v1/chat/completions",
        request: json!({ "tools": [tool], name: format }),
        text: "/choices/0/message/content",
        call: "/choices/0/message/tool_calls/0/function/name",
    };
    let format = json!({ "type": "json_schema", "schema": schema() });
    [
        chat(
            "response_format",
            json!({ "type": "json_schema", "json_schema": { "schema": schema() } }),
        ),
        chat("json_schema", schema()),
        Interface {
            path: "/v1/responses",
            request: json!({ "tools": [{ "type": "function", "name": "f" }], "text": { "format": format } }),
            text: "/output/0/content/0/text",
            call: "/output/0/name",
        },
        Interface {
            path: "/v1/messages",
            request: json!({
                "tools": [{ "name": "f", "input_schema": { "type": "object" } }],
                "output_config": { "format": format },
            }),
            text: "/content/0/text",
            call: "/content/0/name",
        },
    ]
}

/// Returns a request for an answer without the token `not`, and without white space that the grammar
/// does not require: its permitted length differs between calls and the format.
fn request(interface: &Interface, not: &str, more: Value) -> Value {
    let mut request = json!({
        "messages": [{ "role": "user", "content": PROMPT }], "max_tokens": 200, "seed": 3,
        "logit_bias": [[not, false], [" ", -100], [" t", false], ["\n", false]],
    });
    if interface.path == "/v1/responses" {
        request["input"] = request["messages"].take();
        request.as_object_mut().unwrap().remove("messages");
    }
    for fields in [&interface.request, &more] {
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    }
    request
}

fn server() -> (Server, tempfile::NamedTempFile) {
    let model = tiny_calling(7);
    let template = ["-c", "1024", "--chat-template", "{{ messages[-1].content }}"];
    (Server::start(model.path(), &template), model)
}

#[test]
fn an_answer_is_a_call_or_has_the_format() {
    let (server, _model) = server();
    for interface in interfaces() {
        let Interface { path, text, call, .. } = interface;
        // A call starts with one of these letters, and an answer in the format with the other.
        let formatted = server.post(path, request(&interface, "t", json!({}))).json();
        let answer = formatted.pointer(text).and_then(Value::as_str);
        let answer = answer.unwrap_or_else(|| panic!("{formatted}"));
        let answer: Value = json::parse(answer).unwrap();
        assert!(answer["k"].is_boolean() && answer.as_object().unwrap().len() == 1, "{answer}");
        let called = server.post(path, request(&interface, "k", json!({}))).json();
        assert_eq!(called.pointer(call), Some(&json!("f")), "{called}");
    }
}

#[test]
fn a_stream_has_the_call_or_the_format() {
    let (server, _model) = server();
    let [interface, ..] = interfaces();
    let streamed = |not: &str, place: &str| {
        let events = server.stream(interface.path, request(&interface, not, json!({})));
        let parts = events.filter_map(|event| Some(event.pointer(place)?.as_str()?.to_string()));
        parts.collect::<String>()
    };
    assert_eq!(streamed("t", "/choices/0/delta/content"), "{\"k\":false}");
    assert_eq!(streamed("k", "/choices/0/delta/tool_calls/0/function/name"), "f");
    assert_eq!(streamed("k", "/choices/0/delta/content"), "");
}

#[test]
fn the_choice_of_tools_decides_about_the_format() {
    let (server, _model) = server();
    let [interface, ..] = interfaces();
    let answer = |not, choice: &str| {
        let choice = json!({ "tool_choice": choice });
        server.post(interface.path, request(&interface, not, choice))
    };
    let called = answer("k", "required").json();
    assert_eq!(called.pointer(interface.call), Some(&json!("f")));
    answer("t", "required").refused(400, &["no token"]);
    let text = answer("t", "none").json();
    assert_eq!(text.pointer(interface.text), Some(&json!("{\"k\":false}")));
    answer("k", "none").refused(400, &["no token"]);
}

#[test]
fn a_keyword_that_no_grammar_has_is_left_to_the_tool() {
    let (server, _model) = server();
    let [chat, .., messages] = interfaces();
    let schema = json!({ "type": "object", "propertyNames": { "pattern": "^a" } });
    let function = json!({ "name": "f", "parameters": schema });
    for (interface, tool) in [
        (chat, json!({ "type": "function", "function": function })),
        (messages, json!({ "name": "f", "input_schema": schema })),
    ] {
        let called = request(&interface, "k", json!({ "tools": [tool] }));
        let called = server.post(interface.path, called).json();
        assert_eq!(called.pointer(interface.call), Some(&json!("f")), "{called}");
    }
}

#[test]
fn a_custom_call_that_is_cut_has_the_input_so_far() {
    let (server, _model) = server();
    for (path, tool, call, input) in [
        ("/v1/responses", json!({ "type": "custom", "name": "f" }), "/output/0", "/input"),
        (
            "/v1/chat/completions",
            json!({ "type": "custom", "custom": { "name": "f" } }),
            "/choices/0/message/tool_calls/0",
            "/custom/input",
        ),
    ] {
        // The text never ends, and has no punctuation of JSON.
        let unlikely = ["\"", "{", "}", ":", "_"].map(|text| json!([text, -100]));
        let spaces = [json!([" ", -100]), json!([" t", false]), json!(["\n", false])];
        let bias = [&unlikely[..], &spaces[..]].concat();
        let interface = Interface { path, request: json!({ "tools": [tool] }), text: "", call };
        let more = json!({ "tool_choice": "required", "logit_bias": bias });
        let request = request(&interface, "k", more);
        let answer = server.post(path, request.clone()).json();
        let call = answer.pointer(call).unwrap_or_else(|| panic!("{answer}"));
        let text = call.pointer(input).and_then(Value::as_str).unwrap();
        assert!(text.len() > 50 && !text.contains(['"', '{', '}', ':', '_']), "{answer}");
        if path == "/v1/responses" {
            assert_eq!(call["status"], "incomplete");
            let events: Vec<_> = server.stream(path, request).collect();
            let done = events.iter().find(|event| event["type"] == "response.output_item.done");
            let item = &done.unwrap()["item"];
            assert_eq!((&item["input"], &item["status"]), (&call["input"], &call["status"]));
        }
    }
}

#[test]
fn tools_are_limited_before_their_grammar() {
    let (server, _model) = server();
    let tool = |number: usize, schema: Value| {
        let function = json!({ "name": format!("f{number}"), "parameters": schema });
        json!({ "type": "function", "function": function })
    };
    let long = json!({ "type": "object", "title": "a".repeat(400) });
    let wrong = json!({ "type": "object", "properties": { "a": { "type": "objekt" } } });
    let post = |tools: Vec<Value>| {
        let messages = json!([{ "role": "user", "content": PROMPT }]);
        let body = json!({ "messages": messages, "tools": tools, "max_tokens": 1 });
        server.post("/v1/chat/completions", body)
    };
    let many = |count: usize| (0..count).map(|number| tool(number, json!({}))).collect::<Vec<_>>();
    post(many(1025)).refused(400, &["\"tools\"", "at most 1024 tools, not 1025"]);
    // No schema is blamed for the size of all.
    let mut tools: Vec<_> = (0..1000).map(|number| tool(number, long.clone())).collect();
    tools.push(tool(1000, wrong.clone()));
    post(tools).refused(400, &["\"tools\": ", "bytes are too large"]);
    for place in [0, 5, 41, 99] {
        let mut tools = many(100);
        tools[place] = tool(place, wrong.clone());
        let name = format!("\"tools[{place}]\": the schema of \"f{place}\"");
        post(tools).refused(400, &[&name, "objekt"]);
    }
}
