//! `launch`: an agent beside a server. A shell script stands in for the agent.

use std::{fs, os::unix::fs::PermissionsExt};

use tempfile::TempDir;

use crate::{Run, finish, rope_cpu, tiny::tiny_reader};

/// Runs `launch codex` with the agent `script` in a folder of its own, the first of PATH.
fn launch(script: Option<&str>, options: &[&str]) -> Run {
    let (model, folder) = (tiny_reader(1, true), TempDir::new().unwrap());
    if let Some(script) = script {
        let program = folder.path().join("codex");
        fs::write(&program, format!("#!/bin/bash\n{script}")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let model = model.path().to_str().unwrap();
    let mut command = rope_cpu(&["launch", "codex", "-m", model, "-c", "256"]);
    command.args(options);
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    command.env("PATH", path);
    finish(command)
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
        let run = launch(Some(script), &options[usize::from(key.is_empty())..]);
        assert_eq!(run.code, Some(7), "{}", run.stderr);
        assert_eq!(run.stdout.trim(), "HTTP/1.1 200 OK");
        assert!(run.stderr.contains("\nexec\nSay hello.\n"), "{}", run.stderr);
        assert!(run.stderr.contains("model_context_window=256"), "{}", run.stderr);
    }
}

#[test]
fn an_agent_that_is_not_installed_is_refused_with_the_way_to_install_it() {
    launch(None, &[]).refused(2, &["codex is not installed", "npm install -g @openai/codex"]);
}
