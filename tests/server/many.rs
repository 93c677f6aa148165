//! A server of many models: `serve` without `-m`.

use std::{
    fs,
    path::Path,
    process::Command,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::harness::{Events, PROMPT, Reply, Server};
use rope_cpu_testing::reader::{tiny_bert, tiny_reader};

/// The names of three models, whose weights differ.
const NAMES: [&str; 3] = ["first", "second", "third"];

/// A folder of models, which is also the user's home.
pub fn shelf() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, seed) in NAMES.iter().zip(7..) {
        let model = tiny_reader(seed, true);
        fs::copy(model.path(), folder.path().join(format!("{name}.gguf"))).unwrap();
    }
    folder
}

fn command(folder: &Path, options: &[&str]) -> Command {
    let mut command = Server::bare(&["serve", "--port", "0"]);
    command.env("HOME", folder).env_remove("XDG_DATA_HOME").env_remove("XDG_CONFIG_HOME");
    command.env_remove("XDG_CACHE_HOME").env_remove("OLLAMA_MODELS");
    // Nothing listens there.
    command.env("HF_ENDPOINT", "http://127.0.0.1:9");
    command
        .args(["-c", "16k", "-np", "2", "--chat-template", "chatml", "--models-dir"])
        .arg(folder)
        .args(options);
    command
}

pub fn serve(folder: &Path, options: &[&str]) -> Server {
    Server::run(command(folder, options), "listening on http://")
}

/// Returns the status of a model in `/models`.
#[track_caller]
pub fn status(server: &Server, name: &str) -> String {
    let models = server.get("/models").json();
    let found = models["data"].as_array().unwrap().iter().find(|model| model["id"] == name);
    found.unwrap_or_else(|| panic!("{name}: {models}"))["status"]["value"].as_str().unwrap().into()
}

#[track_caller]
pub fn wait_for(server: &Server, name: &str, expected: &str) {
    server.wait_until(|server| status(server, name) == expected);
}

#[track_caller]
pub fn load(server: &Server, name: &str) {
    assert_eq!(server.post("/models/load", json!({ "model": name })).json()["success"], true);
    wait_for(server, name, "loaded");
}

fn complete(server: &Server, model: &str, tokens: usize) -> Value {
    let body = json!({
        "model": model, "prompt": PROMPT, "n_predict": tokens, "temperature": 0, "return_tokens": true,
    });
    server.post("/completion", body).json()
}

/// Starts an answer that is too long to be sent unless it is read: it waits for its client.
fn long_answer(server: &Server, model: &str) -> Events {
    let body = json!({
        "model": model, "prompt": PROMPT, "n_predict": 15_000, "ignore_eos": true, "n_probs": 20,
    });
    let mut events = server.stream("/completion", body);
    events.next().unwrap();
    events
}

/// Sends a request on another thread.
fn tokenize(server: &Server, model: &'static str) -> JoinHandle<(Reply, Instant)> {
    let address = server.address().to_string();
    thread::spawn(move || {
        let body = json!({ "model": model, "content": PROMPT });
        (Server::at(&address).post("/tokenize", body), Instant::now())
    })
}

#[test]
fn a_request_opens_the_model_that_it_names() {
    let folder = shelf();
    let server = serve(folder.path(), &[]);
    assert_eq!(server.get("/health").json()["status"], "ok");
    let list = server.get("/v1/models").json();
    let names: Vec<_> = list["data"].as_array().unwrap().iter().map(|m| m["id"].clone()).collect();
    assert_eq!(names, NAMES);
    assert_eq!(list["data"][0]["status"]["value"], "unloaded");
    assert_eq!(list["suggestions"], Value::Null);
    let suggested = server.get("/models?fit=1").json();
    let suggested = suggested["suggestions"].as_array().unwrap();
    assert!((1..=3).contains(&suggested.len()), "{suggested:?}");
    assert!(suggested[0]["name"].as_str().unwrap().contains('/'), "{suggested:?}");
    assert!(suggested[0]["bytes"].as_u64().unwrap() > 0, "{suggested:?}");
    assert!(list["data"][0]["meta"]["n_ctx_train"].as_u64().unwrap() > 0, "{list}");

    let answers = NAMES.map(|name| complete(&server, name, 20));
    assert_ne!(answers[0]["tokens"], answers[1]["tokens"]);
    for (name, answer) in NAMES.iter().zip(&answers) {
        assert_eq!(answer["model"], *name);
        assert_eq!(status(&server, name), "loaded");
        // The same bits as a server of this model alone.
        let alone =
            Server::start(&folder.path().join(format!("{name}.gguf")), &["-c", "16k", "-np", "2"]);
        let body =
            json!({ "prompt": PROMPT, "n_predict": 20, "temperature": 0, "return_tokens": true });
        assert_eq!(alone.post("/completion", body).json()["tokens"], answer["tokens"]);
    }
    // Without a name, the model that was opened first answers.
    let body = json!({ "prompt": PROMPT, "n_predict": 1 });
    assert_eq!(server.post("/completion", body).json()["model"], "first");
}

