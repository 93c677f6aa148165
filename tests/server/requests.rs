//! Damaged requests of every interface: each is answered, or refused with its reason, and the server
//! goes on.
//!
//! `REQUESTS=100000` sends more of them, as `scripts/fuzz` does.

use std::env;

use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};

use crate::server::harness::{PROMPT, serve};

/// Requests of a test run.
const REQUESTS: u32 = 400;

/// A request of each path that takes a body.
fn requests() -> Vec<(&'static str, Value)> {
    let messages = json!([
        { "role": "system", "content": "a" },
        { "role": "user", "content": [{ "type": "text", "text": PROMPT }] },
        { "role": "assistant", "content": "on" },
        { "role": "user", "content": "in" },
    ]);
    let schema = json!({ "type": "object", "properties": { "a": { "enum": ["b"] } } });
    let tool = json!({ "name": "add", "description": "adds", "parameters": schema });
    let tools = json!([{ "type": "function", "function": tool }]);
    let turns = json!([{ "role": "user", "content": PROMPT }]);
    vec![
        (
            "/completion",
            json!({ "prompt": [PROMPT, [1, 2, "a"]], "n_predict": 3, "temperature": 0.5, "top_k": 5,
                "seed": 1, "stop": ["the"], "logit_bias": [[1, -2.5], ["a", false]], "n_probs": 2,
                "samplers": ["top_k", "temperature"], "n_discard": 1, "n_keep": 1, "stream": false,
                "cache_prompt": true, "dry_multiplier": 0.5, "grammar": "root ::= [a-c]+" }),
        ),
        ("/completion", json!({ "prompt": "a", "n_predict": 2, "json_schema": schema })),
        (
            "/v1/completions",
            json!({ "prompt": ["a", "b"], "max_tokens": 3, "n": 2, "logprobs": 2, "echo": true,
                "presence_penalty": 0.5, "suffix": "", "stream_options": { "include_usage": true } }),
        ),
        (
            "/v1/chat/completions",
            json!({ "messages": messages, "max_tokens": 3, "logprobs": true, "top_logprobs": 2,
                "stream": true, "stop": "x", "response_format": { "type": "json_object" } }),
        ),
        (
            "/v1/chat/completions",
            json!({ "messages": turns, "tools": tools, "tool_choice": "auto", "max_tokens": 3,
                "parallel_tool_calls": false, "reasoning_effort": "low" }),
        ),
        (
            "/v1/responses",
            json!({ "input": turns, "instructions": "a", "max_output_tokens": 3, "store": false,
                "text": { "format": { "type": "text" } } }),
        ),
        (
            "/v1/messages",
            json!({ "model": "m", "messages": turns, "system": "a", "max_tokens": 3, "top_p": 0.5,
                "stop_sequences": ["x"], "tools": [{ "name": "add", "input_schema": schema }],
                "tool_choice": { "type": "auto" } }),
        ),
        ("/v1/messages/count_tokens", json!({ "model": "m", "messages": turns })),
        (
            "/api/chat",
            json!({ "model": "m", "messages": turns, "stream": false, "format": "json",
                "options": { "num_predict": 3, "temperature": 0, "stop": ["x"] }, "think": false }),
        ),
        (
            "/api/generate",
            json!({ "model": "m", "prompt": "a", "options": { "num_predict": 3 }, "raw": true,
                "context": [1, 2], "format": schema }),
        ),
        ("/api/show", json!({ "model": "m" })),
        ("/api/embed", json!({ "model": "m", "input": ["a"], "truncate": true })),
        ("/v1/embeddings", json!({ "input": ["a", [1, 2]], "encoding_format": "float" })),
        ("/embedding", json!({ "content": "a" })),
        ("/v1/rerank", json!({ "query": "a", "documents": ["b"], "top_n": 1 })),
        ("/infill", json!({ "input_prefix": "a", "input_suffix": "b", "input_extra": [] })),
        ("/tokenize", json!({ "content": "a", "add_special": true, "with_pieces": true })),
        ("/detokenize", json!({ "tokens": [1, 2] })),
        ("/apply-template", json!({ "messages": messages })),
        ("/slots/0?action=erase", json!({})),
        ("/lora-adapters", json!([{ "id": 0, "scale": 0.5 }])),
    ]
}

/// A change of a body.
#[derive(Clone, Debug)]
enum Change {
    /// Replaces the value at an index of all values, the first of which is the body.
    Value(prop::sample::Index, Value),
    Remove(prop::sample::Index),
    /// Adds a copy of the field of another request.
    Other(prop::sample::Index),
    /// Replaces a character of the text.
    Text(prop::sample::Index, char),
    Cut(prop::sample::Index),
}

fn value() -> impl Strategy<Value = Value> {
    let numbers = (0..64u32, -1..2i64).prop_map(|(bits, near)| {
        let number = (1u64 << bits).wrapping_add_signed(near);
        if near == 0 { json!(number) } else { json!((number as i64).wrapping_neg()) }
    });
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        numbers,
        any::<f64>().prop_map(|number| json!(number)),
        (-2..70i32).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop::sample::select(vec![
            "a",
            "",
            "user",
            "text",
            "auto",
            "json",
            "ab".repeat(999).leak()
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let names = prop::sample::select(vec!["role", "content", "type", "text", "a", "name"]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((names, inner), 0..4).prop_map(|fields| {
                Value::Object(
                    fields.into_iter().map(|(name, value)| (name.into(), value)).collect(),
                )
            }),
        ]
    })
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        6 => (at(), value()).prop_map(|(at, value)| Change::Value(at, value)),
        2 => at().prop_map(Change::Remove),
        2 => at().prop_map(Change::Other),
        1 => (at(), any::<char>()).prop_map(|(at, char)| Change::Text(at, char)),
        1 => at().prop_map(Change::Cut),
    ]
}

