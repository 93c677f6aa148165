//! The requests that open-webui sends to ollama and to OpenAI's interface, and what it reads of the
//! answers.

use serde_json::{Value, json};

use super::{
    harness::{PROMPT, Server},
    many::{serve, shelf, wait_for},
};

/// The form that open-webui expects at a place of an answer.
#[derive(Clone, Copy, Debug)]
enum Reads {
    Text,
    Number,
    /// A list that is not empty.
    List,
    /// A time such as `2026-01-31T12:00:00Z`.
    Time,
    True,
}

use Reads::{List, Number, Text, Time, True};

/// Checks that an answer has what open-webui reads.
#[track_caller]
fn check(answer: &Value, reads: &[(&str, Reads)]) {
    for (place, kind) in reads {
        let value = answer.pointer(place).unwrap_or(&Value::Null);
        let text = value.as_str();
        let is_read = match kind {
            Text => text.is_some_and(|text| !text.is_empty()),
            Number => value.is_number(),
            List => value.as_array().is_some_and(|list| !list.is_empty()),
            Time => text.is_some_and(|text| text.len() >= 20 && text.as_bytes()[10] == b'T'),
            True => value == true,
        };
        assert!(is_read, "{place} is not {kind:?}: {answer}");
    }
}

fn lines(server: &Server, path: &str, body: Value) -> Vec<Value> {
    let reply = server.post(path, body);
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
    reply.text.lines().map(|line| rope_cpu::json::parse(line).unwrap()).collect()
}

#[test]
fn it_lists_models() {
    let folder = shelf();
    let server = serve(folder.path(), &[]);
    let tags = server.get("/api/tags").json();
    let model = [
        ("/models/0/name", Text),
        ("/models/0/model", Text),
        ("/models/0/modified_at", Time),
        ("/models/0/size", Number),
        ("/models/0/digest", Text),
        ("/models/0/details/family", Text),
        ("/models/0/details/families", List),
        ("/models/0/details/parameter_size", Text),
        ("/models/0/details/quantization_level", Text),
    ];
    check(&tags, &model);
    assert_eq!(server.get("/api/ps").json()["models"], json!([]));
    let version = server.get("/api/version").json();
    let numbers = version["version"].as_str().unwrap().split('.').map(str::parse::<u32>);
    assert_eq!(numbers.filter(Result::is_ok).count(), 3);
    let shown = server.post("/api/show", json!({ "model": "first" })).json();
    check(&shown, &[("/details/family", Text), ("/capabilities", List), ("/modified_at", Time)]);
    check(&server.get("/v1/models").json(), &[("/data", List), ("/data/0/id", Text)]);

    // It reads when open models close, and unloads them by their names with a tag.
    let options = json!({ "num_predict": 2 });
    let body = json!({
        "model": "first", "prompt": PROMPT, "keep_alive": "5m", "stream": false, "options": options,
    });
    check(&server.post("/api/generate", body).json(), &[("/done", True)]);
    let running = server.get("/api/ps").json();
    check(&running, &[("/models/0/expires_at", Time), ("/models/0/size_vram", Number)]);
    let unload = json!({ "model": "first:latest", "keep_alive": 0, "prompt": "" });
    check(&server.post("/api/generate", unload).json(), &[("/done", True)]);
    wait_for(&server, "first", "unloaded");
}

#[test]
fn it_chats() {
    let folder = shelf();
    let server = serve(folder.path(), &[]);
    let messages = json!([{ "role": "user", "content": PROMPT }]);
    let chat = json!({
        "model": "second", "messages": messages, "stream": true, "keep_alive": "5m",
        "options": { "num_predict": 4, "temperature": 0.0, "num_ctx": 2048 },
    });
    let lines = lines(&server, "/api/chat", chat);
    let (last, parts) = lines.split_last().unwrap();
    for part in parts {
        let role = part["message"]["role"] == "assistant" && part["message"]["content"].is_string();
        assert!(role && part["done"] == false && part["model"] == "second", "{part}");
    }
    let counts = [
        ("/done", True),
        ("/done_reason", Text),
        ("/created_at", Time),
        ("/total_duration", Number),
        ("/load_duration", Number),
        ("/prompt_eval_count", Number),
        ("/prompt_eval_duration", Number),
        ("/eval_count", Number),
        ("/eval_duration", Number),
    ];
    check(last, &counts);

    let chat = json!({ "model": "second", "messages": messages, "max_tokens": 4, "stream": true });
    let mut events = server.stream("/v1/chat/completions", chat);
    let first = events.next().unwrap();
    check(&first, &[("/id", Text), ("/choices", List)]);
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
    // Titles and tags of conversations.
    let title = json!({ "model": "second", "messages": messages, "max_completion_tokens": 4, "stream": false });
    let title = server.post("/v1/chat/completions", title).json();
    check(&title, &[("/choices/0/message/content", Text), ("/usage/total_tokens", Number)]);
}

#[test]
fn it_embeds() {
    let folder = shelf();
    let server = serve(folder.path(), &[]);
    let body = json!({ "model": "third", "input": [PROMPT, "the rain"], "truncate": true });
    let embedded = server.post("/api/embed", body).json();
    check(&embedded, &[("/embeddings/0/0", Number), ("/embeddings/1/0", Number)]);
    let embedded = server.post("/api/embeddings", json!({ "model": "third", "prompt": PROMPT }));
    check(&embedded.json(), &[("/embedding/0", Number)]);
    let body = json!({ "model": "third", "input": [PROMPT] });
    check(&server.post("/v1/embeddings", body).json(), &[("/data/0/embedding/0", Number)]);
}

#[test]
fn it_manages_models() {
    let folder = shelf();
    let server = serve(folder.path(), &[]);
    let create = json!({
        "model": "mine", "from": "first", "system": "Be brief.",
        "parameters": { "temperature": 0.7 }, "stream": true,
    });
    assert_eq!(lines(&server, "/api/create", create).last().unwrap()["status"], "success");
    let copy = json!({ "source": "mine", "destination": "copied" });
    assert_eq!(server.post("/api/copy", copy).status, 200);
    for name in ["copied", "mine"] {
        let body = json!({ "model": name, "name": name }).to_string();
        assert_eq!(server.send("DELETE", "/api/delete", &[], &body).status, 200);
    }
    // A download that fails is a line of the stream.
    let lines =
        lines(&server, "/api/pull", json!({ "model": "x/y", "name": "x/y", "stream": true }));
    assert!(lines.last().unwrap()["error"].is_string(), "{lines:?}");
}