#[test]
fn every_interface_chooses_its_model() {
    let folder = shelf();
    let server = serve(folder.path(), &[]);
    let messages = json!([{ "role": "user", "content": PROMPT }]);
    let chat = json!({ "model": "second", "messages": messages, "max_tokens": 2, "stream": false });
    for path in ["/v1/chat/completions", "/v1/messages", "/api/chat"] {
        assert_eq!(server.post(path, chat.clone()).json()["model"], "second", "{path}");
    }
    let body = json!({ "model": "second", "input": PROMPT, "max_output_tokens": 2 });
    assert_eq!(server.post("/v1/responses", body).json()["model"], "second");
    let body = json!({ "model": "third", "prompt": PROMPT, "max_tokens": 2 });
    assert_eq!(server.post("/v1/completions", body).json()["model"], "third");
    let body = json!({ "model": "third", "prompt": PROMPT, "stream": false, "options": { "num_predict": 2 } });
    assert_eq!(server.post("/api/generate", body).json()["model"], "third");
    let body = json!({ "model": "first", "input": PROMPT });
    assert_eq!(server.post("/v1/embeddings", body.clone()).json()["model"], "first");
    assert_eq!(server.post("/api/embed", body).json()["model"], "first");
    assert_eq!(server.get("/props?model=third").json()["model_alias"], "third");
}

#[test]
fn wrong_names_are_errors_that_say_which_there_are() {
    let folder = shelf();
    let server = serve(folder.path(), &[]);
    let post = |model: Value| {
        server.post("/v1/chat/completions", json!({ "model": model, "messages": [] }))
    };
    post(json!("seconds")).refused(404, &["no model is named", "second"]);
    post(json!(7)).refused(400, &["\"model\": must be a string, not 7"]);
    post(Value::Null).refused(400, &["must name one of \"first\", \"second\", \"third\""]);
    server.post("/models/unload", json!({ "model": "first" })).refused(400, &["is not loaded"]);
    server.send("POST", "/completion", &[], "{").refused(400, &["not valid JSON"]);
    server.get("/props?model=first").refused(503, &["is not loaded"]);
}

#[test]
fn models_are_unloaded_on_request() {
    let folder = shelf();
    let server = serve(folder.path(), &[]);
    load(&server, "first");
    assert_eq!(server.post("/models/unload", json!({ "model": "first" })).json()["success"], true);
    wait_for(&server, "first", "unloaded");
}

#[test]
fn the_least_recently_used_model_makes_room() {
    let folder = shelf();
    let server = serve(folder.path(), &["--models-max", "2"]);
    load(&server, "first");
    load(&server, "second");
    load(&server, "third");
    assert_eq!(NAMES.map(|name| status(&server, name)), ["unloaded", "loaded", "loaded"]);
    complete(&server, "second", 1);
    complete(&server, "first", 1);
    assert_eq!(NAMES.map(|name| status(&server, name)), ["loaded", "loaded", "unloaded"]);
}

