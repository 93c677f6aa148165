//! Requests with a long preparation.

use std::{io::Write, net::TcpStream, thread, time::Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::server::harness::{PROMPT, Server, serve};

/// The number of expensive requests at a time: more than there are threads for them.
const REQUESTS: u32 = 12;

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
    let mut server = serve(&["-c", "256", "--drain-timeout", "0"]);
    let address = server.address.clone();
    let body = expensive().to_string();
    let began = Instant::now();
    tokenize(&server);
    let one = began.elapsed();
    let requests: Vec<_> = (0..REQUESTS).map(|_| open(&address, "/tokenize", &body)).collect();
    thread::sleep(one / 8);
    let began = Instant::now();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.exit_code(), Some(0), "{}", server.stderr());
    // Not even the requests that have a thread are waited for.
    assert!(began.elapsed() < one / 2, "{:?} of {one:?}", began.elapsed());
    drop(requests);
}

#[test]
fn work_whose_client_has_gone_is_not_started() {
    let server = serve(&["-c", "256"]);
    let body = expensive().to_string();
    let began = Instant::now();
    tokenize(&server);
    let one = began.elapsed();
    let gone: Vec<_> = (0..REQUESTS).map(|_| open(&server.address, "/tokenize", &body)).collect();
    thread::sleep(one / 8);
    drop(gone);
    let began = Instant::now();
    tokenize(&server);
    // All of them take twelve times as long as one, and the one that has begun as long as one.
    assert!(began.elapsed() < one * 4, "{:?} of {one:?}", began.elapsed());
}

#[test]
fn small_requests_do_not_wait_for_large_ones() {
    let server = serve(&["-c", "256"]);
    let body = expensive().to_string();
    let began = Instant::now();
    tokenize(&server);
    let one = began.elapsed();
    let large: Vec<_> = (0..REQUESTS).map(|_| open(&server.address, "/tokenize", &body)).collect();
    thread::sleep(one / 8);
    let began = Instant::now();
    server.post("/tokenize", json!({ "content": "a" })).json();
    // All of them take twelve times as long as one.
    assert!(began.elapsed() < one * 2, "{:?} of {one:?}", began.elapsed());
    drop(large);
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

/// Sends a request, and returns its connection.
fn open(address: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    stream
}
