//! The scales of LoRA adapters: `lora` in requests, and `/lora-adapters`.

use std::thread;

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::server::harness::{PROMPT, Server, serve};
use rope_cpu_testing::reader::tiny_adapter;

/// Starts a server with an adapter at this scale, which must be kept.
fn adapted(scale: &str, options: &[&str]) -> (Server, NamedTempFile) {
    let adapter = tiny_adapter();
    let scaled = format!("{}:{scale}", adapter.path().display());
    (serve(&[&["-c", "4096", "--lora-scaled", &scaled], options].concat()), adapter)
}

fn scaled(scale: f64) -> Value {
    json!([{ "id": 0, "scale": scale }])
}

fn body(prompt: &str, more: Value) -> Value {
    let mut body = json!({ "prompt": prompt, "n_predict": 40, "temperature": 0 });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn content(server: &Server, body: Value) -> String {
    server.post("/completion", body).json()["content"].as_str().unwrap().into()
}

#[test]
fn requests_with_different_scales_give_what_each_gives_alone() {
    let prompts = ["a ", "in the ", "no "].map(|first| first.to_string() + &PROMPT.repeat(5));
    let scales = [0.0, 0.5, 1.0];
    let alone = scales.map(|scale| {
        let (server, _adapter) = adapted(&scale.to_string(), &["-np", "1"]);
        prompts.each_ref().map(|prompt| content(&server, body(prompt, json!({}))))
    });
    assert!(alone[0] != alone[1] && alone[1] != alone[2] && alone[0] != alone[2]);
    let (server, _adapter) = adapted("1", &["-np", "4", "-ub", "64"]);
    for _ in 0..2 {
        let together = thread::scope(|scope| {
            let server = &server;
            let ask = |scale, prompt| {
                let body = body(prompt, json!({ "lora": scaled(scale) }));
                scope.spawn(move || content(server, body))
            };
            let running =
                scales.map(|scale| prompts.each_ref().map(|prompt| ask(scale, prompt.as_str())));
            running.map(|of_scale| of_scale.map(|one| one.join().unwrap()))
        });
        assert_eq!(together, alone);
    }
}

#[test]
fn an_answer_with_other_scales_does_not_wait_for_the_end_of_another() {
    let (server, _adapter) = adapted("1", &["-np", "2"]);
    for (first, second) in [(0.0, 1.0), (1.0, 0.0)] {
        let more = json!({ "n_predict": 3900, "ignore_eos": true, "lora": scaled(first) });
        let mut long = server.stream("/completion", body(PROMPT, more));
        assert!(long.next().is_some());
        content(&server, body(PROMPT, json!({ "lora": scaled(second) })));
        let slots = server.get("/slots").json();
        let busy = slots.as_array().unwrap().iter().filter(|slot| slot["is_processing"] == true);
        assert_eq!(busy.count(), 1, "{slots}");
        drop(long);
        server.wait_until_idle();
    }
}

#[test]
fn tokens_are_reused_only_with_the_same_scales() {
    for slots in ["1", "2"] {
        let (server, _adapter) = adapted("1", &["-np", slots]);
        let ask = |lora: Value| {
            let answer = server.post("/completion", body(PROMPT, lora)).json();
            (answer["timings"]["cache_n"].as_u64().unwrap(), answer["tokens_evaluated"].clone())
        };
        let half = || json!({ "lora": scaled(0.5) });
        for lora in [json!({}), half()] {
            let (reused, tokens) = ask(lora.clone());
            assert_eq!(reused, 0, "{lora}");
            assert_eq!(ask(lora).0, tokens.as_u64().unwrap() - 1);
        }
        // From memory, or the slot that has them.
        for lora in [json!({}), json!({ "lora": scaled(1.0) }), half()] {
            let (reused, tokens) = ask(lora);
            assert_eq!(reused, tokens.as_u64().unwrap() - 1);
        }
    }
}

#[test]
fn requests_without_scales_have_those_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let (server, adapter) = adapted("0.25", &["-np", "1", "--slot-save-path", folder]);
    let name = adapter.path().file_name().unwrap().to_str().unwrap();
    let list = |scale: f64| json!([{ "id": 0, "path": name, "scale": scale }]);
    assert_eq!(server.get("/lora-adapters").json(), list(0.25));
    let ask = |more: Value| server.post("/completion", body(PROMPT, more)).json();
    let opened = ask(json!({}));
    assert_eq!(opened["generation_settings"]["lora"], scaled(0.25));
    assert_eq!(server.post("/lora-adapters", scaled(1.0)).json(), json!({ "success": true }));
    assert_eq!(server.get("/lora-adapters").json(), list(1.0));
    let set = ask(json!({}));
    assert_eq!(set["generation_settings"]["lora"], scaled(1.0));
    assert_eq!(set["content"], ask(json!({ "lora": scaled(1.0) }))["content"]);
    assert_ne!(set["content"], opened["content"]);

    // A saved slot is of its scales.
    let act = |action: &str| {
        server.post(&format!("/slots/0?action={action}"), json!({ "filename": "slot" }))
    };
    act("save").json();
    assert_eq!(act("restore").json()["n_restored"], set["tokens_cached"]);
    assert_ne!(ask(json!({}))["timings"]["cache_n"], 0);
    // An adapter that is not listed has the scale 0.
    server.post("/lora-adapters", json!([])).json();
    assert_eq!(server.get("/lora-adapters").json(), list(0.0));
    act("restore").refused(400, &["scales"]);
    assert_eq!(ask(json!({ "lora": [] }))["generation_settings"]["lora"], scaled(0.0));
}

