//! Memory that the system refuses to the server.
#![cfg(target_os = "linux")]

use std::{io::Write, net::TcpStream, process::Command};

use serde_json::{Value, json};

use crate::server::harness::{PROMPT, Server, serve};
use rope_cpu_testing::reader::tiny_reader;

/// Returns a line of the server's status in bytes.
fn status(server: &Server, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":")).unwrap();
    1024 * size.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap()
}

/// Sends a request, and returns its connection.
fn send(server: &Server, path: &str, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let body = body.to_string();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n");
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    stream
}

/// Lets the server allocate at most `more` bytes from now on.
fn limit(server: &Server, more: u64) {
    let limit = format!("--as={}", status(server, "VmSize") + more);
    let set = Command::new("prlimit").args(["--pid", &server.id().to_string(), &limit]).status();
    assert!(set.unwrap().success());
}

#[test]
fn an_answer_without_memory_fails_and_others_do_not() {
    let types = ["-ctk", "f32", "-ctv", "f32"];
    let server = serve(&[&["-c", "20000", "-np", "2"], &types[..]].concat());
    let short = json!({ "prompt": PROMPT, "n_predict": 8, "temperature": 0 });
    let expected = server.post("/completion", short.clone()).json();
    limit(&server, 4 << 20);
    let long = json!({ "prompt": PROMPT.repeat(900), "n_predict": 1 });
    for _ in 0..2 {
        let error = server.post("/completion", long.clone());
        error.refused(503, &["refused", "bytes of memory", "choose a smaller context"]);
        let again = server.post("/completion", short.clone()).json();
        assert_eq!(again["content"], expected["content"]);
    }
}

#[test]
fn a_text_without_memory_is_refused_and_others_are_not() {
    let server = serve(&["-c", "256"]);
    let tokenize = |text: String| server.post("/tokenize", json!({ "content": text }));
    let expected = tokenize(PROMPT.into()).json();
    let long = "ab c".repeat(950_000);
    let tokens = tokenize(long.clone()).json()["tokens"].as_array().unwrap().len();
    assert!(tokens >= 950_000, "{tokens}");
    limit(&server, 64 << 20);
    for _ in 0..2 {
        let refused = tokenize(long.clone());
        assert_eq!(refused.status, 503, "{}", refused.text.len());
        refused.refused(503, &["refused", "bytes of memory", "divide the request"]);
        assert_eq!(tokenize(PROMPT.into()).json(), expected);
    }
}

#[test]
fn limits_of_the_process_are_part_of_the_plan() {
    let model = tiny_reader(7, true);
    let mut command = Command::new("sh");
    let limited = "ulimit -v 2000000 && exec \"$0\" \"$@\"";
    command.args(["-c", limited, env!("CARGO_BIN_EXE_rope-cpu"), "--dry-run", "-m"]);
    let output = command.arg(model.path()).args(["-c", "10000000"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("within the limits of this process (ulimit -v, -d)"), "{stderr}");
}

#[test]
fn answers_that_are_too_large_are_refused_before_they_are_computed() {
    let server = serve(&["-c", "2048", "-np", "1"]);
    let body = |count: usize, n_predict: usize| json!({ "prompt": vec!["a"; count], "n": 64, "n_probs": 128, "n_predict": n_predict });
    // 1,024 answers of 600 tokens with 1,144 bytes of probabilities each.
    let parts = ["could take 670 MiB", "at most 512 MiB", "n_predict", "stream"];
    server.post("/completion", body(16, 600)).refused(400, &parts);
    let echo = json!({
        "prompt": vec![vec![5; 2040]; 256], "max_tokens": 1, "logprobs": 20, "echo": true, "n": 4,
    });
    server.post("/v1/completions", echo).refused(400, &["could take", "at most 512 MiB"]);
    // Each of these would fit, but not both.
    let open = send(&server, "/completion", &body(16, 300));
    server.wait_until(|server| server.slot(0)["is_processing"] == true);
    let second = json!({ "regex": "a", "n_predict": 300 });
    let merged = |mut body: Value| {
        body.as_object_mut().unwrap().extend(second.as_object().unwrap().clone());
        body
    };
    let second = merged(body(16, 300));
    let parts = ["bodies and answers of all requests take 512 MiB already"];
    server.post("/completion", second.clone()).refused(503, &parts);
    server.post("/completion", body(1, 1)).json();
    drop(open);
    // Each of its answers ends after a token.
    server.wait_until(|server| server.post("/completion", second.clone()).status == 200);
}

#[test]
fn an_answer_takes_little_more_memory_than_its_numbers() {
    let server = serve(&["-c", "256"]);
    let body = |n_probs: usize| json!({ "prompt": ["a", "b"], "n": 64, "n_predict": 20, "n_probs": n_probs });
    server.post("/completion", body(0)).json();
    let before = status(&server, "VmHWM");
    let answers = server.post("/completion", body(128)).json();
    let last = &answers[127]["completion_probabilities"][19];
    assert_eq!(last["top_logprobs"].as_array().unwrap().len(), 40);
    // 2,560 tokens with 40 probabilities each, which were 0.6 KB each as values.
    let grown = status(&server, "VmHWM") - before;
    assert!(grown < 16 << 20, "{grown}");
}

#[test]
fn answers_that_nobody_reads_take_little_memory() {
    let server = serve(&["-c", "256"]);
    let body = json!({ "content": "ab c".repeat(250_000), "with_pieces": true });
    // Its answer is read by nobody, as that of all others.
    let first = send(&server, "/tokenize", &body);
    let answered = |stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0)
    };
    server.wait_until(|_| answered(&first));
    let before = status(&server, "VmRSS");
    let others: Vec<_> = (0..8).map(|_| send(&server, "/tokenize", &body)).collect();
    server.wait_until(|_| others.iter().all(answered));
    // A million tokens of 4 bytes each, or 30 bytes as text.
    let grown = status(&server, "VmRSS").saturating_sub(before);
    assert!(grown < 100 << 20, "{grown}");
}
