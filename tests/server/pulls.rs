//! Downloads that requests start, from a server that imitates the hub.

use std::{
    fs,
    io::{BufRead, BufReader, Lines, Read},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::harness::Server;
use crate::cli::hub::server::{self as hub, sha256};
use rope_cpu_testing::reader::tiny_reader;

const REPO: &str = "user/large-GGUF";
const NAME: &str = "user/large-GGUF:Q8_0";

/// A server of a shelf without models, and a hub with a large one.
struct Setup {
    server: Server,
    hub: hub::Server,
    home: TempDir,
    bytes: Vec<u8>,
}

/// The lines of a download's progress.
struct Following(Lines<BufReader<Box<dyn Read + Send>>>);

impl Iterator for Following {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let line = self.0.next()?.unwrap();
        Some(rope_cpu::json::parse(&line).unwrap())
    }
}

fn setup() -> Setup {
    let hub = hub::Server::start();
    // Zeros after a model, so that several connections download it.
    let mut bytes = fs::read(tiny_reader(5, true).path()).unwrap();
    bytes.resize(bytes.len() + (20 << 20), 0);
    hub.state().add(REPO, "large-Q8_0.gguf", &bytes, true);
    let home = tempfile::tempdir().unwrap();
    let mut command = Server::bare(&["serve", "--port", "0", "-c", "256"]);
    for (name, _) in std::env::vars() {
        if name.to_lowercase().ends_with("_proxy") || name.starts_with("XDG_") {
            command.env_remove(name);
        }
    }
    command.env("HOME", home.path()).env_remove("OLLAMA_MODELS");
    command.env("HF_ENDPOINT", hub.endpoint()).env("HF_HOME", home.path());
    Setup { server: Server::run(command, "listening on http://"), hub, home, bytes }
}

impl Setup {
    /// Returns the file of the model in the cache.
    fn blob(&self) -> PathBuf {
        let folder = self.home.path().join("hub/models--user--large-GGUF/blobs");
        folder.join(sha256(&self.bytes))
    }

    fn follow(&self) -> Following {
        let body = json!({ "model": REPO }).to_string();
        let answer = self.server.open("POST", "/api/pull", &[], &body);
        assert_eq!(answer.status(), 200);
        let body: Box<dyn Read + Send> = Box::new(answer.into_body().into_reader());
        Following(BufReader::new(body).lines())
    }

    /// Returns the events of `/models/sse`.
    fn watch(&self) -> impl Iterator<Item = Value> + use<> {
        let answer = self.server.open("GET", "/models/sse", &[], "");
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        let lines = BufReader::new(answer.into_body().into_reader()).lines();
        lines.map_while(Result::ok).filter_map(|line| {
            rope_cpu::json::parse(line.strip_prefix("data: ")?).map(Some).unwrap()
        })
    }

    /// Waits until no download runs.
    fn wait_until_ended(&self) {
        self.server.wait_until(|server| {
            server.stderr().contains("cannot be downloaded") && lock_is_free(&self.blob())
        });
    }
}

fn lock_is_free(blob: &Path) -> bool {
    fs::File::open(blob.with_extension("lock")).unwrap().try_lock().is_ok()
}

/// Reads the progress until `done` bytes have arrived.
#[track_caller]
fn read_until(following: &mut Following, done: u64) {
    let line = following.find(|line| line["completed"].as_u64().is_some_and(|bytes| bytes >= done));
    assert!(line.is_some());
}

#[test]
fn a_download_ends_when_its_last_client_leaves_and_resumes() {
    let setup = setup();
    setup.hub.state().pace = Some(Duration::from_millis(100));
    let [mut first, mut second] = [setup.follow(), setup.follow()];
    read_until(&mut first, 1 << 20);
    drop(first);
    // The other client still follows the same download.
    read_until(&mut second, 4 << 20);
    assert_eq!(setup.hub.log().iter().filter(|line| line.starts_with("hub GET /api")).count(), 1);
    drop(second);
    setup.wait_until_ended();
    assert!(!setup.blob().exists());
    let stderr = setup.server.stderr();
    assert!(stderr.contains("was cancelled"), "{stderr}");

    setup.hub.log();
    setup.hub.state().pace = None;
    let last = setup.follow().last().unwrap();
    assert_eq!(last, json!({ "status": "success" }));
    assert!(fs::read(setup.blob()).unwrap() == setup.bytes);
    // Each range continues where it was.
    let log = setup.hub.log();
    assert!(!log.iter().any(|line| line.contains(" bytes=0-")), "{log:?}");
    let listed = setup.server.get("/v1/models").json();
    assert_eq!(listed["data"][0]["id"], NAME);
}