#[test]
fn a_model_that_answers_is_never_closed() {
    let folder = shelf();
    let server = serve(folder.path(), &["--models-max", "1"]);
    let answer = long_answer(&server, "first");
    let waiting = tokenize(&server, "second");
    thread::sleep(Duration::from_millis(300));
    assert_eq!(NAMES.map(|name| status(&server, name))[..2], ["loaded", "loading"]);
    assert!(!waiting.is_finished());
    // The answer is complete although a request waits.
    assert_eq!(answer.last().unwrap()["stop"], true);
    assert_eq!(waiting.join().unwrap().0.status, 200);
    assert_eq!(NAMES.map(|name| status(&server, name))[..2], ["unloaded", "loaded"]);
}

#[test]
fn requests_for_one_model_wait_for_the_same_load() {
    let folder = shelf();
    let server = serve(folder.path(), &["--models-max", "2"]);
    load(&server, "first");
    load(&server, "second");
    let answer = long_answer(&server, "first");
    let waiting = [(); 3].map(|()| tokenize(&server, "third"));
    for waiting in waiting {
        assert_eq!(waiting.join().unwrap().0.status, 200);
    }
    drop(answer);
    // One model was given up for all of them.
    assert_eq!(NAMES.map(|name| status(&server, name)), ["loaded", "unloaded", "loaded"]);
}

#[test]
fn waiting_requests_are_served_in_the_order_of_their_arrival() {
    let folder = shelf();
    let server = serve(folder.path(), &["--models-max", "1"]);
    let answer = long_answer(&server, "first");
    let second = tokenize(&server, "second");
    wait_for(&server, "second", "loading");
    let third = tokenize(&server, "third");
    wait_for(&server, "third", "loading");
    drop(answer);
    let [(second, earlier), (third, later)] =
        [second, third].map(|waiting| waiting.join().unwrap());
    assert_eq!([second.status, third.status], [200, 200]);
    assert!(earlier < later);
}

#[test]
fn a_client_that_leaves_costs_no_model() {
    let folder = shelf();
    let server = serve(folder.path(), &["--models-max", "1", "--sse-ping-interval", "1"]);
    let answer = long_answer(&server, "first");
    let body = json!({ "model": "second", "prompt": PROMPT, "n_predict": 1 });
    // Its stream has started, with signs of life.
    let left = server.stream("/completion", body);
    wait_for(&server, "second", "loading");
    drop(left);
    wait_for(&server, "second", "unloaded");
    drop(answer);
    server.wait_until(|server| {
        let slots = server.get("/slots?model=first").json();
        slots.as_array().unwrap().iter().all(|slot| slot["is_processing"] == false)
    });
    assert_eq!(NAMES.map(|name| status(&server, name)), ["loaded", "unloaded", "unloaded"]);
}

#[test]
fn a_stream_that_waits_gets_signs_of_life_and_then_its_answer() {
    let folder = shelf();
    let server = serve(folder.path(), &["--models-max", "1", "--sse-ping-interval", "1"]);
    let messages = json!([{ "role": "user", "content": PROMPT }]);
    let chat = json!({ "model": "second", "messages": messages, "max_tokens": 3, "stream": true });
    for (path, sign) in [
        ("/v1/chat/completions", ":\n\n"),
        ("/v1/messages", "event: ping\ndata: {\"type\":\"ping\"}\n\n"),
        ("/api/chat", "{\"model\":\"second\","),
    ] {
        let answer = long_answer(&server, "first");
        let address = server.address().to_string();
        let chat = chat.clone();
        let waiting = thread::spawn(move || Server::at(&address).post(path, chat));
        thread::sleep(Duration::from_millis(1500));
        drop(answer);
        let reply = waiting.join().unwrap();
        assert_eq!(reply.status, 200, "{}", reply.text);
        assert!(reply.text.starts_with(sign), "{path}: {}", reply.text);
        let end = ["[DONE]", "message_stop", "\"done\":true"];
        assert!(end.iter().any(|end| reply.text.contains(end)), "{path}: {}", reply.text);
    }
}

#[test]
fn a_damaged_model_fails_alone() {
    let folder = shelf();
    let path = folder.path().join("third.gguf");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let server = serve(folder.path(), &[]);
    let reply = server.post("/completion", json!({ "model": "third", "prompt": PROMPT }));
    assert!(reply.status >= 400, "{}", reply.text);
    assert!(reply.text.contains("third"), "{}", reply.text);
    complete(&server, "first", 1);
}