#[test]
fn wrong_scales_are_refused_with_the_permitted_range() {
    let (server, _adapter) = adapted("1", &["-np", "1"]);
    let cases = [
        (json!(1), "\"lora\": must be a list"),
        (json!([0.5]), "[0]\": must be an object, not 0.5"),
        (json!([{ "scale": 1 }]), "[0].id\": must be given: a number of an adapter, from 0 to 0"),
        (json!([{ "id": 1, "scale": 1 }]), "[0].id\": must be a whole number from 0 to 0, not 1"),
        (json!([{ "id": -1, "scale": 1 }]), "[0].id\": must be a whole number from 0 to 0, not -1"),
        (json!([{ "id": "0", "scale": 1 }]), "[0].id\": must be a whole number from 0 to 0"),
        (json!([{ "id": 0 }]), "[0].scale\": must be given: a finite number"),
        (json!([{ "id": 0, "scale": "a" }]), "[0].scale\": must be a finite number"),
        (
            json!([{ "id": 0, "scale": 1e39 }]),
            "[0].scale\": must be a number from -3.4028235e38 to 3.4",
        ),
        (
            json!([{ "id": 0, "scale": 1 }, { "id": 0, "scale": 1 }]),
            "[1].id\": adapter 0 is given twice",
        ),
    ];
    for (lora, message) in cases {
        server.post("/completion", body("a", json!({ "lora": lora }))).refused(400, &[message]);
        if lora.is_array() {
            server.post("/lora-adapters", lora).refused(400, &[message]);
        }
    }
    let endless = r#"{"prompt": "a", "lora": [{"id": 0, "scale": 1e999}]}"#;
    server.send("POST", "/completion", &[], endless).refused(400, &[]);
    server.post("/lora-adapters", json!({})).refused(400, &["must be a list of adapters"]);
    assert_eq!(server.get("/lora-adapters").json()[0]["scale"], 1.0);
    // The largest scale gives no useful text, but an answer or an error.
    let reply = server.post("/completion", body("a", json!({ "lora": scaled(3e38) })));
    assert!([200, 400, 500].contains(&reply.status), "{}", reply.text);
    content(&server, body("a", json!({})));

    let plain = serve(&["-c", "256"]);
    assert_eq!(plain.get("/lora-adapters").json(), json!([]));
    plain
        .post("/completion", body("a", json!({ "lora": scaled(1.0) })))
        .refused(400, &["the server has no adapters: start it with --lora"]);
    content(&plain, body("a", json!({ "lora": [] })));
}

#[test]
fn all_interfaces_read_the_field() {
    let (server, _adapter) = adapted("1", &["-np", "1", "--chat-template", "chatml"]);
    let text = || json!([{ "role": "user", "content": PROMPT }]);
    for (path, mut body) in [
        ("/v1/chat/completions", json!({ "messages": text() })),
        ("/v1/completions", json!({ "prompt": PROMPT })),
        ("/v1/responses", json!({ "input": PROMPT })),
        ("/v1/messages", json!({ "messages": text(), "max_tokens": 4 })),
        ("/v1/embeddings", json!({ "input": PROMPT })),
        ("/embeddings", json!({ "input": PROMPT })),
        ("/api/chat", json!({ "messages": text(), "stream": false })),
        ("/api/generate", json!({ "prompt": PROMPT, "stream": false })),
    ] {
        body["model"] = "x".into();
        body["lora"] = json!([{ "id": 7, "scale": 1 }]);
        let reply = server.post(path, body);
        assert_eq!(reply.status, 400, "{path}: {}", reply.text);
        assert!(reply.text.contains("from 0 to 0, not 7"), "{path}: {}", reply.text);
    }
}