#[test]
fn a_client_that_comes_back_continues_its_download() {
    let setup = setup();
    setup.hub.state().pace = Some(Duration::from_millis(60));
    for _ in 0..5 {
        let mut left = setup.follow();
        read_until(&mut left, 1);
        drop(left);
    }
    let body = json!({ "model": REPO, "stream": false });
    assert_eq!(setup.server.post("/api/pull", body).json()["status"], "success");
    assert!(fs::read(setup.blob()).unwrap() == setup.bytes);
}

#[test]
fn a_client_that_waits_without_a_stream_cancels_too() {
    let setup = setup();
    setup.hub.state().pace = Some(Duration::from_millis(100));
    let address = setup.server.address().to_string();
    let body = json!({ "model": REPO, "stream": false }).to_string();
    let mut client = std::net::TcpStream::connect(&address).unwrap();
    let head =
        format!("POST /api/pull HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}", body.len());
    std::io::Write::write_all(&mut client, format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
    setup.server.wait_until(|_| setup.blob().with_extension("part").exists());
    thread::sleep(Duration::from_millis(100));
    drop(client);
    setup.wait_until_ended();
    assert!(!setup.blob().exists());
}

#[test]
fn a_wrong_download_says_why() {
    let setup = setup();
    let post = |body: Value| setup.server.post("/api/pull", body);
    let error = |reply: super::harness::Reply| {
        let error = rope_cpu::json::parse::<Value>(&reply.text).unwrap()["error"].take();
        (reply.status, error.as_str().unwrap().to_string())
    };
    let (status, message) = error(post(json!({ "model": "nothing" })));
    assert!(status == 400 && message.contains("USER/MODEL[:QUANT]"), "{message}");
    let (status, message) = error(post(json!({ "model": "user/none", "stream": false })));
    assert!(status == 500 && message.contains("answers 404"), "{message}");
    let (status, message) = error(post(json!({ "model": REPO, "insecure": true })));
    assert!(status == 400 && message.contains("insecure"), "{message}");
}

#[test]
fn downloads_of_the_router_go_on_without_clients_and_are_watched() {
    let setup = setup();
    let mut events = setup.watch();
    let download = || setup.server.post("/models", json!({ "model": NAME }));
    assert_eq!(download().json()["success"], true);
    let progress = events.find(|event| event["event"] == "download_progress").unwrap();
    assert_eq!(progress["model"], NAME);
    let finished = events.find(|event| event["event"] == "download_finished").unwrap();
    assert_eq!(finished, json!({ "model": NAME, "event": "download_finished" }));
    assert_eq!(setup.server.get("/models").json()["data"][0]["id"], NAME);
    download().refused(400, &["exists already"]);

    let remove = || setup.server.send("DELETE", &format!("/models?model={NAME}"), &[], "");
    assert_eq!(remove().json()["success"], true);
    events.find(|event| event["event"] == "model_remove").unwrap();
    assert_eq!(setup.server.get("/models").json()["data"], json!([]));
    remove().refused(404, &["no model is named"]);
    setup.server.send("DELETE", "/models", &[], "").refused(400, &["\"model\": must be given"]);

    // A removal or an unloading ends a download.
    setup.hub.state().pace = Some(Duration::from_millis(100));
    for ends in ["remove", "unload"] {
        assert_eq!(download().json()["success"], true);
        events.find(|event| event["event"] == "download_progress").unwrap();
        let ended = match ends {
            "remove" => remove(),
            _ => setup.server.post("/models/unload", json!({ "model": NAME })),
        };
        assert_eq!(ended.json()["success"], true);
        let failed = events.find(|event| event["event"] == "download_failed").unwrap();
        assert!(failed["data"]["message"].as_str().unwrap().contains("was cancelled"), "{failed}");
    }
    assert!(!setup.blob().exists());
}

#[test]
fn events_end_when_the_server_stops() {
    let mut setup = setup();
    let events = setup.watch();
    let began = std::time::Instant::now();
    setup.server.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(setup.server.exit_code(), Some(0), "{}", setup.server.stderr());
    assert_eq!(events.count(), 0);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