#[test]
fn models_are_opened_only_on_request_without_autoload() {
    let folder = shelf();
    let server = serve(folder.path(), &["--no-models-autoload"]);
    let body = json!({ "model": "first", "prompt": PROMPT, "n_predict": 1 });
    server.post("/completion", body.clone()).refused(400, &["POST /models/load"]);
    load(&server, "first");
    assert_eq!(server.post("/completion", body).status, 200);
    let properties = server.get("/props").json();
    assert_eq!(properties["role"], "router");
    assert_eq!(properties["max_instances"], 4);
    assert_eq!(properties["models_autoload"], false);
}

#[test]
fn keep_alive_closes_an_idle_model() {
    let folder = shelf();
    let server = serve(folder.path(), &["--keep-alive", "10m"]);
    let generate = |body: Value| server.post("/api/generate", body).json();
    let loaded = generate(json!({ "model": "first" }));
    assert_eq!((&loaded["done_reason"], &loaded["model"]), (&json!("load"), &json!("first")));
    let running = server.get("/api/ps").json();
    assert_eq!(running["models"][0]["name"], "first");
    assert!(!running["models"][0]["expires_at"].as_str().unwrap().starts_with("9999"), "{running}");
    assert_eq!(generate(json!({ "model": "first", "keep_alive": 0 }))["done_reason"], "unload");
    wait_for(&server, "first", "unloaded");
    let options = json!({ "num_predict": 1 });
    generate(
        json!({ "model": "second", "prompt": PROMPT, "keep_alive": "100ms", "stream": false, "options": options }),
    );
    wait_for(&server, "second", "unloaded");
    let wrong = json!({ "model": "second", "prompt": PROMPT, "keep_alive": "soon" });
    assert_eq!(server.post("/api/generate", wrong).status, 400);
    assert_eq!(server.get("/api/ps").json()["models"], json!([]));
}

#[test]
fn an_idle_model_sleeps_and_wakes() {
    let folder = shelf();
    let server = serve(folder.path(), &["--sleep-idle-seconds", "1"]);
    complete(&server, "first", 1);
    wait_for(&server, "first", "sleeping");
    complete(&server, "first", 1);
    assert_eq!(status(&server, "first"), "loaded");

    // The model of -m sleeps as well.
    let path = folder.path().join("second.gguf");
    let server = Server::start(&path, &["-c", "2048", "--sleep-idle-seconds", "1"]);
    wait_for(&server, "second.gguf", "sleeping");
    assert_eq!(server.get("/health").status, 200);
    server.post("/completion", json!({ "prompt": PROMPT, "n_predict": 1 })).json();
    assert_eq!(status(&server, "second.gguf"), "loaded");
}

#[test]
fn conversations_survive_unloading() {
    let folder = shelf();
    let disk = tempfile::tempdir().unwrap();
    let cache = disk.path().to_str().unwrap();
    let server = serve(folder.path(), &["--cache-disk", cache, "--models-max", "1"]);
    let prompt = PROMPT.repeat(40);
    let ask = |prompt: &str, model: &str| {
        let body = json!({ "model": model, "prompt": prompt, "n_predict": 4, "temperature": 0 });
        server.post("/completion", body).json()
    };
    let first = ask(&prompt, "first");
    let read = first["timings"]["prompt_n"].as_u64().unwrap();
    assert!(read > 600, "{first}");
    ask(PROMPT, "second");
    assert_eq!(status(&server, "first"), "unloaded");
    let more = format!("{prompt}{} {PROMPT}", first["content"].as_str().unwrap());
    let second = ask(&more, "first");
    let timings = &second["timings"];
    let (read, cached) =
        (timings["prompt_n"].as_u64().unwrap(), timings["cache_n"].as_u64().unwrap());
    assert!(read * 20 < read + cached, "{timings}");
}