/// Returns all values within a value, itself first.
fn values(value: &mut Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter_mut().map(values).sum::<usize>(),
        Value::Object(fields) => fields.values_mut().map(values).sum(),
        _ => 0,
    }
}

/// Returns the value at an index of [`values`].
fn nth(value: &mut Value, mut index: usize) -> &mut Value {
    if index == 0 {
        return value;
    }
    index -= 1;
    let inner: Vec<&mut Value> = match value {
        Value::Array(list) => list.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => unreachable!("the index is within the value"),
    };
    for inner in inner {
        let count = values(inner);
        if index < count {
            return nth(inner, index);
        }
        index -= count;
    }
    unreachable!("the index is within the value")
}

/// Returns the text of a body after the changes.
fn changed(mut body: Value, changes: &[Change]) -> String {
    for change in changes {
        let (Change::Value(at, _) | Change::Remove(at) | Change::Other(at)) = change else {
            continue;
        };
        let count = values(&mut body);
        let place = nth(&mut body, at.index(count));
        match (change, place) {
            (Change::Value(_, value), place) => *place = value.clone(),
            (Change::Remove(at), Value::Array(list)) if !list.is_empty() => {
                list.remove(at.index(list.len()));
            }
            (Change::Remove(at), Value::Object(fields)) if !fields.is_empty() => {
                let name = fields.keys().nth(at.index(fields.len())).unwrap().clone();
                fields.remove(&name);
            }
            (Change::Other(at), Value::Object(fields)) => {
                let all = requests();
                let (_, other) = &all[at.index(all.len())];
                let other = other.as_object().into_iter().flatten();
                other.for_each(|(name, value)| {
                    fields.entry(name).or_insert(value.clone());
                });
            }
            _ => {}
        }
    }
    let mut text: Vec<char> = body.to_string().chars().collect();
    for change in changes {
        match change {
            Change::Text(at, char) if !text.is_empty() => {
                let at = at.index(text.len());
                text[at] = *char;
            }
            Change::Cut(at) => text.truncate(at.index(text.len() + 1)),
            _ => {}
        }
    }
    text.into_iter().collect()
}

#[test]
fn damaged_requests_are_answered_or_refused() {
    let server = serve(&["-c", "512", "--context-shift", "-n", "8"]);
    let requests = requests();
    let count = env::var("REQUESTS").map_or(REQUESTS, |count| count.parse().expect("a number"));
    let config = Config { failure_persistence: None, ..Config::with_cases(count) };
    let input = (any::<prop::sample::Index>(), prop::collection::vec(change(), 0..4));
    TestRunner::new(config)
        .run(&input, |(which, changes)| {
            let (path, body) = &requests[which.index(requests.len())];
            let text = changed(body.clone(), &changes);
            let reply = server.send("POST", path, &[], &text);
            prop_assert!(reply.status == 501 || reply.status != 500, "{path} {text}: {reply:?}");
            if reply.status >= 400 {
                let error: Value = rope_cpu::json::parse(&reply.text).unwrap();
                prop_assert!(error.get("error").is_some(), "{path} {text}: {reply:?}");
            }
            Ok(())
        })
        .unwrap();
    server.wait_until_idle();
    assert_eq!(server.get("/health").status, 200);
}

/// CVE-2026-21869: the number of tokens that a context shift removes is negative, or more than there
/// are. It is an option of the server here, and the request's is ignored.
#[test]
fn cve_2026_21869() {
    let server = serve(&["-c", "512", "--context-shift"]);
    let answer = |discard: Value| {
        let body = json!({ "prompt": PROMPT, "n_predict": 600, "temperature": 0, "n_keep": discard,
            "n_discard": discard, "cache_prompt": false });
        server.post("/completion", body)
    };
    let expected = answer(json!(16)).json()["content"].clone();
    for discard in [-1i64, -32, i64::from(i32::MIN), i64::MIN, i64::from(i32::MAX), i64::MAX] {
        let reply = answer(json!(discard));
        assert!(reply.status == 400 || reply.json()["content"] == expected, "{discard}: {reply:?}");
    }
}

/// CVE-2026-5760: the template of a reranker runs code.
#[test]
fn cve_2026_5760() {
    let model = rope_cpu_testing::reader::tiny_ranking(7);
    let server = crate::server::harness::Server::start(model.path(), &["-c", "256"]);
    let code = "{{ ''.__class__ }}{% raw %}";
    let tokens = |times: usize| {
        let body = json!({ "query": code.repeat(times), "documents": [code.repeat(times)] });
        server.post("/v1/rerank", body).json()["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    // The text of a request is text: each more of it is as many more tokens.
    let [one, two, three] = [1, 2, 3].map(tokens);
    assert!(one < two);
    assert_eq!(two - one, three - two);
}
