//! Tests of the program through its command line.

mod adapters;
mod batched_bench;
mod bench;
#[cfg(unix)]
mod commands;
mod embed;
mod environment;
mod eval;
mod fit;
mod grammar;
pub mod hub;
mod imatrix;
mod input;
mod inspect;
#[cfg(unix)]
mod launch;
mod long_answers;
mod machine;
mod model;
mod passkey;
mod perplexity;
mod prompt_cache;
mod quantize;
mod read;
mod rope;
mod sampling;
mod shelf;
mod shell;
#[cfg(unix)]
mod shortened;
mod speculation;
mod split;
mod sweep;
#[cfg(unix)]
mod terminal;
#[cfg(unix)]
mod terminal_models;
mod tokenize;
mod usage;

use assert_cmd::Command;

use rope_cpu_testing::models;

/// The program, without environment variables that change its behaviour.
fn rope_cpu(arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("rope-cpu"));
    command.args(arguments).timeout(std::time::Duration::from_secs(300));
    for (name, _) in std::env::vars_os() {
        if ["ROPE_CPU_", "LLAMA_", "HF_", "HUGGINGFACE_"]
            .iter()
            .any(|own| name.to_string_lossy().starts_with(own))
        {
            command.env_remove(name);
        }
    }
    command
}

/// The result of a run.
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn run(arguments: &[&str]) -> Run {
    finish(rope_cpu(arguments))
}

fn finish(mut command: Command) -> Run {
    let mut output = command.output();
    // wine fails to start one of a thousand programs, with an internal error.
    if cfg!(windows) && output.as_ref().is_err_and(|e| e.raw_os_error() == Some(1359)) {
        output = command.output();
    }
    let output = output.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

impl Run {
    /// Checks that the program exited with `code`, with no output on stdout and `parts` on stderr.
    #[track_caller]
    fn refused(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        assert_eq!(self.stdout, "");
        self.said(parts);
    }

    /// Returns the number of prompt tokens that were not computed.
    #[track_caller]
    fn reused(&self) -> usize {
        let line = self.stderr.lines().find(|line| line.starts_with("prompt ")).unwrap();
        line.split(", ").last().unwrap().split(' ').next().unwrap().parse().unwrap()
    }

    #[track_caller]
    fn said(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not in:\n{}", self.stderr);
        }
    }
}

/// Returns the path of SmolLM2-135M-Instruct. Without it the test is skipped.
fn smollm2() -> Option<String> {
    fetched("SmolLM2-135M-Instruct.Q4_1.gguf")
}

/// Returns the path of Gemma 3 270M, as [`smollm2`]. Its tokenizer is SentencePiece.
fn gemma3() -> Option<String> {
    fetched("gemma-3-270m-q4_k_m.gguf")
}

fn fetched(name: &str) -> Option<String> {
    let path = models::fetched(name, "fetch-models --all")?;
    Some(path.to_str().unwrap().into())
}