#[test]
fn a_server_that_stops_saves_conversations_and_refuses_those_who_wait() {
    let folder = shelf();
    let disk = tempfile::tempdir().unwrap();
    let cache = disk.path().to_str().unwrap();
    let options = ["--cache-disk", cache, "--models-max", "1", "--drain-timeout", "60"];
    let mut server = serve(folder.path(), &options);
    let body = json!({ "model": "first", "prompt": PROMPT.repeat(40), "n_predict": 1 });
    server.post("/completion", body).json();
    let answer = long_answer(&server, "first");
    let waiting = tokenize(&server, "second");
    wait_for(&server, "second", "loading");
    let began = Instant::now();
    server.signal(Signal::SIGTERM);
    assert_eq!(waiting.join().unwrap().0.status, 503);
    drop(answer);
    assert_eq!(server.exit_code(), Some(0), "{}", server.stderr());
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let folders: Vec<_> = fs::read_dir(disk.path()).unwrap().collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    let files = fs::read_dir(folders[0].as_ref().unwrap().path()).unwrap().count();
    assert!(files > 0);
}

#[test]
fn a_preset_has_its_options() {
    let folder = shelf();
    let presets = folder.path().join("presets.toml");
    fs::write(
        &presets,
        "[short]\nmodel = \"second\"\npredict = 3\n[wrong]\nmodel = \"first\"\ntemp = \"x\"\n",
    )
    .unwrap();
    let server = serve(folder.path(), &["--presets", presets.to_str().unwrap()]);
    let body = json!({ "model": "short", "prompt": PROMPT, "ignore_eos": true });
    let answer = server.post("/completion", body).json();
    assert_eq!((&answer["model"], &answer["tokens_predicted"]), (&json!("short"), &json!(3)));
    let body = json!({ "model": "wrong", "prompt": PROMPT });
    server
        .post("/completion", body)
        .refused(500, &["\"wrong\" cannot be opened", "presets.toml:6"]);
}

#[test]
fn what_does_not_fit_says_what_would() {
    let folder = shelf();
    let server = serve(folder.path(), &["--models-memory", "1"]);
    let body = json!({ "model": "first", "prompt": PROMPT, "n_predict": 1 });
    server.post("/completion", body).refused(503, &["\"first\" does not fit", "MiB"]);
}

#[test]
fn an_embedding_is_answered_while_another_model_answers() {
    let folder = shelf();
    let server = serve(folder.path(), &[]);
    let alone = complete(&server, "first", 200);
    complete(&server, "second", 1);
    let body = json!({
        "model": "first", "prompt": PROMPT, "n_predict": 200, "temperature": 0, "cache_prompt": false,
        "stream": true, "return_tokens": true,
    });
    let mut answer = server.stream("/completion", body);
    let mut tokens: Vec<Value> = Vec::new();
    let add = |event: Value, tokens: &mut Vec<Value>| {
        tokens.extend(event["tokens"].as_array().cloned().unwrap_or_default());
    };
    add(answer.next().unwrap(), &mut tokens);
    let embedded = server.post("/v1/embeddings", json!({ "model": "second", "input": PROMPT }));
    assert_eq!(embedded.status, 200, "{}", embedded.text);
    answer.for_each(|event| add(event, &mut tokens));
    // The bits do not depend on what else is computed.
    assert_eq!(Value::from(tokens), alone["tokens"]);
}

/// `--ctx` is for all models, and some have learned fewer positions.
#[test]
fn an_embedding_model_opens_beside_conversations_with_a_longer_context() {
    let folder = shelf();
    fs::copy(tiny_bert().path(), folder.path().join("bert.gguf")).unwrap();
    let server = serve(folder.path(), &[]);
    let embedded = server.post("/v1/embeddings", json!({ "model": "bert", "input": PROMPT }));
    assert_eq!(embedded.status, 200, "{}", embedded.text);
    server.wait_until(|server| {
        server.stderr().contains("the context is as long as the model allows")
    });
}

