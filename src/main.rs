//! The `rope-cpu` program: what was typed becomes a run, and the run an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    rope_cpu::cli::run(std::env::args_os().collect())
}
