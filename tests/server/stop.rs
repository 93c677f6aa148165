//! The end of a server.

use nix::sys::signal::Signal;
use serde_json::json;

use crate::server::harness::{PROMPT, serve};

#[test]
fn an_idle_server_stops_at_once() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut server = serve(&["-c", "256"]);
        server.get("/readyz").json();
        server.signal(signal);
        assert_eq!(server.exit_code(), Some(0), "{}", server.stderr());
    }
}

#[test]
fn a_running_answer_is_finished_before_the_server_stops() {
    let mut server = serve(&["-c", "8192", "-np", "1", "--drain-timeout", "100"]);
    let body = json!({ "prompt": PROMPT, "n_predict": 6000 });
    let mut events = server.stream("/completion", body.clone());
    events.next().unwrap();
    server.signal(Signal::SIGTERM);
    server.wait_until(|server| server.get("/readyz").status == 503);
    server.get("/livez").json();
    for path in ["/completion", "/v1/completions", "/v1/messages", "/api/generate"] {
        let reply = server.post(path, body.clone());
        assert!(reply.status == 503 && reply.text.contains("is stopping"), "{path}");
        assert!(reply.header("retry-after").is_some(), "{path}");
        assert_eq!(reply.header("connection"), Some("close"), "{path}");
    }
    let last = events.last().unwrap();
    assert_eq!(last["tokens_predicted"], 6000);
    assert_eq!(server.exit_code(), Some(0), "{}", server.stderr());
}

#[test]
fn answers_that_take_too_long_are_cut_off() {
    let mut server = serve(&["-c", "512", "--context-shift", "--drain-timeout", "0"]);
    let mut events = server.stream("/completion", json!({ "prompt": PROMPT, "n_predict": -1 }));
    events.next().unwrap();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.exit_code(), Some(0), "{}", server.stderr());
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let mut server = serve(&["-c", "512", "--context-shift", "--drain-timeout", "1000"]);
    let mut events = server.stream("/completion", json!({ "prompt": PROMPT, "n_predict": -1 }));
    events.next().unwrap();
    server.signal(Signal::SIGTERM);
    server.wait_until(|server| server.get("/readyz").status == 503);
    server.signal(Signal::SIGTERM);
    assert_eq!(server.exit_code(), Some(143), "{}", server.stderr());
}
