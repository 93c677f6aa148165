//! Requests with a long preparation. None of these tests compares times: they look at which of some
//! requests has an answer first.

use std::{io::Write, net::TcpStream, thread};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::server::{
    harness::{PROMPT, Server, serve},
    log::lines,
};

/// The number of expensive requests at a time: more than there are threads for them.
const REQUESTS: usize = 12;

/// A request with a text that takes a long time to become tokens.
fn expensive() -> Value {
    json!({ "content": "the rain in the north ".repeat(180_000) })
}

fn tokenize(server: &Server) {
    assert_eq!(server.post("/tokenize", expensive()).status, 200);
}

#[test]
fn other_requests_go_on_while_some_are_prepared() {
    let server = serve(&["-c", "100000", "--context-shift"]);
    let mut events = server.stream("/completion", json!({ "prompt": PROMPT, "n_predict": -1 }));
    events.next().unwrap();
    let answered = thread::scope(|scope| {
        let all: Vec<_> = (0..REQUESTS).map(|_| scope.spawn(|| tokenize(&server))).collect();
        let mut answered = 0;
        while all.iter().any(|request| !request.is_finished()) {
            server.get("/health").json();
            // The stream also continues.
            events.next().unwrap();
            answered += 1;
        }
        answered
    });
    // If threads of connections do the work of requests, at most one answer follows each of them.
    assert!(answered > 2 * REQUESTS, "{answered}");
}

#[test]
fn a_server_stops_while_requests_are_prepared() {
    let mut server = serve(&["-c", "256", "--drain-timeout", "0", "--log-format", "json"]);
    let requests = busy(&server, REQUESTS);
    let before = answered(&requests);
    server.signal(Signal::SIGTERM);
    assert_eq!(server.exit_code(), Some(0), "{}", server.stderr());
    // A request has its line when its work has ended, or is given up before it starts. The request
    // that has the thread is not waited for; there is none if the next one has not started yet.
    let log = server.stderr_to_end();
    let (lines, done) = (log.matches("/tokenize").count(), log.matches(r#""status":200"#).count());
    assert!(lines < REQUESTS || done == before, "{log}");
    drop(requests);
}

#[test]
fn work_whose_client_has_gone_is_not_started() {
    let server = serve(&["-c", "200000", "-np", "1", "--log-format", "json", "--log-prompts"]);
    let requests = busy(&server, 2);
    // Of more than 64 KiB, so that they wait for the thread.
    let prompt = "the rain in the north ".repeat(5_000);
    let body = json!({ "prompt": prompt, "n_predict": 1 }).to_string();
    let gone: Vec<_> = (0..REQUESTS).map(|_| open(&server, "/completion", &body)).collect();
    drop(gone);
    lines(&server, "/completion", REQUESTS);
    // The thread takes this one after all of them.
    tokenize(&server);
    // The log has the prompt of each request that was prepared.
    let started = server.stderr().matches(r#""target":"prompt""#).count();
    assert!(started <= 1, "{started}");
    drop(requests);
}

#[test]
fn small_requests_do_not_wait_for_large_ones() {
    let server = serve(&["-c", "256"]);
    let requests = busy(&server, REQUESTS);
    let before = answered(&requests);
    server.post("/tokenize", json!({ "content": "a" })).json();
    let meanwhile = answered(&requests) - before;
    assert!(meanwhile <= 2, "{meanwhile}");
}

#[test]
fn too_many_stop_strings_are_refused() {
    let server = serve(&["-c", "256"]);
    let post = |field: &str, texts: Vec<String>| {
        server.post("/completion", json!({ "prompt": PROMPT, "n_predict": 1, field: texts }))
    };
    let many = |count: usize| (0..count).map(|number| number.to_string()).collect::<Vec<_>>();
    post("stop", many(1024)).json();
    post("stop", many(1025)).refused(400, &["\"stop\"", "at most 1024 strings", "1025"]);
    post("stop", vec!["a".repeat(65_537)]).refused(400, &["\"stop\"", "65536 bytes", "65537"]);
    let field = "dry_sequence_breakers";
    post(field, many(64)).json();
    post(field, many(65)).refused(400, &[field, "at most 64 strings", "65"]);
    post(field, vec!["a".repeat(1025)]).refused(400, &[field, "1024 bytes", "1025"]);
}

/// Sends expensive requests, and waits until one has an answer. Another then has the only thread for
/// them.
fn busy(server: &Server, count: usize) -> Vec<TcpStream> {
    let body = expensive().to_string();
    let requests: Vec<_> = (0..count).map(|_| open(server, "/tokenize", &body)).collect();
    server.wait_until(|_| answered(&requests) > 0);
    requests
}

/// Returns how many requests have an answer.
fn answered(requests: &[TcpStream]) -> usize {
    let has_answer = |stream: &&TcpStream| {
        stream.set_nonblocking(true).unwrap();
        stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0)
    };
    requests.iter().filter(has_answer).count()
}

/// Sends a request, and returns its connection.
fn open(server: &Server, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    stream
}
