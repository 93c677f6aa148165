//! Memory that the system refuses to the server.
#![cfg(target_os = "linux")]

use std::process::Command;

use serde_json::json;

use crate::server::harness::{PROMPT, Server, serve};
use rope_cpu_testing::reader::tiny_reader;

/// Lets the server allocate at most `more` bytes from now on.
fn limit(server: &Server, more: u64) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let size: u64 = size.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    let limit = format!("--as={}", size * 1024 + more);
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
