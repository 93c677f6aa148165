//! Models that requests create: presets with ollama's parameters.

use std::fs;

use serde_json::{Value, json};

use super::{
    harness::{PROMPT, Reply, Server},
    many::{load, serve, shelf, wait_for},
};

/// Returns the status of each line of an answer.
#[track_caller]
fn steps(reply: &Reply) -> Vec<String> {
    assert_eq!(reply.status, 200, "{}", reply.text);
    let lines = reply.text.lines().map(|line| rope_cpu::json::parse::<Value>(line).unwrap());
    lines.map(|line| line["status"].as_str().unwrap().to_string()).collect()
}

fn generated(server: &Server, model: &str) -> u64 {
    let body = json!({ "model": model, "prompt": PROMPT, "ignore_eos": true });
    server.post("/completion", body).json()["tokens_predicted"].as_u64().unwrap()
}

#[test]
fn a_model_is_created_with_parameters_and_a_system_message() {
    let folder = shelf();
    let server = serve(folder.path(), &[]);
    let create = |body: Value| server.post("/api/create", body);
    let created = create(json!({
        "model": "short", "from": "second", "system": "You \\n help.",
        "parameters": { "num_predict": 3, "stop": ["zzz"], "num_gpu": 1, "seed": null },
    }));
    assert_eq!(steps(&created), ["writing manifest", "success"]);
    let shown = server.post("/api/show", json!({ "model": "short" })).json();
    assert_eq!(shown["parameters"], "num_predict 3\nstop \"zzz\"");
    assert_eq!(shown["system"], "You \\n help.");
    assert_eq!(generated(&server, "short"), 3);
    let shown = server.post("/api/show", json!({ "model": "short" })).json();
    assert_eq!(shown["system"], "You \\n help.");
    assert!(shown["parameters"].as_str().unwrap().contains("num_predict 3"), "{shown}");

    // The system message starts conversations that have none.
    let prompt = |messages: Value| {
        let body = json!({ "model": "short", "messages": messages });
        server.post("/apply-template", body).json()["prompt"].as_str().unwrap().to_string()
    };
    let asked = json!({ "role": "user", "content": "Hello" });
    let text = prompt(json!([asked]));
    assert!(text.contains("system\nYou \\n help.<|im_end|>"), "{text}");
    let text = prompt(json!([{ "role": "system", "content": "Be brief." }, asked]));
    assert!(text.contains("Be brief.") && !text.contains("help."), "{text}");
    // Its stop strings count unless a request has some.
    let stops = |stop: Value| {
        let body = json!({ "model": "short", "prompt": PROMPT, "stop": stop });
        server.post("/completion", body).json()["generation_settings"]["stop"].clone()
    };
    assert_eq!(stops(Value::Null), json!(["zzz"]));
    assert_eq!(stops(json!(["yyy"])), json!(["yyy"]));

    // Created again while it is open: the next request has the new options.
    let again = json!({
        "model": "short", "from": "short", "parameters": { "num_predict": 2 }, "stream": false,
    });
    assert_eq!(create(again).json(), json!({ "status": "success" }));
    assert_eq!(generated(&server, "short"), 2);
    let presets = fs::read_to_string(folder.path().join(".config/rope-cpu/presets.toml")).unwrap();
    assert!(presets.contains("[short]\nmodel = \"second\"\npredict = 2\n"), "{presets}");
    server.send("DELETE", "/api/delete", &[], r#"{"model": "short"}"#).json();
}

#[test]
fn what_cannot_be_created_is_named() {
    let folder = shelf();
    let server = serve(folder.path(), &[]);
    let refused = |field: &str, value: Value, said: &str| {
        let mut body = json!({ "model": "new", "from": "first" });
        body[field] = value;
        let reply = server.post("/api/create", body);
        assert!((400..500).contains(&reply.status), "{field}: {} {}", reply.status, reply.text);
        assert!(reply.text.contains(said), "{field}: {}", reply.text);
    };
    refused("template", json!("{{ .Prompt }}"), r#"\"template\": not supported"#);
    refused("quantize", json!("q4_K_M"), "use rope-cpu quantize");
    refused(
        "messages",
        json!([{ "role": "user", "content": "x" }]),
        r#"\"messages\": not supported"#,
    );
    refused("files", json!({ "a.gguf": "sha256:0" }), r#"\"files\": not supported"#);
    refused("adapters", json!({ "a.gguf": "sha256:0" }), r#"\"adapters\": not supported"#);
    refused(
        "parameters",
        json!({ "tfs_z": 1, "nothing": 2 }),
        "no option has the effect of tfs_z, nothing",
    );
    refused("parameters", json!({ "stop": 1 }), "stop: must be a text or a list of texts");
    refused("parameters", json!({ "temperature": "hot" }), "temp of new: ");
    refused("parameters", json!({ "min_p": 2 }), "`min_p` 2: must be from 0 to 1");
    refused("parameters", json!([1]), r#"\"parameters\": must be an object"#);
    refused("from", json!("fourth"), "no model is named fourth");
    refused("from", Value::Null, r#"\"from\": must be the name of a model"#);
    refused("model", json!("second"), "already the name of a model");
    refused("model", json!("a\nb"), "is not the name of a model");
    assert!(!folder.path().join(".config").exists());
}

#[test]
fn an_unloading_model_takes_no_requests() {
    let folder = shelf();
    let server = serve(folder.path(), &[]);
    load(&server, "first");
    assert_eq!(server.post("/models/unload", json!({ "model": "first" })).json()["success"], true);
    // It opens again.
    assert_eq!(generated_one(&server), 1);
    wait_for(&server, "first", "loaded");
}

fn generated_one(server: &Server) -> u64 {
    let body = json!({ "model": "first", "prompt": PROMPT, "n_predict": 1 });
    server.post("/completion", body).json()["tokens_predicted"].as_u64().unwrap()
}
