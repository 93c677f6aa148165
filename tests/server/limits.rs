//! Limits of what requests may take.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
};

use serde_json::json;

use crate::server::harness::{PATIENCE, PROMPT, Server, serve};

/// Maximum values of a body.
const VALUES_MAX: usize = 1 << 20;

/// Sends a part of a request.
fn begin(server: &Server, length: usize, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = "POST /tokenize HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    let _ = write!(stream, "{head}content-length: {length}\r\n\r\n{body}");
    stream
}

/// Returns the beginning of the answer on a connection; nothing if it was reset.
fn answer(stream: &mut TcpStream) -> String {
    let mut answer = [0; 1000];
    let length = stream.read(&mut answer).unwrap_or(0);
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

/// Returns whether there is an answer to read, or the connection was reset.
fn has_ended(stream: &TcpStream) -> bool {
    !matches!(stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn a_request_has_a_limited_number_of_answers() {
    let server = serve(&["-c", "256"]);
    for path in ["/completion", "/v1/completions"] {
        let post = |prompts: usize, n: usize| {
            let prompts = vec!["a"; prompts];
            server.post(path, json!({ "prompt": prompts, "n": n, "max_tokens": 1 }))
        };
        post(1025, 1).refused(400, &["\"prompt\"", "at most 1024 prompts", "1025"]);
        post(17, 64).refused(400, &["\"n\"", "64", "17", "1088", "at most 1024"]);
        let answers = post(16, 64).json();
        let answers = answers.as_array().or(answers["choices"].as_array()).unwrap().len();
        assert_eq!(answers, 1024, "{path}");
    }
    let long = "a".repeat(4 << 20);
    let body = json!({ "messages": [{ "role": "user", "content": long }], "n": 64 });
    let server = serve(&["-c", "256", "--chat-template", "{{ messages[0].content }}"]);
    server.post("/v1/chat/completions", body).refused(400, &["\"n\"", "64", "16777216"]);
}

#[test]
fn a_body_has_a_limited_number_of_values() {
    let server = serve(&["-c", "256"]);
    let body = |count: usize| format!(r#"{{"x": [{}0]}}"#, "0,".repeat(count));
    let post = |body: &str| server.send("POST", "/tokenize", &[], body);
    // Besides the zeros with a comma there is the last one, in a list in an object.
    post(&body(VALUES_MAX - 2)).json();
    post(&body(VALUES_MAX - 1)).refused(413, &["too many values", "1048576"]);
    // What is in a text does not count.
    post(&format!(r#"{{"content": "{}"}}"#, "[,\\\"".repeat(VALUES_MAX / 2))).json();
    let nested = |depth: usize| format!(r#"{{"x": {}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    post(&nested(100)).json();
    post(&nested(128)).refused(400, &["nested deeper than 128"]);
}

#[test]
fn bodies_have_a_limited_memory_together() {
    let server = serve(&["-c", "256"]);
    let most = "0,".repeat(VALUES_MAX - 100);
    // Each needs 130 MiB, while it has not arrived whole. There is no room for four, and any of
    // them may be refused. The answer can be lost with a connection that is reset.
    let mut open = Vec::new();
    server.wait_until(|server| {
        open = (0..4).map(|_| begin(server, most.len() + 1, &most)).collect();
        open.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
        server.wait_until(|_| open.iter().any(has_ended));
        open.iter_mut()
            .map(answer)
            .any(|answer| answer.starts_with("HTTP/1.1 503") && answer.contains("512 MiB already"))
    });
    server.post("/tokenize", json!({ "content": "a" })).json();
    drop(open);
    server.wait_until(|server| {
        answer(&mut begin(server, most.len(), &most)).starts_with("HTTP/1.1 400")
    });
}

#[test]
fn biases_are_for_at_most_as_many_tokens_as_there_are() {
    let server = serve(&["-c", "256"]);
    let post = |bias| {
        let body = json!({ "prompt": PROMPT, "n_predict": 1, "logit_bias": bias });
        server.post("/completion", body)
    };
    post(json!(vec![(5, 1.0); 40])).json();
    let expected = ["\"logit_bias\"", "at most 40 tokens"];
    post(json!(vec![(5, 1.0); 41])).refused(400, &expected);
    post(json!({ "a".repeat(41): 1.0 })).refused(400, &expected);
}

#[test]
fn the_largest_body_follows_from_the_context() {
    for (context, options, mebibytes) in
        [("256", &[][..], 5), ("100000", &[], 11), ("256", &["--body-max", "2"], 2)]
    {
        let server = serve(&[&["-c", context], options].concat());
        let answer = answer(&mut begin(&server, (mebibytes << 20) + 1, ""));
        let expected = format!("at most {mebibytes} MiB");
        assert!(answer.starts_with("HTTP/1.1 413") && answer.contains(&expected), "{answer}");
        let padding = (mebibytes << 20) - 2;
        let body = format!("{{{}}}", " ".repeat(padding));
        assert_eq!(server.send("POST", "/tokenize", &[], &body).status, 200);
    }
}

#[test]
fn connections_beyond_a_number_are_refused() {
    let server = serve(&["-c", "256", "-np", "1", "--max-queue", "1"]);
    let mut open = Vec::new();
    for _ in 0..258 {
        open.push(TcpStream::connect(server.address()).unwrap());
    }
    let refused = || {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        answer(&mut stream)
    };
    assert!(refused().starts_with("HTTP/1.1 503"));
    // Those that are open are served.
    let last = open.last_mut().unwrap();
    last.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    assert!(answer(last).starts_with("HTTP/1.1 200"));
    drop(open);
    server.wait_until(|server| {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        let _ = stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).is_ok() && &answer == b"HTTP/1.1 200"
    });
}