#[test]
fn managing_models_is_a_separate_right() {
    let folder = shelf();
    let paths = [
        ("/models/load", "model"),
        ("/models/unload", "model"),
        ("/models", "model"),
        ("/api/pull", "model"),
        ("/api/copy", "source"),
        ("/api/create", "model"),
        ("/api/delete", "model"),
    ];
    let send = |server: &Server, headers: &[(&str, &str)], path: &str, field: &str| {
        server.send("POST", path, headers, &json!({ field: "first" }).to_string())
    };
    // Programs on this machine may, but not pages of others, nor what a proxy forwards.
    let server = serve(folder.path(), &["--cors-origins", "*"]);
    let elsewhere = [("Origin", "https://example.org"), ("Content-Type", "application/json")];
    for (path, field) in paths {
        let refused = send(&server, &elsewhere, path, field);
        assert_eq!(refused.status, 403, "{path}");
        assert!(refused.text.contains("--manage-key"), "{}", refused.text);
        assert_eq!(send(&server, &[("X-Forwarded-For", "192.0.2.1")], path, field).status, 403);
        assert_ne!(send(&server, &[], path, field).status, 403);
    }
    // With keys, a key of the interface is not enough.
    let server = serve(folder.path(), &["--api-key", "reader", "--manage-key", "owner"]);
    for (path, field) in paths {
        assert_eq!(send(&server, &[], path, field).status, 401);
        assert_eq!(send(&server, &[("Authorization", "Bearer reader")], path, field).status, 403);
        assert_ne!(send(&server, &[("Authorization", "Bearer owner")], path, field).status, 403);
        let both = [("Authorization", "Bearer reader"), ("X-Manage-Key", "owner")];
        assert_ne!(send(&server, &both, path, field).status, 403);
    }
}

#[test]
fn lists_of_other_programs_have_all_models() {
    let folder = shelf();
    let server = serve(folder.path(), &[]);
    complete(&server, "second", 1);
    let tags = server.get("/api/tags").json();
    assert_eq!(tags["models"].as_array().unwrap().len(), 3);
    assert_eq!(tags["models"][0]["details"]["family"], "llama");
    for name in ["first", "second"] {
        let shown = server.post("/api/show", json!({ "model": name })).json();
        assert_eq!(shown["model_info"]["general.architecture"], "llama", "{name}");
    }
    let list = server.get("/api/v0/models").json();
    let state = |index: usize| list["data"][index]["state"].as_str().unwrap();
    assert_eq!([0, 1, 2].map(state), ["not-loaded", "loaded", "not-loaded"]);
    let one = server.get("/api/v0/models/second").json();
    assert_eq!((&one["type"], &one["arch"]), (&json!("llm"), &json!("llama")));
    assert!(one["loaded_context_length"].as_u64().unwrap() > 0, "{one}");
    assert_eq!(server.get("/api/v0/models/fourth").status, 404);
}

#[test]
fn new_models_are_listed_after_a_reload() {
    let folder = shelf();
    let server = serve(folder.path(), &[]);
    let count = |path: &str| server.get(path).json()["data"].as_array().unwrap().len();
    assert_eq!(count("/models"), 3);
    fs::copy(folder.path().join("first.gguf"), folder.path().join("fourth.gguf")).unwrap();
    assert_eq!(count("/models?reload=1"), 4);
    complete(&server, "fourth", 1);
}

#[test]
fn models_are_copied_and_deleted() {
    let folder = shelf();
    let server = serve(folder.path(), &[]);
    let reply = server.post("/api/copy", json!({ "source": "first", "destination": "again" }));
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(complete(&server, "again", 1)["model"], "again");
    server.post("/models/unload", json!({ "model": "again" })).json();
    wait_for(&server, "again", "unloaded");
    for name in ["again", "third"] {
        let reply =
            server.send("DELETE", "/api/delete", &[], &json!({ "model": name }).to_string());
        assert_eq!(reply.status, 200, "{}", reply.text);
    }
    assert!(!folder.path().join("third.gguf").exists());
    assert_eq!(server.get("/v1/models").json()["data"].as_array().unwrap().len(), 2);
    let partial = server.send("DELETE", "/api/delete", &[], r#"{"model": "fir"}"#);
    assert_eq!(partial.status, 404, "{}", partial.text);
}

#[test]
fn options_for_one_model_need_it() {
    let folder = shelf();
    let mut command = command(folder.path(), &["--dry-run"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("--dry-run is for one model: add -m FILE"), "{error}");
}
