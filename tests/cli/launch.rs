//! `launch`: an agent beside a server. A shell script stands in for the agent.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use tempfile::{NamedTempFile, TempDir};

use crate::{
    cli::{Run, finish, rope_cpu},
    server::harness::Server,
};
use rope_cpu_testing::reader::tiny_reader;

/// Runs `launch` with the agent `script` in a folder of its own, the first of PATH.
fn launch(agent: &str, script: Option<&str>, options: &[&str]) -> Run {
    let model = tiny_reader(1, true);
    let model = model.path().to_str().unwrap();
    start(agent, script, &[&["-m", model, "-c", "256"], options].concat())
}

/// Runs `launch` with the agent `script`, whatever the model.
fn start(agent: &str, script: Option<&str>, options: &[&str]) -> Run {
    let folder = TempDir::new().unwrap();
    if let Some(script) = script {
        let program = folder.path().join(agent);
        fs::write(&program, format!("#!/bin/bash\n{script}")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = rope_cpu(&["launch", agent]);
    command.args(options);
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    command.env("PATH", path).env("TMPDIR", folder.path()).env("HOME", folder.path());
    finish(command)
}

/// A folder with a model of the name `tiny`.
fn shelf() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::copy(tiny_reader(1, true).path(), folder.path().join("tiny.gguf")).unwrap();
    folder
}

/// Prints the arguments, and asks the server that they name.
const SHOW: &str = r#"
    printf '%s\n' "$@"
    [[ "$*" =~ 127\.0\.0\.1:([0-9]+)/v1 ]]
    exec 3<>/dev/tcp/127.0.0.1/${BASH_REMATCH[1]}
    printf 'GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
    head -n 1 <&3"#;

#[test]
fn a_name_starts_a_server_of_its_model() {
    let folder = shelf();
    let models = ["--models-dir", folder.path().to_str().unwrap()];
    let port = free_port();
    for name in [&["tiny"][..], &["-m", "tiny"], &["TIN"]] {
        let run = start("codex", Some(SHOW), &[name, &models, &["-c", "256"]].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert!(run.stdout.ends_with("HTTP/1.1 200 OK\r\n"), "{}", run.stdout);
        assert!(run.stdout.contains("model_context_window=256"), "{}", run.stdout);
    }
    // Nothing listens there, so the server of its own does.
    let at = start("codex", Some(SHOW), &[&["tiny", "--port", &port], &models[..]].concat());
    assert_eq!(at.code, Some(0), "{}", at.stderr);
    assert!(at.stdout.contains(&format!("127.0.0.1:{port}/v1")), "{}", at.stdout);
    let path = folder.path().join("tiny.gguf");
    let file = start("codex", Some(SHOW), &[path.to_str().unwrap(), "-c", "256"]);
    assert_eq!(file.code, Some(0), "{}", file.stderr);
    start("codex", Some(SHOW), &[&["tyni"], &models[..]].concat())
        .refused(2, &["no file and no model is named tyni"]);
    start("codex", Some(SHOW), &models).refused(2, &["launch needs a model", "rope-cpu list"]);
}

fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

/// Starts a server of the models in a folder.
fn serve(folder: &Path, options: &[&str]) -> (Server, String) {
    let mut command = Server::bare(&["serve", "--port", "0"]);
    command.arg("--models-dir").arg(folder).args(options).env("HOME", folder);
    let server = Server::run(command, "listening on http://");
    let port = server.address().rsplit(':').next().unwrap().to_string();
    (server, port)
}

#[test]
fn a_server_that_has_the_model_is_used() {
    let folder = shelf();
    let (server, port) = serve(folder.path(), &["-c", "32k", "--api-key", "secret"]);
    let models = folder.path().to_str().unwrap();
    let options = ["tiny", "--port", &port, "--models-dir", models, "--api-key", "secret"];
    let script = "printf '%s\n' \"$@\" \"$ROPE_CPU_KEY\"; kill -INT $PPID; sleep 0.2; exit 7";
    let run = start("codex", Some(script), &options);
    assert_eq!(run.code, Some(7), "{}", run.stderr);
    run.said(&[&format!("codex uses tiny of the server at http://127.0.0.1:{port}/v1")]);
    for part in ["model=\"tiny\"", "model_context_window=32768", &format!(":{port}/v1"), "secret"] {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }
    // It goes on without the agent.
    let key = [("authorization", "Bearer secret")];
    assert_eq!(server.send("GET", "/v1/models", &key, "").status, 200);
    // Without the key, the server is not asked further, and the port is taken.
    start("codex", Some(script), &options[..5]).refused(1, &["cannot listen on", &port]);
    // Another option may need another server.
    let own = start("codex", Some(script), &["tiny", "--models-dir", models, "-c", "512"]);
    assert!(own.stdout.contains("model_context_window=512"), "{}", own.stdout);
}

#[test]
fn a_server_with_a_short_context_is_not_used() {
    let folder = shelf();
    let (_server, port) = serve(folder.path(), &["-c", "1k"]);
    let options = ["tiny", "--port", &port, "--models-dir", folder.path().to_str().unwrap()];
    let run = start("codex", Some("exit 0"), &options);
    run.said(&["is not used: tiny has a context of 1024 tokens there", "start it with -c 32768"]);
}

#[test]
fn an_agent_reaches_the_server_and_gives_the_exit_code() {
    // Ctrl-C is for the agent: the server goes on after SIGINT.
    let script = r#"
        printf '%s\n' "$@" >&2
        kill -INT $PPID
        sleep 0.3
        [[ "$*" =~ 127\.0\.0\.1:([0-9]+)/v1 ]]
        exec 3<>/dev/tcp/127.0.0.1/${BASH_REMATCH[1]}
        printf 'GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer %s\r\n\r\n' \
            "$ROPE_CPU_KEY" >&3
        head -n 1 <&3
        exit 7"#;
    for key in ["", "--api-key=a-secret"] {
        let options = [key, "--", "exec", "Say hello."];
        let run = launch("codex", Some(script), &options[usize::from(key.is_empty())..]);
        assert_eq!(run.code, Some(7), "{}", run.stderr);
        assert_eq!(run.stdout.trim(), "HTTP/1.1 200 OK");
        assert!(run.stderr.contains("\nexec\nSay hello.\n"), "{}", run.stderr);
        assert!(run.stderr.contains("model_context_window=256"), "{}", run.stderr);
    }
}

#[test]
fn the_file_of_the_log_has_the_requests_and_the_terminal_has_none() {
    let script = r#"
        [[ "$*" =~ 127\.0\.0\.1:([0-9]+)/v1 ]]
        exec 3<>/dev/tcp/127.0.0.1/${BASH_REMATCH[1]}
        printf 'GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
        head -n 1 <&3"#;
    let log = NamedTempFile::new().unwrap();
    let run = launch("codex", Some(script), &["--log-file", log.path().to_str().unwrap()]);
    assert_eq!(run.stdout.trim(), "HTTP/1.1 200 OK", "{}", run.stderr);
    let log = fs::read_to_string(log.path()).unwrap();
    assert!(log.contains("/v1/models"), "{log}");
    assert!(!run.stderr.contains("/v1/models"), "{}", run.stderr);
}

#[test]
fn keys_are_read_from_a_file_of_lines() {
    let file = NamedTempFile::new().unwrap();
    fs::write(&file, "\u{feff}\r\n a-secret \r\nanother\r\n").unwrap();
    let options = ["--api-key-file", file.path().to_str().unwrap()];
    let run = launch("codex", Some("printf %s $ROPE_CPU_KEY"), &options);
    assert_eq!((run.code, &run.stdout[..]), (Some(0), "a-secret"), "{}", run.stderr);
}

#[test]
fn aider_reads_the_size_of_the_context_from_a_file_that_is_removed() {
    let script = r#"
        echo "$OPENAI_API_BASE"
        echo "$@"
        cat "$4""#;
    let run = launch("aider", Some(script), &["--", "--message", "Say hello."]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let [base, arguments, metadata] = run.stdout.lines().collect::<Vec<_>>()[..] else {
        panic!("{}", run.stdout)
    };
    assert!(base.starts_with("http://127.0.0.1:") && base.ends_with("/v1"), "{base}");
    let (options, path) = arguments.split_once(" --model-metadata-file ").unwrap();
    let (path, of_user) = path.split_once(' ').unwrap();
    assert_eq!((options, of_user), ("--model openai/any", "--message Say hello."));
    let metadata: serde_json::Value = rope_cpu::json::parse(metadata).unwrap();
    assert_eq!(metadata["openai/any"]["max_input_tokens"], 256);
    assert_eq!(metadata["openai/any"]["max_output_tokens"], 64);
    assert!(!Path::new(path).exists(), "{path}");
}

#[test]
fn an_agent_that_is_not_installed_is_refused_with_the_way_to_install_it() {
    launch("codex", None, &[])
        .refused(2, &["codex is not installed", "npm install -g @openai/codex"]);
}
