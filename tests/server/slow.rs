//! Clients that send or read too slowly.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::server::harness::{PATIENCE, PROMPT, Server, serve};

/// Returns a connection with reads that fail when nothing arrives.
fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a byte every 50 ms, until the server answers or closes the connection. Returns the answer.
fn drip(mut stream: TcpStream, bytes: &[u8]) -> String {
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let (began, mut answer) = (Instant::now(), Vec::new());
    for byte in bytes.iter().cycle() {
        assert!(began.elapsed() < PATIENCE);
        // The server may have closed the connection, after an answer.
        let _ = stream.write_all(&[*byte]);
        match stream.read_to_end(&mut answer) {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            _ => break,
        }
    }
    assert!(began.elapsed() > Duration::from_millis(900), "too early");
    String::from_utf8(answer).unwrap()
}

#[test]
fn a_request_that_does_not_arrive_gets_408() {
    let server = serve(&["-c", "256", "--timeout", "1"]);
    // A head without an end, whole headers one after the other.
    let mut head = connect(&server);
    head.write_all(b"GET /props HTTP/1.1\r\nhost: localhost\r\n").unwrap();
    let mut body = connect(&server);
    body.write_all(
        b"POST /completion HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999\r\n\r\n{",
    )
    .unwrap();
    let dripping = [(head, &b"x: y\r\n"[..]), (body, b" ")]
        .map(|(stream, bytes)| thread::spawn(move || drip(stream, bytes)));
    // Others are answered meanwhile.
    server.post("/completion", json!({ "prompt": PROMPT, "n_predict": 2 })).json();
    let [head, body] = dripping.map(|dripping| dripping.join().unwrap());
    assert!(head.starts_with("HTTP/1.1 408 "), "{head:?}");
    assert!(body.starts_with("HTTP/1.1 408 ") && body.contains("within 1 s"), "{body:?}");
    // An idle connection is closed without an answer.
    let mut rest = String::new();
    connect(&server).read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn a_client_that_reads_nothing_is_cut_off() {
    let server = serve(&["-c", "100000", "-np", "2", "--timeout", "1"]);
    let mut stream = connect(&server);
    // Each event has many probabilities, so that the buffers of the system are soon full.
    let body =
        json!({ "prompt": PROMPT, "n_predict": -1, "stream": true, "n_probs": 20 }).to_string();
    let head = "POST /completion HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    server.wait_until(|server| server.slot(0)["is_processing"] == true);
    server.wait_until(|server| server.stderr().contains("end=\"cancelled\""));
    // An answer of the same length goes to one that reads.
    let answer = json!({ "prompt": PROMPT, "n_predict": 3000 });
    assert_eq!(server.stream("/completion", answer).last().unwrap()["tokens_predicted"], 3000);
}

#[test]
fn a_stream_that_nobody_reads_pauses_until_it_is_read() {
    let server = serve(&["-c", "30000", "-np", "2"]);
    let answer = json!({ "prompt": PROMPT, "n_predict": 20_000, "n_probs": 40 });
    let mut unread = server.stream("/completion", answer);
    let tokens = |server: &Server| server.slot(0)["n_tokens"].as_u64().unwrap();
    let mut before = 0;
    // Another answer has 100 steps between two looks.
    server.wait_until(|server| {
        server.post("/completion", json!({ "prompt": "a", "n_predict": 100 })).json();
        let last = std::mem::replace(&mut before, tokens(server));
        before == last && before > 0
    });
    // The slot is still the stream's.
    let slot = server.slot(0);
    assert_eq!((&slot["is_processing"], &slot["n_tokens"]), (&json!(true), &json!(before)));
    assert_eq!(unread.by_ref().last().unwrap()["tokens_predicted"], 20_000);
}

/// Sends a request, and ends what is sent on its connection.
fn half_closed(server: &Server, path: &str, body: &Value) -> TcpStream {
    let mut stream = connect(server);
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n");
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream
}

#[test]
fn a_client_that_has_ended_what_it_sends_gets_its_answer() {
    let server = serve(&["-c", "512", "-np", "1"]);
    for (path, body, end) in [
        ("/completion", json!({ "prompt": PROMPT, "n_predict": 300 }), r#""truncated":false"#),
        (
            "/completion",
            json!({ "prompt": PROMPT, "stream": true, "n_predict": 9 }),
            r#""stop":true"#,
        ),
        ("/tokenize", json!({ "content": PROMPT }), r#""tokens":["#),
    ] {
        let mut answer = String::new();
        half_closed(&server, path, &body).read_to_string(&mut answer).unwrap();
        assert!(answer.contains("HTTP/1.1 200 ") && answer.contains(end), "{path}: {answer}");
    }
}

#[test]
fn an_answer_is_cancelled_when_its_client_goes_away() {
    let server = serve(&["-c", "512", "-np", "1", "--context-shift"]);
    let endless = json!({ "prompt": PROMPT, "n_predict": -1 });
    let open = half_closed(&server, "/completion", &endless);
    server.wait_until(|server| server.slot(0)["is_processing"] == true);
    drop(open);
    server.wait_until(|server| server.stderr().contains("end=\"cancelled\""));
    // The slot is free.
    server.post("/completion", json!({ "prompt": PROMPT, "n_predict": 2 })).json();
}

/// While a request waits, each interface has a value that its clients count.
#[test]
fn a_silent_stream_gets_signs_of_life() {
    let options = ["-c", "512", "-np", "1", "--context-shift", "--sse-ping-interval", "1"];
    let server = serve(&[&options[..], &["--chat-template", "{{ messages[0].content }}"]].concat());
    // The only slot is in use.
    let mut endless = server.stream("/completion", json!({ "prompt": PROMPT, "n_predict": -1 }));
    endless.next().unwrap();
    let messages = json!([{ "role": "user", "content": PROMPT }]);
    let streams = [
        ("/v1/chat/completions", json!({ "messages": messages }), r#""delta":{}"#),
        ("/v1/messages", json!({ "messages": messages, "max_tokens": 1 }), r#""type":"ping""#),
        ("/v1/responses", json!({ "input": PROMPT }), r#""type":"response.in_progress""#),
        ("/v1/completions", json!({ "prompt": PROMPT }), r#""text":"""#),
    ]
    .map(|(path, body, sign)| (path, server.stream(path, body), sign));
    for (path, events, sign) in streams {
        let signs = events.filter(|event| event.to_string().contains(sign));
        assert_eq!(signs.take(3).count(), 3, "{path}");
    }
}
